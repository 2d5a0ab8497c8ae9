package lab

import (
	"errors"
	"fmt"
	"sync"
)

// errBusy means that something else runs.
var errBusy = errors.New("not now")

// occupation names the work that runs now. Only one such work may run, because two would disturb
// each other without showing it.
type occupation struct {
	mu   sync.Mutex
	what string // empty if nothing runs
}

// occupy reserves the machine for work with a name such as "a live run (view Live)". If other work
// runs, the error wraps errBusy. The caller may call release more than once.
func (l *Lab) occupy(what string) (release func(), err error) {
	l.busy.mu.Lock()
	defer l.busy.mu.Unlock()
	if l.busy.what != "" {
		return nil, fmt.Errorf("%w: %s is running, and the two would disturb each other: stop it or wait, then try again", errBusy, l.busy.what)
	}
	l.setBusyLocked(what)
	return sync.OnceFunc(func() {
		l.busy.mu.Lock()
		defer l.busy.mu.Unlock()
		l.setBusyLocked("")
	}), nil
}

func (l *Lab) setBusyLocked(what string) {
	l.busy.what = what
	l.hub.locked(func() { l.hub.status.Busy, l.hub.status.Doing = what, "" })
}

// doing shows the progress of the work that runs.
func (l *Lab) doing(line string) { l.hub.locked(func() { l.hub.status.Doing = line }) }
