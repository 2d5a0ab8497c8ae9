package lab

import (
	"errors"
	"fmt"
	"sync"
)

// errBusy means that the lab must finish other work first.
var errBusy = errors.New("not now")

// occupation describes the current work. Only one can run at a time, because two would distort each
// other's results.
type occupation struct {
	mu     sync.Mutex
	what   string // empty if nothing runs
	closed bool   // whether the lab is ending, so that no more work may begin
	work   sync.WaitGroup
}

// occupy reserves the machine for work with this name. If other work is running, the error wraps
// errBusy. release may be called more than once.
func (l *Lab) occupy(what string) (release func(), err error) {
	l.busy.mu.Lock()
	defer l.busy.mu.Unlock()
	if l.busy.closed {
		return nil, fmt.Errorf("%w: the lab ends", errBusy)
	}
	if l.busy.what != "" {
		return nil, fmt.Errorf("%w: %s is running, and the two would disturb each other: stop it or wait, then try again", errBusy, l.busy.what)
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

// endWork prevents new work and waits for the current work, whose context must have ended.
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

// doing shows a line about the progress of the current work.
func (l *Lab) doing(line string) { l.state.locked(func() { l.state.status.Doing = line }) }
