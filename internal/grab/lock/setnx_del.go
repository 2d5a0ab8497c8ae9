package lock

import (
	"context"

	"grablab/internal/order"
)

// setnxDel is SET NX PX and a release that asks nobody. A's lease runs out; B
// locks; A's DEL deletes B's lock; C locks: B and C are inside (F5).
var setnxDel = Strategy{
	Name:     "setnx-del",
	Title:    "SET NX PX, released by DEL",
	Family:   "redis",
	Source:   "the source articles; redis.io: Distributed Locks with Redis",
	Needs:    Redis,
	Guard:    order.Naive,
	Expect:   setnx.Expect,
	Excludes: Global,
	Survives: setnx.Survives,
	Breaks:   []string{"F5"},
	New:      keyLock{set: setPX, unset: del}.New,
}

func del(ctx context.Context, l *keyLease) (bool, error) {
	n, err := l.env.Redis.Del(ctx, l.key).Result()
	return n > 0, err
}
