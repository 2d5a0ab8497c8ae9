package lock

import (
	"context"
	"errors"

	"grablab/handoff"
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// handoffStrategy is the recommended lock. It uses one Redis server and serves the clients of a
// process in the order of their arrival. A release hands the lease over to the next waiter and
// wakes it. The algorithm is in package handoff at the top of the module. PROTOCOL.md in that
// package explains why the algorithm is correct.
//
// The lock does not detect work that hangs while the process lives (F15). A single Redis server may
// forget a lease, and a failover may lose one (F17). In both cases, the fencing token stops the
// second writer.
var handoffStrategy = Strategy{
	Name:     "handoff",
	Title:    "first come, first served: a release passes the lock to the next waiter",
	Family:   "redis",
	Source:   "our own",
	Needs:    Redis,
	Guard:    order.Fenced,
	Fences:   true,
	Claims:   catalog.ClaimsOf("watchdog").Fenced(),
	Excludes: catalog.Global,
	Waiter:   "is told, in its turn",
	Breaks:   []string{"F15", "F17", "F27"},
	Promises: Promises{InOrder: catalog.PerProcess, Drift: 0.01, ReleaseRetried: true, LateUndone: true},
	New: func(env Env) (Locker, error) {
		if err := needRedis(env); err != nil {
			return nil, err
		}
		l, err := handoff.New(env.Redis, handoff.Options{TTL: env.TTL, ID: env.Token(), Logger: env.Log})
		return handoffLocker{l, env}, err
	},
}

type handoffLocker struct {
	*handoff.Locker
	env Env
}

// Raise calls RaiseFence.
func (l handoffLocker) Raise(ctx context.Context, key string, fence uint64) error {
	return l.RaiseFence(ctx, key, fence)
}

func (l handoffLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.AcquireWithin(ctx, key, l.env.wait(ctx))
	switch {
	case errors.Is(err, handoff.ErrBusy):
		return nil, ErrBusy
	case err != nil:
		return nil, err
	default:
		return handoffLease{lease}, nil
	}
}

type handoffLease struct{ *handoff.Lease }

func (l handoffLease) Release(ctx context.Context) error {
	err := l.Lease.Release(ctx)
	if errors.Is(err, handoff.ErrLost) {
		return ErrLost
	}
	return err
}
