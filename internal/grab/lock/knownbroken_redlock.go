package lock

import (
	"context"

	"grablab/internal/catalog"

	"github.com/go-redsync/redsync/v4"
)

// redlockSetOnExtend sets the key again where an extension does not find it. A's
// keys expire; B locks, works, unlocks; A's extension takes the lock anew and
// says that it was never lost (F24, internal/explore/testdata/F24.txt).
var redlockSetOnExtend = variant(redlock, Strategy{
	Name:   "redlock-set-on-extend",
	Title:  "redlock, setting the key again on extension",
	Breaks: []string{"F24"},
	New: func(env Env) (Locker, error) {
		return newRedlock(env, env.Redlock, redsync.WithSetNXOnExtend())
	},
})

// redlockStrayRenewal ends its renewals once a release has succeeded. A releases
// while a majority of the nodes cannot be reached; they come back, with A's key; it
// is extended for ever, and no client holds it (F14).
var redlockStrayRenewal = variant(redlock, Strategy{
	Name:   "redlock-stray-renewal",
	Title:  "redlock, extended on if its release fails",
	Breaks: []string{"F14"},
	Expect: with(redlock.Expect, catalog.Stuck, catalog.RedisDownMost),
	New: func(env Env) (Locker, error) {
		l, err := newRedlock(env, env.Redlock)
		return redlockStrayLocker{l}, err
	},
})

type redlockStrayLocker struct{ Locker }

func (l redlockStrayLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.Locker.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return redlockStrayLease{lease.(*redlockLease)}, nil
}

type redlockStrayLease struct{ *redlockLease }

// Release leaves the lease as it is if it fails.
func (l redlockStrayLease) Release(ctx context.Context) error {
	err := l.unlock(ctx)
	if err == nil {
		l.stop()
	} else {
		l.wanted.Store(true)
	}
	return err
}
