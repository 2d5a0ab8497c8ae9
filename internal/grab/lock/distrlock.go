package lock

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed raw_lock.lua
var rawLockLua string

var rawLock = redis.NewScript(rawLockLua)

// RawLock sets the key to the token for the duration ttl. It returns false if the key exists. The
// handler of POST /distrLock calls it. It runs a script from one of the source articles, and does not
// wait for the lock, renew it, or clean up after an error.
func RawLock(ctx context.Context, r redis.UniversalClient, key, token string, ttl time.Duration) (locked bool, err error) {
	return runByHash(ctx, r, rawLock, key, token, ttl.Milliseconds()).Bool()
}

// RawUnlock deletes the key if it contains the token, and returns the number of deleted keys. The
// handler of POST /distrUnlock calls it.
func RawUnlock(ctx context.Context, r redis.UniversalClient, key, token string) (int, error) {
	return runByHash(ctx, r, setnxRelease, key, token).Int()
}

// runByHash runs a script by its hash. If Redis does not know the script, it loads it first.
func runByHash(ctx context.Context, r redis.UniversalClient, script *redis.Script, key string, args ...any) *redis.Cmd {
	done := script.EvalSha(ctx, r, []string{key}, args...)
	if !redis.HasErrorPrefix(done.Err(), "NOSCRIPT") {
		return done
	}
	_ = script.Load(ctx, r).Err() // if loading fails, the next call returns an error
	return script.EvalSha(ctx, r, []string{key}, args...)
}
