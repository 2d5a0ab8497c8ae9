// Package proc starts, recognizes and signals processes, and hides the differences between Linux
// and macOS.
package proc

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// NewProcessGroup gives cmd its own process group, so that Ctrl-C in a terminal does not reach it.
func NewProcessGroup(cmd *exec.Cmd) { attr(cmd).Setpgid = true }

// Detached gives cmd its own session, so that it keeps running when the terminal closes.
func Detached(cmd *exec.Cmd) { attr(cmd).Setsid = true }

func attr(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}

// Signal sends a signal to every process in the group that the process pid leads.
func Signal(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }

// KillRest kills the processes that are left in a process group after its leader has ended.
func KillRest(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// IsOwn reports whether the file belongs to the current user.
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

// firstPassed is the file descriptor that a child process uses for the first of its ExtraFiles.
const firstPassed = 3

// Passed returns the n files that the parent of this process passed to it through ExtraFiles.
// Children of this process do not inherit them.
func Passed(n int) []*os.File {
	files := make([]*os.File, n)
	for i := range files {
		syscall.CloseOnExec(firstPassed + i)
		files[i] = os.NewFile(uintptr(firstPassed+i), "passed")
	}
	return files
}
