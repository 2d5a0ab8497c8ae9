package lock

import (
	"context"
	"time"
)

// watchdogStrayRenewal arms the renewal before it knows that there is something
// to renew. The acquire is cancelled; its clean-up overtakes it and finds nothing;
// the request arrives; the lock is renewed for ever, for nobody (F14).
var watchdogStrayRenewal = knownBroken(watchdog, "watchdog-stray-renewal", "watchdog, renewing what was cancelled", "F14",
	func(env Env) (Locker, error) {
		l, err := newWatchdog(env, oneKey)
		return strayLocker{l}, err
	})

type strayLocker struct{ *watchdogLocker }

// Acquire tries once.
func (l strayLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := l.lease(ctx, key)
	lease.keeper = l.keepers.keep(ctx, time.Now().Add(l.env.TTL), l.env.TTL, lease.renew)
	left, _, err := lease.take(ctx)
	if err != nil {
		lease.takeOutLater(ctx) // and the renewal goes on
		return nil, err
	}
	if left > 0 {
		lease.stop()
		return nil, ErrBusy
	}
	return lease, nil
}

// watchdogLateSubscribe waits for a message without having looked again once it
// listens. B finds the lock taken; A releases it and says so; B subscribes, and
// waits until A's lease would have run out (F16).
var watchdogLateSubscribe = knownBroken(watchdog, "watchdog-late-subscribe", "watchdog, not looking again once it listens", "F16",
	func(env Env) (Locker, error) {
		l, err := newWatchdog(env, oneKey)
		return lateLocker{l}, err
	})

type lateLocker struct{ *watchdogLocker }

func (l lateLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := l.lease(ctx, key)
	giveUp := time.Now().Add(l.env.wait(ctx))
	for {
		left, err := lease.try(ctx)
		if err != nil {
			return nil, err
		}
		if left == 0 {
			return lease, nil
		}
		patience := time.Until(giveUp)
		if patience <= 0 {
			return nil, ErrBusy
		}
		if err := l.listen(ctx, lease.channel(), min(left, patience)); err != nil {
			return nil, err
		}
	}
}

// listen waits for a message, for at most that long. If it fails, so will what
// looks at the lock next.
func (l lateLocker) listen(ctx context.Context, channel string, most time.Duration) error {
	listening, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	messages := l.env.Redis.Subscribe(listening, channel)
	defer messages.Close()
	_, _ = messages.ReceiveMessage(listening)
	return ctx.Err()
}
