package fault

import (
	"context"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/stack"
)

// pause stops a process for longer than the lease, as a garbage collection may do (F11 in
// docs/failure-modes.md). During the pause, the process can neither renew its lease nor notice that
// it has expired.
var pause = Fault{
	Name:       catalog.Pause,
	TTL:        time.Second,
	ContendFor: 1.5,
	Freezes:    true,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: func(context.Context, time.Duration) (stack.Heal, error) {
			return func() error { return t.Affected.Signal(syscall.SIGCONT) }, t.Affected.Signal(syscall.SIGSTOP)
		}}}
	}),
}

// crash kills a process that holds locks, and then starts it again (F3 and F4 in
// docs/failure-modes.md).
var crash = Fault{
	Name:       catalog.Crash,
	Course:     Killed,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: stepWithoutHeal(func(ctx context.Context) error {
			if err := t.Affected.Signal(syscall.SIGKILL); err != nil {
				return err
			}
			return t.Affected.Restart(ctx)
		})}}
	}),
}
