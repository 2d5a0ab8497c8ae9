package lock

import (
	"context"
	"errors"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
)

// setnxGetDel releases the lock with two separate commands: one to compare the value, and one to
// delete the key. If A's lease expires between the two, A deletes B's lock, and C gets the lock
// too.
var setnxGetDel = variant(setnx, Strategy{
	Name:   "setnx-getdel",
	Title:  "SET NX PX, released by GET, compare, DEL",
	Source: "the source articles",
	Claims: catalog.ClaimsOf("del"),
	Breaks: []string{"F6", "F12"},
	New:    redisKeyLock{set: setPX, unset: getThenDel, acceptsLate: true}.New,
})

func getThenDel(ctx context.Context, l *redisKeyLease) (bool, error) {
	ours, err := holds(ctx, l.env.Redis, l)
	if !ours {
		return false, err
	}
	return del(ctx, l)
}

// holds reports whether the key contains the value that this client has set.
func holds(ctx context.Context, r redis.Cmdable, l *redisKeyLease) (bool, error) {
	value, err := get(ctx, r, l.key)
	return err == nil && value == l.value, err
}

// get returns the value of the key. It returns "" if the key does not exist.
func get(ctx context.Context, r redis.Cmdable, key string) (string, error) {
	return emptyIfNil(r.Get(ctx, key).Result())
}

// emptyIfNil returns the reply of a GET or a GETSET. If the key did not exist, it returns "".
func emptyIfNil(value string, err error) (string, error) {
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return value, err
}
