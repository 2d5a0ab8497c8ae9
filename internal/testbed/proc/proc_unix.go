//go:build unix

package proc

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// The signals that Windows has no name for.
const (
	Stop     = syscall.SIGSTOP
	Continue = syscall.SIGCONT
)

// Apart has cmd lead a process group of its own, so that Ctrl-C in a terminal is not for it.
func Apart(cmd *exec.Cmd) { attr(cmd).Setpgid = true }

// Detached has cmd lead a session of its own, so that it outlives the terminal.
func Detached(cmd *exec.Cmd) { attr(cmd).Setsid = true }

func attr(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}

// Signal sends sig to the group that process pid leads.
func Signal(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }

// KillRest kills what a process that has ended has left of its group. While any of it
// lives, the number of the group is given to no other process.
func KillRest(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// IsOwn says whether a file is this user's.
func IsOwn(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// CPUTime is what this process has used so far.
func CPUTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic("proc: " + err.Error()) // of a process that lives it is always known
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// firstPassed is the file descriptor of the first file that [Pass] passes.
const firstPassed = 3

// Pass has cmd inherit files beside its standard ones.
func Pass(cmd *exec.Cmd, files ...*os.File) error {
	cmd.ExtraFiles = files
	return nil
}

// Passed are the n files that this process was passed. What it starts does not inherit them.
func Passed(n int) ([]*os.File, error) {
	files := make([]*os.File, n)
	for i := range files {
		syscall.CloseOnExec(firstPassed + i)
		files[i] = os.NewFile(uintptr(firstPassed+i), "passed")
	}
	return files, nil
}
