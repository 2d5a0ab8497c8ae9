package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxCheck asks Redis just before the write whether the client still holds the lock. The lock can
// still fail: the lease may expire between the check and the write. B then locks and writes, and A
// writes too.
//
// Like the source articles, setnxCheck uses a lock even if the grant took longer than the TTL. Two
// clients may then work at once, but the check keeps one of them from writing.
var setnxCheck = variant(setnx, Strategy{
	Name:   "setnx-check",
	Title:  "setnx that rechecks the lock before the write",
	Source: "the source articles: CHECK",
	// The check shows only that the lease was still valid during the check. A process that pauses
	// after the check may still write too late.
	Claims: catalog.ClaimsOf("check"),
	Breaks: []string{"F12", "F37"},
	New: func(env Env) (Locker, error) {
		return checkLocker{redisKeyLock{set: setPX, unset: compareAndDelete, acceptsLate: true}.locker(env)}, nil
	},
})

type checkLocker struct{ *redisKeyLocker }

func (l checkLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.redisKeyLocker.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return checkLease{lease.(*redisKeyLease)}, nil
}

type checkLease struct{ *redisKeyLease }

func (l checkLease) Check(ctx context.Context) error {
	return orLost(holds(ctx, l.env.Redis, l.redisKeyLease))
}
