package lock

import (
	"context"
	"errors"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
)

// setnxGetDel compares and deletes in two steps. A's GET finds A's token, then A's lease
// expires and B locks. A's DEL deletes B's lock, then C locks, so B and C are both inside
// (F6, internal/explore/testdata/F6.txt). This is F5 with a narrower window. The article
// also ignores the age of a grant (F12).
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

// holds reports whether the key in Redis still contains our value.
func holds(ctx context.Context, r redis.Cmdable, l *redisKeyLease) (bool, error) {
	value, err := get(ctx, r, l.key)
	return err == nil && value == l.value, err
}

// get returns the value of the key, or "" if the key does not exist.
func get(ctx context.Context, r redis.Cmdable, key string) (string, error) {
	value, err := r.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return value, err
}
