// Package proc starts, recognizes and signals processes, and hides the differences between Linux
// and macOS.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
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

// Signal sends a signal to every process in the group whose leader is pid.
func Signal(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }

// SignalTree is like Signal, but it also signals the groups of pid's descendants. For example, php-fpm forms
// its own group, even in the foreground.
func SignalTree(pid int, sig syscall.Signal) (err error) {
	// Find all groups before the first signal, because it may end the processes that connect the descendants with pid.
	for i, group := range Groups(pid) {
		failed := Signal(group, sig)
		if i == 0 { // an error for a descendant's group only means that the group has ended
			err = failed
		}
	}
	return err
}

// KillRest kills the processes that are left in a process group after its leader has ended.
func KillRest(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// IsOwn reports whether the file belongs to the current user.
func IsOwn(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// firstPassed is the file descriptor of a child process's first ExtraFile.
const firstPassed = 3

// Passed returns the n files that this process's parent passed to it through ExtraFiles. Children
// of this process do not inherit them.
func Passed(n int) []*os.File {
	files := make([]*os.File, n)
	for i := range files {
		syscall.CloseOnExec(firstPassed + i)
		files[i] = os.NewFile(uintptr(firstPassed+i), "passed")
	}
	return files
}

// [Find] returns these errors.
var (
	ErrGone    = errors.New("the process does not exist or has ended")
	ErrForeign = errors.New("the process belongs to another user, so this program may not stop it")
	ErrSelf    = errors.New("this is loadgen's own process")
)

// Find returns the process with this ID, if the current user may signal it. On most systems, the
// result never refers to a later process with the same ID.
func Find(pid int) (*os.Process, error) {
	if pid == os.Getpid() {
		return nil, ErrSelf
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil, ErrGone
	}
	err = p.Signal(syscall.Signal(0))
	_, runs := StartTime(pid)
	switch {
	case errors.Is(err, syscall.EPERM):
		return nil, ErrForeign
	case err != nil || !runs:
		return nil, ErrGone
	}
	return p, nil
}

// ContinueAtEnd makes sure that paused processes resume (SIGCONT) when this process ends, even if
// it is killed. done resumes them immediately.
func ContinueAtEnd(pids []int) (done func() error, err error) {
	cmd := exec.Command("sh", "-c", `trap "" INT TERM HUP; cat >/dev/null; kill -CONT "$@" 2>/dev/null; exit 0`, "sh")
	for _, pid := range pids {
		cmd.Args = append(cmd.Args, strconv.Itoa(pid))
	}
	cmd.Dir = "/"
	Detached(cmd)
	alive, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("proc: cannot start the helper that resumes stopped processes at the end: %w", err)
	}
	return func() error {
		_ = alive.Close() // fails only if the helper has already ended
		return cmd.Wait()
	}, nil
}
