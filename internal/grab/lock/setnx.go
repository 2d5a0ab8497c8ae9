package lock

import (
	"context"
	_ "embed"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnx is one key with an expiry: SET key token NX PX ttl, and a release that
// compares the token. A lock in one Redis without renewal can do no better. A locks
// and pauses for longer than the TTL, B locks and writes, A wakes and writes (F11,
// internal/explore/testdata/F11.txt); and the key dies with a Redis that forgets it
// (F17).
var setnx = Strategy{
	Name:   "setnx",
	Title:  "SET NX PX, released by compare-and-delete",
	Family: "redis",
	Source: "redis.io: SET, “Patterns”",
	Needs:  Redis,
	Guard:  order.Naive,
	Expect: map[Fault]Verdict{
		Slow:         Unsafe, // the lease ends before the work does
		Pause:        Unsafe,
		RedisRestart: Unsafe,
		Failover:     Unsafe,
		Partition:    Unsafe, // the holder cannot know, and goes on past its lease
		PartitionDB:  Unsafe, // its claim arrives after its lease
		NodeClock:    Unsafe,
	},
	Excludes: Global,
	Survives: []Fault{NoFault, Crash, ClientClock},
	Breaks:   []string{"F11", "F17"},
	New:      redisKeyLock{set: setPX, unset: compareAndDelete}.New,
}

// setPX sets the key if it is not there, and its expiry, in one step.
func setPX(ctx context.Context, l *redisKeyLease) (bool, error) {
	return l.env.Redis.SetNX(ctx, l.key, l.value, l.env.TTL).Result()
}

//go:embed setnx_release.lua
var setnxReleaseLua string

var setnxRelease = redis.NewScript(setnxReleaseLua)

// compareAndDelete deletes the key if it is ours, in one step.
func compareAndDelete(ctx context.Context, l *redisKeyLease) (bool, error) {
	return setnxRelease.Run(ctx, l.env.Redis, []string{l.key}, l.value).Bool()
}
