package lock

import (
	"context"
	_ "embed"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// watchdog follows Redisson's RLock. The holder renews its lease every third of the TTL, and a
// release notifies the waiters. Long work therefore does not lose the lock.
//
// The lock can fail if A pauses between its last check of the lease and its write. B then locks and
// writes, and A writes too. If the work hangs, the lease is renewed forever. If Redis loses its
// data, A learns of the loss only at its next renewal.
var watchdog = Strategy{
	Name:     "watchdog",
	Title:    "a lease renewed in the background; each release notifies the waiters",
	Family:   "redis",
	Source:   "Redisson: RLock",
	Needs:    Redis,
	Guard:    order.Naive,
	Claims:   catalog.ClaimsOf("watchdog"),
	Excludes: catalog.Global,
	Waiter:   "is notified, or retries when the lease ends",
	Breaks:   []string{"F11", "F13", "F15", "F17", "F38", "F39", "F41"},
	Promises: Promises{WakeUp: 1, RenewalRetried: 0.5}, // a full TTL, because a waiter that misses a message waits until the lease ends
	New:      func(env Env) (Locker, error) { return newWatchdog(env, oneKey), nil },
}

// watchdogFenced is watchdog with a fencing token, which the database stores at each read. If a
// holder loses its lease, the database refuses its write. If the work hangs, the lease is renewed
// forever.
var watchdogFenced = variant(watchdog, Strategy{
	Name:   "watchdog-fenced",
	Title:  "watchdog with a fencing token, stored before the read",
	Source: "Redisson: RFencedLock; Kleppmann 2016",
	Guard:  order.Fenced,
	Fences: true,
	Claims: catalog.ClaimsOf("watchdog").Fenced(),
	Breaks: []string{"F15", "F17", "F27"},
	New: func(env Env) (Locker, error) {
		return fencedLocker{newWatchdog(env, fenceKeys), env.Redis}, nil
	},
})

type watchdogLocker struct {
	env      Env
	keys     func(key string) []string // the lock's key, followed by its counter's key if it has a counter
	notifier *notifier
	renewers renewers
}

func newWatchdog(env Env, keys func(string) []string) *watchdogLocker {
	return &watchdogLocker{env: env, keys: keys, notifier: newNotifier(env.Redis)}
}

func oneKey(key string) []string { return []string{key} }

func (l *watchdogLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lease := l.lease(key)
	giveUp := time.Now().Add(l.env.wait(ctx))
	left, err := lease.try(ctx)
	if err == nil && left > 0 {
		err = lease.await(ctx, left, giveUp)
	}
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *watchdogLocker) Close() error {
	l.notifier.close()
	l.renewers.close()
	return nil
}

// lease creates a lease with a new token. The client does not have the lock yet.
func (l *watchdogLocker) lease(key string) *watchdogLease {
	token := l.env.Token()
	return &watchdogLease{locker: l, entry: entry{l.env.Redis, l.env.TTL, l.keys(key), token, token}}
}

// A watchdogLease is a lease that is renewed in the background while the client holds it.
type watchdogLease struct {
	*renewer
	entry
	locker *watchdogLocker
	fence  uint64
}

// await tries to take the lock whenever it may be free, until giveUp. left is the time until the
// current holder's lease expires, unless the holder renews it.
func (l *watchdogLease) await(ctx context.Context, left time.Duration, giveUp time.Time) error {
	if !time.Now().Before(giveUp) {
		return ErrBusy
	}
	waiter := l.locker.notifier.join(l.channel())
	defer waiter.leave()
	for {
		remaining := time.Until(giveUp)
		if remaining <= 0 {
			return ErrBusy
		}
		if err := waiter.wait(ctx, min(left, remaining)); err != nil {
			return err
		}
		var err error
		if left, err = l.try(ctx); err != nil {
			return err
		}
		waiter.noteChecked()
		if left == 0 {
			return nil
		}
	}
}

// try makes one attempt to take the lock. If another client has the lock, it returns how long that
// client's lease will last.
//
// If the client may have the lock but must not use it, try releases the lock. This happens after an
// error, after ctx has ended, or if the reply took longer than the TTL. After such a late reply,
// try returns a short pause and no error, because the client may try again. A request that reaches
// Redis after this cleanup leaves the lock behind for one TTL.
func (l *watchdogLease) try(ctx context.Context) (left time.Duration, err error) {
	end := time.Now().Add(l.ttl)
	left, l.fence, err = l.enter(ctx)
	if err == nil && left > 0 {
		return left, nil
	}
	if err == nil && ctx.Err() == nil && time.Now().Before(end) {
		l.renewer = l.locker.renewers.start(ctx, end, l.ttl, l.renew)
		return 0, nil
	}
	l.undo(ctx)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return time.Millisecond, err
}

// undo removes the client's entry from the lock. The next attempt uses a new token, so that a
// delayed removal cannot affect it.
func (l *watchdogLease) undo(ctx context.Context) {
	cleanUp(ctx, l.leave)
	l.entry = l.locker.lease(l.keys[0]).entry
}

func (l *watchdogLease) Token() string { return l.token }
func (l *watchdogLease) Fence() uint64 { return l.fence }

func (l *watchdogLease) Release(ctx context.Context) error {
	l.stop()
	return l.leave(ctx)
}

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
