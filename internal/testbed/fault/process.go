package fault

import (
	"context"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// slow makes a part of a request take longer than the TTL (F11 in docs/failure-modes.md). The
// process keeps running, so it can renew the lease or notice that it has expired.
var slow = Fault{
	Name:       catalog.Slow,
	Reach:      foreground,
	NotForeign: "only your service itself can make its work take longer: use the faults pause or hang, which are similar",
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}

// hang makes a request's work never end, although its process keeps running (F15 in
// docs/failure-modes.md).
var hang = Fault{
	Name:       catalog.Hang,
	Reach:      work,
	Course:     Never,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}

// pause stops a process for longer than the lease, as a garbage collection may do (F11 in
// docs/failure-modes.md). During the pause, the process can neither renew its lease nor notice that
// it has expired.
var pause = Fault{
	Name:       catalog.Pause,
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

// lateRelease delays a lock's release until the same driver holds the lock again. The delayed
// release must not free the new lock (F5, F6, F35 and F36 in docs/failure-modes.md).
var lateRelease = Fault{
	Name:           catalog.LateRelease,
	Hits:           locks &^ lock.SQLLocks,
	Reach:          leaves,
	Course:         Released,
	TTL:            time.Second, // shorter than the timeouts of most clients, which would otherwise give up the release
	ContendFor:     1.3,
	HoldContenders: true,
	Prepare:        ready(func(Target) []Strike { return []Strike{{}} }),
}

// cancel makes a client disconnect while its request acquires a lock. The service must not leave
// the lock behind (F14 and F22 in docs/failure-modes.md).
var cancel = Fault{
	Name:       catalog.Cancel,
	Hits:       locks,
	Reach:      acquires,
	Course:     HungUp,
	ContendFor: 1.5,
	Prepare:    ready(func(Target) []Strike { return []Strike{{}} }),
}

// clientClock sets one instance's wall clock ahead by two TTLs, but not the clocks of the lock
// servers (F9 in docs/failure-modes.md).
var clientClock = Fault{
	Name:       catalog.ClientClock,
	NotForeign: "loadgen cannot set the clock of a running process",
	Hits:       locks,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{
			{Do: skew(t.Contender, 2)},
			{Before: skew(t.Affected, -2)},
		}
	}),
}

// skew returns a step that sets an instance's clock ahead by n TTLs. Undoing the step corrects the
// clock.
func skew(in Instance, n float64) Step {
	return func(ctx context.Context, lease time.Duration) (stack.Heal, error) {
		heal := func() error { return in.SetClock(context.WithoutCancel(ctx), 0) }
		return heal, in.SetClock(ctx, leases(n, lease))
	}
}
