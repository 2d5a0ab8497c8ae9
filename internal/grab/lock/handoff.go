package lock

import (
	"context"
	"errors"

	"grablab/handoff"
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// handoffStrategy is the recommended lock. It needs one Redis server. A release passes the lock to
// the next waiter and wakes that waiter. Within a process, clients get the lock in order of
// arrival. See package handoff for the algorithm.
//
// The lock does not detect work that hangs, so the holder's process keeps renewing the lease. A
// single Redis server may also forget a lease, for example in a failover. In that case, the fencing
// token blocks the earlier holder's write.
var handoffStrategy = Strategy{
	Name:     "handoff",
	Title:    "first come, first served: a release passes the lock to the next waiter",
	Family:   "redis",
	Source:   "this project's package handoff",
	Needs:    Redis,
	Guard:    order.Fenced,
	Fences:   true,
	Claims:   catalog.ClaimsOf("watchdog").Fenced(),
	Excludes: catalog.Global,
	Waiter:   "is notified when its turn comes",
	Breaks:   []string{"F15", "F17", "F27"},
	Promises: Promises{InOrder: catalog.PerProcess, Turns: true, Drift: 0.01, ReleaseRetried: true, RenewalRetried: 0.5, LateUndone: true},
	New: func(env Env) (Locker, error) {
		l, err := handoff.New(env.Redis, handoff.Options{TTL: env.TTL, ID: env.Token(), Logger: env.Log})
		return handoffLocker{l, env}, err
	},
}

type handoffLocker struct {
	*handoff.Locker
	env Env
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
