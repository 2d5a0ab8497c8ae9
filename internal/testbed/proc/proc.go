// Package proc starts, recognizes and signals other processes. It contains everything in
// which Linux and macOS differ. A child leads a process group, and signals go to the whole
// group.
package proc

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// NewProcessGroup makes cmd lead its own process group, so that Ctrl-C in a terminal does not reach
// it.
func NewProcessGroup(cmd *exec.Cmd) { attr(cmd).Setpgid = true }

// Detached makes cmd lead its own session, so that it outlives the terminal.
func Detached(cmd *exec.Cmd) { attr(cmd).Setsid = true }

func attr(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}

// Signal sends sig to the group that process pid leads.
func Signal(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }

// KillRest kills the remaining processes of a group whose leader has ended. As long as one of them
// lives, no other group can get the same number.
func KillRest(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// IsOwn reports whether the file belongs to the user of this process.
func IsOwn(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// CPUTime returns the processor time that this process has used.
func CPUTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic("proc: " + err.Error()) // cannot fail for a running process
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// firstPassed is the file descriptor of the first of a command's ExtraFiles.
const firstPassed = 3

// Passed returns the n files that this process has inherited as ExtraFiles of its command. It makes
// sure that children of this process do not inherit them.
func Passed(n int) []*os.File {
	files := make([]*os.File, n)
	for i := range files {
		syscall.CloseOnExec(firstPassed + i)
		files[i] = os.NewFile(uintptr(firstPassed+i), "passed")
	}
	return files
}
