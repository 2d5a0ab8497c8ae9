package lock

import (
	"context"
	_ "embed"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnx is a lock made of one Redis key with an expiry. An acquire sends SET key token NX PX ttl,
// and a release deletes the key if it still contains the token. A grant that takes longer than the
// TTL does not count.
//
// The lock can fail if A pauses for longer than the TTL. B then locks and writes, and A resumes and
// writes too. The lock is also lost if Redis loses its data.
var setnx = Strategy{
	Name:          "setnx",
	Title:         "SET NX PX, released by compare-and-delete",
	Family:        "redis",
	Source:        "redis.io: SET, “Patterns”; Distributed Locks with Redis, on the elapsed time",
	Needs:         Redis,
	Guard:         order.Naive,
	Claims:        catalog.ClaimsOf("setnx"),
	Excludes:      catalog.Global,
	RefusesItself: true,
	Waiter:        "retries after 2 to 100 ms",
	Breaks:        []string{"F11", "F17", "F38", "F39", "F40"},
	New:           redisKeyLock{set: setPX, unset: compareAndDelete}.New,
}

// setPX sets the key with an expiry if the key does not exist. A Cluster client may send the
// command twice, so with such a client, setPX also succeeds if the key already contains the
// client's value.
func setPX(ctx context.Context, l *redisKeyLease) (bool, error) {
	ok, err := l.env.Redis.SetNX(ctx, l.key, l.value, l.env.TTL).Result()
	if _, repeats := l.env.Redis.(*redis.ClusterClient); ok || err != nil || !repeats {
		return ok, err
	}
	return holds(ctx, l.env.Redis, l)
}

//go:embed setnx_release.lua
var setnxReleaseLua string

var setnxRelease = redis.NewScript(setnxReleaseLua)

// compareAndDelete atomically deletes the key if it contains the client's value.
func compareAndDelete(ctx context.Context, l *redisKeyLease) (bool, error) {
	return setnxRelease.Run(ctx, l.env.Redis, []string{l.key}, l.value).Bool()
}
