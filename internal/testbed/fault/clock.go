package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

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

// nodeClock sets the clocks of lock servers ahead, so that every lease expires there (F19 in
// docs/failure-modes.md). It affects the single Redis server, or a minority of the Redlock nodes.
var nodeClock = Fault{
	Name:       catalog.NodeClock,
	Hits:       lock.Redis | lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: func(ctx context.Context, lease time.Duration) (stack.Heal, error) {
			for _, server := range t.minority() {
				if err := t.Stack.Jump(ctx, server, leases(2, lease)); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}}}
	}),
}
