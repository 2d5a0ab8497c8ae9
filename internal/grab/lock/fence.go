package lock

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

// fenceKeep is how long Redis keeps a fencing token counter after the last acquire. The counter
// must outlive the lock, because tokens must not restart while the lock is in use.
//
// To limit memory, Redis does not keep the counter forever. If a counter does restart, the database
// refuses its tokens, and the service raises the counter to the value in the order's row.
const fenceKeep = 24 * time.Hour

// fenceKeys returns the Redis keys of the lock and its fencing counter. If the lock's key has a
// hash tag, a Redis Cluster stores both keys on the same node.
func fenceKeys(key string) []string { return []string{key, key + ":fence"} }

//go:embed fence_raise.lua
var fenceRaiseLua string

var fenceRaise = redis.NewScript(fenceRaiseLua)

// A fencedLocker is a Redis Locker whose fencing token counters can be raised or deleted.
type fencedLocker struct {
	Locker
	redis redis.UniversalClient
}

func (l fencedLocker) RaiseFence(ctx context.Context, key string, fence uint64) error {
	return fenceRaise.Run(ctx, l.redis, fenceKeys(key)[1:], fence, fenceKeep.Milliseconds()).Err()
}

func (l fencedLocker) Forget(ctx context.Context, key string) error {
	return l.redis.Del(ctx, fenceKeys(key)[1:]...).Err()
}
