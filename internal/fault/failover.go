package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/stack"
)

// failover loses what the master had not yet told its replica: it dies, and
// Sentinel puts the replica in its place (F17). Of Redlock's nodes it is one.
// Leases outlive it by far: it is the loss that lets a contender in, no expiry.
var failover = Fault{
	Name:     catalog.Failover,
	Hits:     lock.Redis | lock.RedisQuorum,
	Aim:      beforeClaim,
	TTL:      10 * time.Second,
	Patience: 0.2,
	On:       RealServers,
	Prepare: func(ctx context.Context, t Target) (Prepared, error) {
		replica, err := t.Stack.Replicate(ctx, t.minority()[0])
		if err != nil {
			return Prepared{}, err
		}
		both := []stack.Detour{replica}
		return Prepared{
			Faulted: both, Contender: both,
			Strikes: []Strike{{
				Before: func(context.Context, time.Duration) (stack.Heal, error) { return replica.Hold() },
				Do:     func(ctx context.Context, _ time.Duration) (stack.Heal, error) { return nil, replica.Failover(ctx) },
			}},
			Close: replica.Close,
		}, nil
	},
}
