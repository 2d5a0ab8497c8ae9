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

type ownerKey struct{}

// WithOwner makes the acquires of ctx those of one owner, who may hold a
// re-entrant lock several times at once. Without it each acquire is an owner
// of its own.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

func ownerOf(ctx context.Context, token string) string {
	if owner, ok := ctx.Value(ownerKey{}).(string); ok {
		return owner
	}
	return token
}

// hold is one entry in the hash of a re-entrant lock in one Redis.
type hold struct {
	redis        redis.UniversalClient
	ttl          time.Duration
	keys         []string
	owner, token string
}

func (h hold) channel() string { return h.keys[0] + ":free" }

// take enters the hold, or returns for how long somebody else has the lock.
func (h hold) take(ctx context.Context) (left time.Duration, fence uint64, err error) {
	n, err := watchdogAcquire.Run(ctx, h.redis, h.keys, h.owner, h.token, h.ttl.Milliseconds(), fenceKeep.Milliseconds()).Int64()
	if n > 0 {
		// Redis lets a key go in the millisecond after its last.
		return time.Duration(n+1) * time.Millisecond, 0, err
	}
	return 0, uint64(-n), err
}

// enter is take, for somebody who asks no more than whether.
func (h hold) enter(ctx context.Context) error {
	left, _, err := h.take(ctx)
	if err == nil && left > 0 {
		return ErrBusy
	}
	return err
}

func (h hold) renew(ctx context.Context) (time.Time, error) {
	end := time.Now().Add(h.ttl)
	renewed, err := watchdogRenew.Run(ctx, h.redis, h.keys[:1], h.token, h.ttl.Milliseconds()).Bool()
	if err == nil && !renewed {
		err = ErrLost
	}
	return end, err
}

func (h hold) takeOut(ctx context.Context) error {
	released, err := watchdogRelease.Run(ctx, h.redis, h.keys[:1], h.token, h.channel()).Bool()
	if err == nil && !released {
		return ErrLost
	}
	return err
}

// takeOutLater is takeOut for somebody who has gone.
func (h hold) takeOutLater(ctx context.Context) {
	ctx, cancel := undoing(ctx)
	defer cancel()
	_ = h.takeOut(ctx)
}
