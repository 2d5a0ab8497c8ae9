package lock

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

// fenceKeep is how long a fencing counter is kept after the last acquisition.
//
// A lock with fencing takes its token from a counter, in the same atomic step that takes the lock.
// If a holder read the counter later, it might read its successor's token (F26). The counter
// outlives the lock. If the counter started again, it would produce tokens that the database has
// already seen (F27).
//
// The counter is not kept forever, so that memory holds only the counters of one day's orders.
// Correctness does not depend on this duration. If a counter has started again, the database
// refuses its tokens. The counter is then raised to the value in the row. The same happens after
// Redis has lost all its data.
const fenceKeep = 24 * time.Hour

// fenceKeys returns the Redis keys of the lock and of its counter. If the lock's key has a hash
// tag, a Redis Cluster stores both keys on the same master.
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
