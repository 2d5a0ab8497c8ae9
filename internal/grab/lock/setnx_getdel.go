package lock

import (
	"context"
	"errors"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
)

// setnxGetDel looks before it deletes, in two steps. A's GET says that the lock
// is A's; A's lease runs out; B locks; A's DEL deletes B's lock; C locks: B and
// C are inside (F6, internal/explore/testdata/F6.txt). It is F5 through a narrower window.
// The article does not ask how long the grant was under way either (F12).
var setnxGetDel = variant(setnx, Strategy{
	Name:   "setnx-getdel",
	Title:  "SET NX PX, released by GET, compare, DEL",
	Source: "the source articles",
	Claims: catalog.ClaimsOf("del"),
	Breaks: []string{"F6", "F12"},
	New:    redisKeyLock{set: setPX, unset: getThenDel, believesLate: true}.New,
})

func getThenDel(ctx context.Context, l *redisKeyLease) (bool, error) {
	ours, err := holds(ctx, l.env.Redis, l)
	if !ours {
		return false, err
	}
	return del(ctx, l)
}

// holds asks Redis whether the key is ours.
func holds(ctx context.Context, r redis.Cmdable, l *redisKeyLease) (bool, error) {
	value, err := get(ctx, r, l.key)
	return err == nil && value == l.value, err
}

// get is "" for a key that is not there.
func get(ctx context.Context, r redis.Cmdable, key string) (string, error) {
	value, err := r.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return value, err
}
