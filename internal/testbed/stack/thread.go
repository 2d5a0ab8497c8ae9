package stack

import (
	"errors"
	"os/exec"
	"runtime"
)

// thread is an operating-system thread that starts all child processes. It never ends, because the
// system may kill a child when the thread that started it ends (see [proc.EndWithParent]).
type thread struct {
	work   chan func()
	closed chan struct{}
}

func newThread() *thread {
	t := &thread{work: make(chan func()), closed: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // the thread ends with this function
		for {
			select {
			case f := <-t.work:
				f()
			case <-t.closed:
				return
			}
		}
	}()
	return t
}

func (t *thread) start(cmd *exec.Cmd) error {
	started := make(chan error)
	select {
	case t.work <- func() { started <- cmd.Start() }:
		return <-started
	case <-t.closed:
		return errors.New("the stack is closed")
	}
}

func (t *thread) close() { close(t.closed) }
