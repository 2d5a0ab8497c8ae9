package lock

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

// A lock that fences draws its token from a counter beside it, in the step that
// takes it: a holder that reads the counter later may read its successor's (F26). The
// counter outlives the lock, for one that fell back would hand out tokens that
// the database has seen (F27).
//
// It is kept for fenceKeep after the last acquisition, and not for ever: the
// memory is then that of the orders of a day. Nothing depends on it: a token
// that has fallen back is refused by the database, and the counter is raised to
// what the row has seen, as after a Redis that forgot everything.
const fenceKeep = 24 * time.Hour

// fenceKeys are the lock and its counter, which a hash tag in key keeps in one
// slot of a Cluster.
func fenceKeys(key string) []string { return []string{key, key + ":fence"} }

//go:embed fence_raise.lua
var fenceRaiseLua string

var fenceRaise = redis.NewScript(fenceRaiseLua)

// fencedLocker is a Locker whose counters can be raised.
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
