package lab

import (
	"errors"
	"fmt"
	"sync"
)

// errBusy says that something else runs.
var errBusy = errors.New("not now")

// occupation is the one thing that runs. Whatever needs the machine for itself would be
// disturbed by another, and would not show it.
type occupation struct {
	mu   sync.Mutex
	what string // "": nothing
}

// occupy begins something that is named as in "a live run (view Live)", unless something
// else runs: its errors wrap errBusy. release may be called more than once.
func (l *Lab) occupy(what string) (release func(), err error) {
	l.busy.mu.Lock()
	defer l.busy.mu.Unlock()
	if l.busy.what != "" {
		return nil, fmt.Errorf("%w: %s is under way, and each would disturb the other. Stop it, or let it end, and try again", errBusy, l.busy.what)
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

// doing says how far what runs is.
func (l *Lab) doing(line string) { l.hub.locked(func() { l.hub.status.Doing = line }) }
