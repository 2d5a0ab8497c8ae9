package lock

import (
	"context"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// healing is a variant of setnx-expire that tries to recover when a holder dies between its two
// commands. If a client finds a lock without a TTL, it assumes that the holder is dead and deletes
// the lock.
//
// The variant passes every test in which no client is interrupted. However, it breaks the lock even
// without a fault.
var healing = Strategy{
	Name:     "setnx-healing",
	Title:    "setnx-expire; a lock without an expiry is removed",
	Family:   "redis",
	Source:   "an example of a lock of one's own",
	Needs:    Redis,
	Guard:    order.Naive,
	Excludes: catalog.Global,
	Claims:   catalog.Claims{catalog.NoFault: catalog.Holds},
	New:      redisKeyLock{set: setOrHeal, unset: compareAndDelete}.New,
}

func setOrHeal(ctx context.Context, l *redisKeyLease) (bool, error) {
	ok, err := setThenExpire(ctx, l)
	if ok || err != nil {
		return ok, err
	}
	const forever = -1
	left, err := l.env.Redis.PTTL(ctx, l.key).Result()
	if err != nil || left != forever {
		return false, err
	}
	if err := l.env.Redis.Del(ctx, l.key).Err(); err != nil {
		return false, err
	}
	return setThenExpire(ctx, l)
}
