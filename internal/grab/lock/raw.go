package lock

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

// Raw provides the lock and unlock scripts of an article that the docs discuss. It does not wait,
// renew or clean up.
type Raw struct{ Redis redis.UniversalClient }

//go:embed raw_lock.lua
var rawLockLua string

var rawLock = redis.NewScript(rawLockLua)

// Lock sets the key to the token with an expiry of ttl. It returns false if the key exists.
func (r Raw) Lock(ctx context.Context, key, token string, ttl time.Duration) (locked bool, err error) {
	return r.run(ctx, rawLock, key, token, ttl.Milliseconds())
}

// Unlock deletes the key if it contains the token.
func (r Raw) Unlock(ctx context.Context, key, token string) (released bool, err error) {
	return r.run(ctx, setnxRelease, key, token)
}

// run calls a script by its hash, and loads it first if Redis does not know it.
func (r Raw) run(ctx context.Context, script *redis.Script, key string, args ...any) (bool, error) {
	done, err := script.EvalSha(ctx, r.Redis, []string{key}, args...).Bool()
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return done, err
	}
	if err := script.Load(ctx, r.Redis).Err(); err != nil {
		return false, err
	}
	return script.EvalSha(ctx, r.Redis, []string{key}, args...).Bool()
}
