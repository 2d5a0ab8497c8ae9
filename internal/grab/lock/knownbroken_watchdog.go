package lock

import (
	"context"
	"time"
)

// watchdogStrayRenewal starts to renew before it knows that there is something to
// renew. The acquire is cancelled; its clean-up overtakes it and finds nothing; the
// request arrives; the lock of no client is renewed for ever (F14,
// internal/explore/testdata/F14.txt).
var watchdogStrayRenewal = variant(watchdog, Strategy{
	Name:   "watchdog-stray-renewal",
	Title:  "watchdog, renewing what was cancelled",
	Breaks: []string{"F14"},
	New: func(env Env) (Locker, error) {
		l, err := newWatchdog(env, oneKey)
		return strayRenewalLocker{l}, err
	},
})

type strayRenewalLocker struct{ *watchdogLocker }

// Acquire polls.
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
		cleanUp(ctx, lease.leave) // and the renewal goes on
	case left > 0:
		lease.stop()
	}
	return lease, err == nil && left == 0, err
}

// watchdogLateSubscribe waits for a message without having looked again once it
// listens. B finds the lock taken; A releases it and says so; B subscribes, and
// waits until A's lease would have run out (F16, internal/explore/testdata/F16.txt).
var watchdogLateSubscribe = variant(watchdog, Strategy{
	Name:   "watchdog-late-subscribe",
	Title:  "watchdog, not looking again once it listens",
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

// listen waits for a message, for at most that long. If it fails, so will what
// looks at the lock next.
func (l lateSubscribeLocker) listen(ctx context.Context, channel string, most time.Duration) error {
	listening, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	messages := l.env.Redis.Subscribe(listening, channel)
	defer messages.Close()
	_, _ = messages.ReceiveMessage(listening)
	return ctx.Err()
}
