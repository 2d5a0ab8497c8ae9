package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// Signals that Windows does not have, with their numbers on Linux. [Signal] refuses them.
const (
	Stop     = syscall.Signal(19)
	Continue = syscall.Signal(18)
)

// NewProcessGroup makes cmd start its own console group, so that Ctrl-C does not reach it.
func NewProcessGroup(cmd *exec.Cmd) { attr(cmd).CreationFlags |= windows.CREATE_NEW_PROCESS_GROUP }

// Detached makes cmd run without a console, so that it outlives the console of this process.
func Detached(cmd *exec.Cmd) { attr(cmd).CreationFlags |= windows.DETACHED_PROCESS }

func attr(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}

// Signal ends process pid. SIGKILL ends it at once, but not the processes that it has
// started. SIGTERM and SIGINT act like Ctrl-Break: the whole console group gets it, and a Go
// program sees [os.Interrupt]. This works only from the same console.
func Signal(pid int, sig syscall.Signal) error {
	switch sig {
	case syscall.SIGKILL:
		return kill(pid)
	case syscall.SIGTERM, syscall.SIGINT:
		return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(pid))
	default:
		return fmt.Errorf("proc: Windows does not support %v: %w", sig, errors.ErrUnsupported)
	}
}

func kill(pid int) error {
	h, err := windows.OpenProcess(windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	return windows.TerminateProcess(h, 1)
}

// KillRest does nothing, because the number may belong to another process by now.
func KillRest(int) {}

// EndWithParent does nothing, because Windows does not end a child with its parent.
func EndWithParent(*exec.Cmd) {}

// SetTitle does nothing, because a process on Windows has the name of its file.
func SetTitle(string) error { return nil }

// BootID returns "". [StartTime] distinguishes processes of an earlier boot.
func BootID() string { return "" }

// StartTime returns the time at which a process was started, in a form that can be compared.
// It returns false if the process does not exist or has ended.
func StartTime(pid int) (string, bool) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return "", false
	}
	defer windows.CloseHandle(h)
	if event, err := windows.WaitForSingleObject(h, 0); err != nil || event == windows.WAIT_OBJECT_0 {
		return "", false
	}
	var created, exited, kernel, user windows.Filetime
	if windows.GetProcessTimes(h, &created, &exited, &kernel, &user) != nil {
		return "", false
	}
	return strconv.FormatInt(created.Nanoseconds(), 10), true
}

// CPUTime returns the processor time that this process has used.
func CPUTime() time.Duration {
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user); err != nil {
		panic("proc: " + err.Error()) // cannot fail for a running process
	}
	ticks := func(t windows.Filetime) int64 { return int64(t.HighDateTime)<<32 | int64(t.LowDateTime) } // of 100 ns
	return time.Duration(ticks(kernel)+ticks(user)) * 100
}

// IsOwn returns true, because the folder for temporary files belongs to the user.
func IsOwn(os.FileInfo) bool { return true }

// passedEnv is the variable with the handles that a process inherits, in hexadecimal.
const passedEnv = "GRABLAB_PASSED"

// Pass makes cmd inherit files in addition to its standard ones.
func Pass(cmd *exec.Cmd, files ...*os.File) error {
	handles := make([]string, len(files))
	for i, f := range files {
		h := f.Fd()
		if err := windows.SetHandleInformation(windows.Handle(h), windows.HANDLE_FLAG_INHERIT, windows.HANDLE_FLAG_INHERIT); err != nil {
			return fmt.Errorf("proc: pass %s: %w", f.Name(), err)
		}
		attr(cmd).AdditionalInheritedHandles = append(attr(cmd).AdditionalInheritedHandles, syscall.Handle(h))
		handles[i] = strconv.FormatUint(uint64(h), 16)
	}
	cmd.Env = append(cmd.Environ(), passedEnv+"="+strings.Join(handles, ","))
	return nil
}

// Passed returns the n files that this process inherited through [Pass]. Its own children do
// not inherit them.
func Passed(n int) ([]*os.File, error) {
	handles := strings.Split(os.Getenv(passedEnv), ",")
	if len(handles) != n {
		return nil, fmt.Errorf("proc: %s has %d handles, want %d", passedEnv, len(handles), n)
	}
	files := make([]*os.File, n)
	for i, text := range handles {
		h, err := strconv.ParseUint(text, 16, 64)
		if err == nil {
			err = windows.SetHandleInformation(windows.Handle(h), windows.HANDLE_FLAG_INHERIT, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("proc: handle %q of %s: %w", text, passedEnv, err)
		}
		files[i] = os.NewFile(uintptr(h), "passed")
	}
	return files, nil
}

// Barrier holds no child back, because a process on Windows cannot become another program.
// If this process dies shortly before Lift, the child is left behind.
type Barrier struct{}

// NewBarrier returns a Barrier for one child.
func NewBarrier() (*Barrier, error) { return &Barrier{}, nil }

// Command returns the program at path.
func (b *Barrier) Command(_, _, path string, args []string) (*exec.Cmd, error) {
	return exec.Command(path, args...), nil
}

// Lift does nothing.
func (b *Barrier) Lift() error { return nil }

// Close does nothing.
func (b *Barrier) Close() {}

// PassBarrier fails, because no child waits at a barrier.
func PassBarrier([]string) error { return errors.ErrUnsupported }
