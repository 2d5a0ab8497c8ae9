package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxCheck asks Redis immediately before the write whether the client still holds the lock.
// Suppose that Redis says yes, and then the lease expires. B locks, reads and writes, and then A
// writes too (F37, internal/explore/testdata/F37.txt). The window is narrower than that of F11, but
// a pause or a late reply can be longer than any window.
//
// The article relies only on that check and accepts late grants. Two clients can then be in the
// critical section at once (F12), and the check stops one of them from writing.
var setnxCheck = variant(setnx, Strategy{
	Name:   "setnx-check",
	Title:  "setnx, which checks the lock again before the write",
	Source: "the source articles: CHECK",
	// The check before the write detects every loss of the lock up to that moment. A process that
	// is paused right after the check still writes too late.
	Claims: catalog.ClaimsOf("check"),
	Breaks: []string{"F12", "F37"},
	New: func(env Env) (Locker, error) {
		l, err := redisKeyLock{set: setPX, unset: compareAndDelete, believesLate: true}.locker(env)
		return checkLocker{l}, err
	},
})

type checkLocker struct{ *redisKeyLocker }

func (l checkLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return checkLease{lease}, nil
}

type checkLease struct{ *redisKeyLease }

func (l checkLease) Check(ctx context.Context) error {
	return orLost(holds(ctx, l.env.Redis, l.redisKeyLease))
}
