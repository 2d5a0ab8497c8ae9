package lock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// untilRenewal says how long to wait before a lease of length ttl that lives
// until end is renewed: until a third of it has gone, so that a renewal may
// fail without harm. One that was not confirmed is made again soon.
func untilRenewal(now, end time.Time, ttl time.Duration, confirmed bool) time.Duration {
	if !confirmed {
		return ttl / 10
	}
	return max(end.Add(-ttl*2/3).Sub(now), 0)
}

// extend renews a lease once. It returns when the lease ends now, counted from
// before the request was sent; ErrLost, if the lock was found not to be ours
// any more; any other error leaves that open.
type extend func(context.Context) (end time.Time, err error)

// keeper keeps one lease alive until it is stopped, and knows when it is lost:
// found gone by a renewal, or not confirmed until its end.
type keeper struct {
	ctx    context.Context // the acquire's values, without its end
	cancel context.CancelFunc
	lost   chan struct{}

	mu     sync.Mutex
	end    time.Time   // on the monotonic clock
	expiry *time.Timer // strikes at end, even while a renewal hangs
	over   bool        // stopped or lost
}

// Lost closes when the loss is known. It looks at the clock itself: when a
// process that was stopped goes on, its holder may run before any timer.
func (k *keeper) Lost() <-chan struct{} {
	k.expire()
	return k.lost
}

func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over && !time.Now().Before(k.end) {
		k.lose()
	}
}

// lose is called with mu held.
func (k *keeper) lose() {
	k.finish()
	close(k.lost)
}

// gone says whether the lease is known to be lost.
func (k *keeper) gone() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.lost:
		return true
	default:
		return false
	}
}

// finish is called with mu held.
func (k *keeper) finish() {
	k.over = true
	k.expiry.Stop()
	k.cancel()
}

// stop ends the renewals. A lease that is not lost by now never will be.
func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.finish()
	}
}

func (k *keeper) run(ttl time.Duration, renew extend) {
	end := k.end
	timer := time.NewTimer(untilRenewal(time.Now(), end, ttl, true))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.ctx.Done():
			return
		}
		ctx, cancel := context.WithDeadline(k.ctx, end)
		renewed, err := renew(ctx)
		cancel()
		if err == nil {
			end = renewed
		}
		if !k.learn(end, errors.Is(err, ErrLost)) {
			return
		}
		timer.Reset(untilRenewal(time.Now(), end, ttl, err == nil))
	}
}

// learn takes in what a renewal came to. It is false once there is nothing to
// keep: a confirmation that comes after the end does not bring a lease back.
func (k *keeper) learn(end time.Time, gone bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return false
	}
	if gone || !time.Now().Before(k.end) {
		k.lose()
		return false
	}
	k.end = end
	k.expiry.Reset(time.Until(end))
	return true
}

// keepers are the leases that one locker keeps.
type keepers struct {
	running sync.WaitGroup
	mu      sync.Mutex
	live    map[*keeper]struct{}
}

// keep renews a lease that now lives until end. What it does in the background
// keeps the values of ctx, but not its end.
func (ks *keepers) keep(ctx context.Context, end time.Time, ttl time.Duration, renew extend) *keeper {
	k := &keeper{end: end, lost: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.mu.Lock() // the timer must not strike before it is known
	k.expiry = time.AfterFunc(time.Until(end), k.expire)
	k.mu.Unlock()

	ks.mu.Lock()
	if ks.live == nil {
		ks.live = map[*keeper]struct{}{}
	}
	ks.live[k] = struct{}{}
	ks.mu.Unlock()
	ks.running.Go(func() {
		k.run(ttl, renew)
		ks.mu.Lock()
		delete(ks.live, k)
		ks.mu.Unlock()
	})
	return k
}

// lose gives up every lease: what they all hung on is gone.
func (ks *keepers) lose() {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for k := range ks.live {
		k.mu.Lock()
		if !k.over {
			k.lose()
		}
		k.mu.Unlock()
	}
}

// any says whether some lease is still kept.
func (ks *keepers) any() bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for k := range ks.live {
		k.mu.Lock()
		over := k.over
		k.mu.Unlock()
		if !over {
			return true
		}
	}
	return false
}

// close stops all renewals and waits for those under way.
func (ks *keepers) close() {
	ks.mu.Lock()
	for k := range ks.live {
		k.stop()
	}
	ks.mu.Unlock()
	ks.running.Wait()
}
