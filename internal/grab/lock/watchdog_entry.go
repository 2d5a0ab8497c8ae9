package lock

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed watchdog_acquire.lua
	watchdogAcquireLua string
	//go:embed watchdog_renew.lua
	watchdogRenewLua string
	//go:embed watchdog_release.lua
	watchdogReleaseLua string

	watchdogAcquire = redis.NewScript(watchdogAcquireLua)
	watchdogRenew   = redis.NewScript(watchdogRenewLua)
	watchdogRelease = redis.NewScript(watchdogReleaseLua)
)

// An entry is one holder of a reentrant lock. Redis stores it as a hash field. A lock without
// entries is free.
type entry struct {
	redis        redis.UniversalClient
	ttl          time.Duration
	keys         []string // the lock's key, followed by its counter's key if it has a counter
	owner, token string
}

// channel returns the Redis channel on which a release is announced.
func (e entry) channel() string { return e.keys[0] + ":free" }

// enter adds the entry to the lock. If another owner has the lock, it returns how long that owner's
// lease still lasts.
func (e entry) enter(ctx context.Context) (left time.Duration, fence uint64, err error) {
	n, err := watchdogAcquire.Run(ctx, e.redis, e.keys, e.owner, e.token, e.ttl.Milliseconds(), fenceKeep.Milliseconds()).Int64()
	if n > 0 {
		// Wait one millisecond longer than Redis says, because Redis deletes a key one millisecond
		// after its expiry.
		return time.Duration(n+1) * time.Millisecond, 0, err
	}
	return 0, uint64(-n), err
}

func (e entry) renew(ctx context.Context) (time.Time, error) {
	end := time.Now().Add(e.ttl)
	return end, orLost(watchdogRenew.Run(ctx, e.redis, e.keys[:1], e.token, e.ttl.Milliseconds()).Bool())
}

func (e entry) leave(ctx context.Context) error {
	return orLost(watchdogRelease.Run(ctx, e.redis, e.keys[:1], e.token, e.channel()).Bool())
}
