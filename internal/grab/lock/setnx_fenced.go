package lock

import (
	"context"
	_ "embed"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnxFenced is setnx whose leases are numbered, and a database that knows the
// highest number that has read the order. A locks, reads and pauses; B locks
// with a higher token and reads, which raises the row's; A wakes and its write is
// refused (cures F11 and F17). What is lost with the lock is time, not the order.
var setnxFenced = Strategy{
	Name:     "setnx-fenced",
	Title:    "setnx with a fencing token, raised before the read",
	Family:   "redis",
	Source:   "Kleppmann 2016: How to do distributed locking",
	Needs:    Redis,
	Guard:    order.Fenced,
	Fences:   true,
	Excludes: Global,
	Survives: setnx.Survives,
	New:      newSetnxFenced,
}

func newSetnxFenced(env Env) (Locker, error) {
	l, err := keyLock{set: setFenced, unset: compareAndDelete}.New(env)
	return fencedLocker{l, env.Redis}, err
}

//go:embed setnx_fenced.lua
var setnxFencedLua string

var setnxFencedAcquire = redis.NewScript(setnxFencedLua)

func setFenced(ctx context.Context, l *keyLease) (bool, error) {
	var err error
	l.fence, err = setnxFencedAcquire.Run(ctx, l.env.Redis, fenceKeys(l.key),
		l.value, l.env.TTL.Milliseconds(), fenceKeep.Milliseconds()).Uint64()
	return l.fence > 0, err
}
