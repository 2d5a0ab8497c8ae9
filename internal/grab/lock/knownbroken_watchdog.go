package lock

import (
	"context"
	"time"
)

// watchdogStrayRenewal starts renewals before it knows that it has the lock. Suppose that the
// acquire is cancelled and its request arrives late. The lock is then renewed forever, although no
// client holds it (F14, internal/explore/testdata/F14.txt).
var watchdogStrayRenewal = variant(watchdog, Strategy{
	Name:   "watchdog-stray-renewal",
	Title:  "watchdog, which renews a lock whose acquire was cancelled",
	Breaks: []string{"F14"},
	New: func(env Env) (Locker, error) {
		l, err := newWatchdog(env, oneKey)
		return strayRenewalLocker{l}, err
	},
})

type strayRenewalLocker struct{ *watchdogLocker }

// Acquire polls the lock until it gets it.
func (l strayRenewalLocker) Acquire(ctx context.Context, key string) (lease Lease, err error) {
	err = poll(ctx, l.env.wait(ctx), pollBackoff, l.env.Rand, func() (ok bool, err error) {
		lease, ok, err = l.try(ctx, key)
		return ok, err
	})
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l strayRenewalLocker) try(ctx context.Context, key string) (*watchdogLease, bool, error) {
	lease := l.lease(key)
	lease.renewer = l.renewers.start(ctx, time.Now().Add(l.env.TTL), l.env.TTL, lease.renew)
	left, _, err := lease.enter(ctx)
	switch {
	case err != nil:
		cleanUp(ctx, lease.leave) // the renewals continue, which is the mistake
	case left > 0:
		lease.stop()
	}
	return lease, err == nil && left == 0, err
}

// watchdogLateSubscribe does not check the lock again after it has subscribed to release messages.
// If it misses such a message, it waits as long as a whole lease (F16,
// internal/explore/testdata/F16.txt).
var watchdogLateSubscribe = variant(watchdog, Strategy{
	Name:   "watchdog-late-subscribe",
	Title:  "watchdog, which does not ask again after it has subscribed",
	Breaks: []string{"F16"},
	New: func(env Env) (Locker, error) {
		l, err := newWatchdog(env, oneKey)
		return lateSubscribeLocker{l}, err
	},
})

type lateSubscribeLocker struct{ *watchdogLocker }

func (l lateSubscribeLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease := l.lease(key)
	giveUp := time.Now().Add(l.env.wait(ctx))
	for {
		left, err := lease.try(ctx)
		if err != nil {
			return nil, err
		}
		if left == 0 {
			return lease, nil
		}
		remaining := time.Until(giveUp)
		if remaining <= 0 {
			return nil, ErrBusy
		}
		if err := l.listen(ctx, lease.channel(), min(left, remaining)); err != nil {
			return nil, err
		}
	}
}

// listen waits for a message for at most the given time. It ignores errors, because the next check
// of the lock reports them.
func (l lateSubscribeLocker) listen(ctx context.Context, channel string, most time.Duration) error {
	listening, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	messages := l.env.Redis.Subscribe(listening, channel)
	defer messages.Close()
	_, _ = messages.ReceiveMessage(listening)
	return ctx.Err()
}
