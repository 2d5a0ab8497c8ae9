package lock

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

// fenceKeep is how long Redis keeps the counter of fencing tokens after the last acquisition of a
// lock. The counter must outlive the lock, because tokens must not start again while the lock is in
// use.
//
// Redis does not keep the counter forever, to limit memory. If a counter starts again, the database
// refuses its tokens. The service then raises the counter to the value in the order's row.
const fenceKeep = 24 * time.Hour

// fenceKeys returns the Redis keys of the lock and of its fencing counter. If the lock's key has a
// hash tag, both keys are on the same node of a Redis Cluster.
func fenceKeys(key string) []string { return []string{key, key + ":fence"} }

//go:embed fence_raise.lua
var fenceRaiseLua string

var fenceRaise = redis.NewScript(fenceRaiseLua)

// A fencedLocker is a Locker in Redis whose counters of fencing tokens can be raised or deleted.
type fencedLocker struct {
	Locker
	redis redis.UniversalClient
}

func (l fencedLocker) Raise(ctx context.Context, key string, fence uint64) error {
	return fenceRaise.Run(ctx, l.redis, fenceKeys(key)[1:], fence, fenceKeep.Milliseconds()).Err()
}

func (l fencedLocker) Forget(ctx context.Context, key string) error {
	return l.redis.Del(ctx, fenceKeys(key)[1:]...).Err()
}
