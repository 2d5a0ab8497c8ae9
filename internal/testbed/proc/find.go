package proc

import (
	"errors"
	"os"
	"syscall"
)

// Why [Find] refuses a process.
var (
	ErrGone    = errors.New("there is no such process, or it has ended")
	ErrForeign = errors.New("that process is another user's, and this one may not signal it")
	ErrSelf    = errors.New("that process is this program itself")
)

// Find is a process that runs already, and that this one may signal. Where the system can,
// it stands for that very process, and for no later one of the same id.
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
