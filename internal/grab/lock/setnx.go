package lock

import (
	"context"
	_ "embed"
	"errors"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnx is one key with an expiry: SET key token NX PX ttl, and a release that
// compares the token; a grant that took longer than the TTL to arrive is none. A lock
// in one Redis without renewal can do no better. A locks and pauses for longer than the
// TTL, B locks and writes, A wakes and writes (F11, internal/explore/testdata/F11.txt);
// and the key dies with a Redis that forgets it (F17).
var setnx = Strategy{
	Name:     "setnx",
	Title:    "SET NX PX, released by compare-and-delete",
	Family:   "redis",
	Source:   "redis.io: SET, “Patterns”; Distributed Locks with Redis, on the time that has passed",
	Needs:    Redis,
	Guard:    order.Naive,
	Claims:   catalog.ClaimsOf("setnx"),
	Excludes: catalog.Global,
	Waiter:   "asks again, after 2 to 100 ms",
	Breaks:   []string{"F11", "F17", "F38", "F39", "F40"},
	New:      redisKeyLock{set: setPX, unset: compareAndDelete}.New,
}

// setPX sets the key if it is not there, and its expiry, in one step. The client of a Cluster sends a
// command again by itself, after a redirection or a lost reply, and the second may find the key of the first.
func setPX(ctx context.Context, l *redisKeyLease) (bool, error) {
	ok, err := l.env.Redis.SetNX(ctx, l.key, l.value, l.env.TTL).Result()
	if _, repeats := l.env.Redis.(*redis.ClusterClient); ok || err != nil || !repeats {
		return ok, err
	}
	held, err := l.env.Redis.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return held == l.value, err
}

//go:embed setnx_release.lua
var setnxReleaseLua string

var setnxRelease = redis.NewScript(setnxReleaseLua)

// compareAndDelete deletes the key if it is ours, in one step.
func compareAndDelete(ctx context.Context, l *redisKeyLease) (bool, error) {
	return setnxRelease.Run(ctx, l.env.Redis, []string{l.key}, l.value).Bool()
}
