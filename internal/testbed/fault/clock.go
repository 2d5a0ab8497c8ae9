package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// clientClock sets the wall clocks of the instances apart by two leases (F9). It does not
// strike the locks themselves. The leases are long enough to outlast any stall of the
// machine.
var clientClock = Fault{
	Name:       catalog.ClientClock,
	NotForeign: "the clock of a process cannot be set from outside",
	Hits:       locks,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{
			{Do: skew(t.Contender, 2)},
			{Before: skew(t.Faulted, -2)},
		}
	}),
}

// skew sets the clock of an instance ahead by n leases until it is healed.
func skew(in Instance, n float64) Step {
	return func(ctx context.Context, lease time.Duration) (stack.Heal, error) {
		heal := func() error { return in.SetClock(context.WithoutCancel(ctx), 0) }
		return heal, in.SetClock(ctx, leases(n, lease))
	}
}

// nodeClock makes the clock of the one Redis, or of as many Redlock nodes as Redlock can
// lose, jump past the end of every lease (F19). It cannot be healed.
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
