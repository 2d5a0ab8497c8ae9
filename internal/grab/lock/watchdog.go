package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// watchdog is Redisson's RLock: a lease that is renewed every third of its TTL
// for as long as it is held, and waiters that are notified instead of polling.
//
// It cures work that lasts too long, and not a process that is paused: A locks and
// pauses between its last look at the lease and its write, B locks and writes, A
// writes (F13; internal/explore/testdata/F11.txt is the same without renewal). If the
// work hangs while the process lives, the lease is renewed for ever (F15). The key
// dies with a Redis that forgets it, and until the next renewal A does not know (F17).
var watchdog = Strategy{
	Name:     "watchdog",
	Title:    "a renewed lease, waiters are told",
	Family:   "redis",
	Source:   "Redisson: RLock",
	Needs:    Redis,
	Guard:    order.Naive,
	Claims:   catalog.ClaimsOf("watchdog"),
	Excludes: catalog.Global,
	Waiter:   "is told, and looks at the end of the lease",
	Breaks:   []string{"F11", "F13", "F15", "F17", "F38", "F39", "F41"},
	Promises: Promises{WakeUp: 1}, // who missed a message asks again when the lease would have ended
	New:      func(env Env) (Locker, error) { return newWatchdog(env, oneKey) },
}

type watchdogLocker struct {
	env      Env
	keys     func(key string) []string // the lock, and its counter if it has one
	notifier *notifier
	renewers renewers
}

func newWatchdog(env Env, keys func(string) []string) (*watchdogLocker, error) {
	if err := needRedis(env); err != nil {
		return nil, err
	}
	return &watchdogLocker{env: env, keys: keys, notifier: newNotifier(env.Redis)}, nil
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

// lease is one that is not taken yet. Every acquire is an owner of its own.
func (l *watchdogLocker) lease(key string) *watchdogLease {
	token := l.env.Token()
	return &watchdogLease{locker: l, entry: entry{l.env.Redis, l.env.TTL, l.keys(key), token, token}}
}

// watchdogLease is renewed once it has been taken.
type watchdogLease struct {
	*renewer
	entry
	locker *watchdogLocker
	fence  uint64
}

// await tries again whenever the lock may be free, until it is ours or the
// wait is over. left is for how long another client has it, unless it is renewed.
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
		waiter.looked()
		if left == 0 {
			return nil
		}
	}
}

// try takes the lock, or returns for how long another client has it. An entry that
// may be there for no client is taken out again: because the reply got lost,
// because the client has gone, or because the reply took longer than the lease
// lives (F12). Only what is known to be ours is renewed (F14); should the request
// arrive after its clean-up, the lock stays for one TTL.
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

// undo takes a new token for what is tried next, which a late clean-up must not
// hit.
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
