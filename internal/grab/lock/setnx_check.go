package lock

import (
	"context"

	"grablab/internal/order"
)

// setnxCheck asks Redis once more, immediately before the write, whether the
// lock is still its own. The answer is yes; the lease runs out; B locks, reads
// and writes; A writes (F37). The window is that of F11, narrower, and a pause
// does not care how wide a window is.
var setnxCheck = Strategy{
	Name:   "setnx-check",
	Title:  "setnx, and asks once more before the write",
	Family: "redis",
	Source: "the source articles: CHECK",
	Needs:  Redis,
	Guard:  order.Naive,
	// What comes before the last question is found by it: work that outlasts the
	// lease, a Redis that cannot be asked. A pause is aimed behind it.
	Expect: map[Fault]Verdict{
		Pause:        Unsafe,
		RedisRestart: Unsafe,
		Failover:     Unsafe,
		PartitionDB:  Unsafe, // its claim arrives after its lease
		NodeClock:    Unsafe,
	},
	Excludes: Global,
	Survives: setnx.Survives,
	Breaks:   []string{"F37"},
	Aims:     map[Fault]Point{Pause: {Phase: "claim", Call: 1}},
	New: func(env Env) (Locker, error) {
		l, err := keyLock{set: setPX, unset: compareAndDelete}.locker(env)
		return checkLocker{l}, err
	},
}

type checkLocker struct{ *keyLocker }

func (l checkLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := l.lease(key)
	if err := lease.obtain(ctx); err != nil {
		return nil, err
	}
	return checkLease{lease}, nil
}

type checkLease struct{ *keyLease }

func (l checkLease) Check(ctx context.Context) error {
	ours, err := holds(ctx, l.env.Redis, l.keyLease)
	if err == nil && !ours {
		return ErrLost
	}
	return err
}
