package lab

import (
	"errors"
	"fmt"
	"sync"
)

// errBusy means that the server is working on another task, so the user must wait.
var errBusy = errors.New("the lab is busy")

// occupation is the task that the server is working on. Only one task can run at a time, because
// concurrent tasks would distort each other's measurements.
type occupation struct {
	mu     sync.Mutex
	what   string // empty if nothing runs
	closed bool   // whether the server is shutting down and accepts no more work
	work   sync.WaitGroup
}

// occupy reserves the server for a task, which it describes to other users as what. If another task
// is running, the error wraps errBusy. It is safe to call release more than once.
func (l *Lab) occupy(what string) (release func(), err error) {
	l.busy.mu.Lock()
	defer l.busy.mu.Unlock()
	if l.busy.closed {
		return nil, fmt.Errorf("%w: the lab is shutting down", errBusy)
	}
	if l.busy.what != "" {
		return nil, fmt.Errorf("%w: %s is still running, and a second run would disturb it: stop it or wait, then try again", errBusy, l.busy.what)
	}
	l.setBusyLocked(what)
	l.busy.work.Add(1)
	return sync.OnceFunc(func() {
		defer l.busy.work.Done()
		l.busy.mu.Lock()
		defer l.busy.mu.Unlock()
		l.setBusyLocked("")
	}), nil
}

// endWork rejects new tasks and waits until the current one has ended. The caller must cancel that
// task first, because it could run for a long time.
func (l *Lab) endWork() {
	l.busy.mu.Lock()
	l.busy.closed = true
	l.busy.mu.Unlock()
	l.busy.work.Wait()
}

func (l *Lab) setBusyLocked(what string) {
	l.busy.what = what
	l.state.locked(func() { l.state.status.Busy, l.state.status.Doing = what, "" })
}

func (l *Lab) showProgress(line string) { l.state.locked(func() { l.state.status.Doing = line }) }
