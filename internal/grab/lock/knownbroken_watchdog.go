package lock

import (
	"context"
	"time"
)

// watchdogStrayRenewal starts renewals before the server has granted the lock. If the client
// cancels the acquire and its request arrives late, the lock is renewed forever, although no client
// holds it.
var watchdogStrayRenewal = variant(watchdog, Strategy{
	Name:   "watchdog-stray-renewal",
	Title:  "watchdog that keeps renewing after a cancelled acquire",
	Breaks: []string{"F14"},
	New:    func(env Env) (Locker, error) { return strayRenewalLocker{newWatchdog(env, oneKey)}, nil },
})

type strayRenewalLocker struct{ *watchdogLocker }

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

// try tries once to acquire the lock. The deliberate mistake: it starts the renewals first, and
// lets them continue after an error.
func (l strayRenewalLocker) try(ctx context.Context, key string) (*watchdogLease, bool, error) {
	lease := l.lease(key)
	lease.renewer = l.renewers.start(ctx, time.Now().Add(l.env.TTL), l.env.TTL, lease.renew)
	left, _, err := lease.enter(ctx)
	switch {
	case err != nil:
		cleanUp(ctx, lease.leave) // the deliberate mistake: the renewals continue
	case left > 0:
		lease.stop()
	}
	return lease, err == nil && left == 0, err
}

// watchdogLateSubscribe does not recheck the lock after it has subscribed to release messages. If
// it misses a message, it waits for the rest of the lease although the lock is free.
var watchdogLateSubscribe = variant(watchdog, Strategy{
	Name:   "watchdog-late-subscribe",
	Title:  "watchdog that does not recheck the lock after subscribing",
	Breaks: []string{"F16"},
	New:    func(env Env) (Locker, error) { return lateSubscribeLocker{newWatchdog(env, oneKey)}, nil },
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

// listen waits for a release message, but at most for the given time. It ignores Redis errors,
// because the next attempt to lock reports them.
func (l lateSubscribeLocker) listen(ctx context.Context, channel string, most time.Duration) error {
	listening, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	messages := l.env.Redis.Subscribe(listening, channel)
	defer messages.Close()
	_, _ = messages.ReceiveMessage(listening)
	return ctx.Err()
}
