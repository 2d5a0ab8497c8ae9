package lab

import (
	"errors"
	"fmt"
	"sync"
)

// errBusy means that the lab is doing other work, which must finish first.
var errBusy = errors.New("not now")

// occupation describes what the lab is doing. The lab runs only one task at a time, because two
// tasks would distort each other's results.
type occupation struct {
	mu     sync.Mutex
	what   string // empty if nothing runs
	closed bool   // whether the lab is ending, so that no more work may begin
	work   sync.WaitGroup
}

// occupy reserves the machine for some work. what describes the work. If other work is running, the
// error wraps errBusy. release may be called more than once.
func (l *Lab) occupy(what string) (release func(), err error) {
	l.busy.mu.Lock()
	defer l.busy.mu.Unlock()
	if l.busy.closed {
		return nil, fmt.Errorf("%w: the lab is shutting down", errBusy)
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

// endWork prevents new work and waits until the current work ends. The context of that work must have
// ended already.
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

// showProgress shows a line with the progress of the current work.
func (l *Lab) showProgress(line string) { l.state.locked(func() { l.state.status.Doing = line }) }
