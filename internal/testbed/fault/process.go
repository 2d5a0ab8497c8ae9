package fault

import (
	"context"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/stack"
)

// pause stops a process for longer than the lease, as a garbage collector or a hypervisor may do
// (F11). Meanwhile the process can neither renew its lease nor learn that the lease was lost.
var pause = Fault{
	Name:       catalog.Pause,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: func(context.Context, time.Duration) (stack.Heal, error) {
			return func() error { return t.Faulted.Signal(syscall.SIGCONT) }, t.Faulted.Signal(syscall.SIGSTOP)
		}}}
	}),
}

// crash kills a process while it holds locks, and then starts it again (F3, F4).
var crash = Fault{
	Name:       catalog.Crash,
	Course:     Killed,
	TTL:        time.Second,
	ContendFor: 1.5,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: stepWithoutHeal(func(ctx context.Context) error {
			if err := t.Faulted.Signal(syscall.SIGKILL); err != nil {
				return err
			}
			return t.Faulted.Restart(ctx)
		})}}
	}),
}
