package lock

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

// fenceKeep is how long a fencing counter is kept after the last acquisition.
//
// A lock with fencing draws its token from a counter next to it, in the same step that takes
// the lock. A holder that reads the counter later may read its successor's token (F26). The
// counter outlives the lock, because a counter that falls back hands out tokens that the
// database has already seen (F27).
//
// The counter is not kept forever, so that memory holds only the counters of one day's
// orders. Correctness does not depend on this time. The database refuses a token that has
// fallen back, and the counter is then raised to the value in the row. The same happens
// after Redis has lost all its data.
const fenceKeep = 24 * time.Hour

// fenceKeys returns the Redis keys of the lock and of its counter. If the lock's key has a hash tag,
// both are on the same master of a Redis Cluster.
func fenceKeys(key string) []string { return []string{key, key + ":fence"} }

//go:embed fence_raise.lua
var fenceRaiseLua string

var fenceRaise = redis.NewScript(fenceRaiseLua)

// A fencedLocker can raise its fencing counters.
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
