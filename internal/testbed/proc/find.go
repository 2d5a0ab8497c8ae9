package proc

import (
	"errors"
	"os"
	"syscall"
)

// [Find] returns these errors.
var (
	ErrGone    = errors.New("the process does not exist or has ended")
	ErrForeign = errors.New("the process belongs to another user, so this program may not stop it")
	ErrSelf    = errors.New("this is the process of loadgen itself")
)

// Find returns the process with this id, provided that the current user may signal it. On most
// systems, the result stays valid even if another process gets the same id later.
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
