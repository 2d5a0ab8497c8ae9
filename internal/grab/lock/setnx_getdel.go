package lock

import (
	"context"
	"errors"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnxGetDel looks before it deletes, in two steps. A's GET says that the lock
// is A's; A's lease runs out; B locks; A's DEL deletes B's lock; C locks: B and
// C are inside (F6). It is F5 through a narrower window.
var setnxGetDel = Strategy{
	Name:     "setnx-getdel",
	Title:    "SET NX PX, released by GET, compare, DEL",
	Family:   "redis",
	Source:   "the source articles",
	Needs:    Redis,
	Guard:    order.Naive,
	Expect:   setnx.Expect,
	Excludes: Global,
	Survives: setnx.Survives,
	Breaks:   []string{"F6"},
	New:      keyLock{set: setPX, unset: getThenDel}.New,
}

func getThenDel(ctx context.Context, l *keyLease) (bool, error) {
	ours, err := holds(ctx, l.env.Redis, l)
	if !ours {
		return false, err
	}
	return del(ctx, l)
}

// holds asks Redis whether the key is ours.
func holds(ctx context.Context, r redis.Cmdable, l *keyLease) (bool, error) {
	value, err := r.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil && value == l.value, err
}
