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

// renewal renews a lease once. It returns when the lease ends now, counted from
// before the request was sent; ErrLost, if the lock was found not to be ours
// any more; any other error leaves that open.
type renewal func(context.Context) (end time.Time, err error)

// renewer renews one lease until it is stopped, and knows when the lease is lost:
// found gone by a renewal, or not confirmed until its end.
type renewer struct {
	ctx    context.Context // the acquire's values, without its end
	cancel context.CancelFunc
	lost   chan struct{}

	mu     sync.Mutex
	end    time.Time   // on the monotonic clock
	expiry *time.Timer // fires at end, even while a renewal hangs
	over   bool        // stopped or lost
}

// Lost closes when the loss is known. It looks at the clock itself: when a
// process that was stopped goes on, its holder may run before any timer.
func (r *renewer) Lost() <-chan struct{} {
	r.expire()
	return r.lost
}

// Until is Bounded's.
func (r *renewer) Until() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

func (r *renewer) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !time.Now().Before(r.end) {
		r.loseLocked()
	}
}

func (r *renewer) loseLocked() {
	if r.stopLocked() {
		close(r.lost)
	}
}

// stopLocked is false if the renewals had ended before.
func (r *renewer) stopLocked() bool {
	if r.over {
		return false
	}
	r.over = true
	r.expiry.Stop()
	r.cancel()
	return true
}

// stop ends the renewals. A lease that is not lost by now never will be.
func (r *renewer) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopLocked()
}

// isLost says whether the lease is known to be lost.
func (r *renewer) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.lost:
		return true
	default:
		return false
	}
}

func (r *renewer) run(ttl time.Duration, renew renewal) {
	end := r.end
	told, _ := r.ctx.Value(renewalKey{}).(func(time.Time))
	timer := time.NewTimer(untilRenewal(time.Now(), end, ttl, true))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			return
		}
		ctx, cancel := context.WithDeadline(r.ctx, end)
		renewed, err := renew(ctx)
		cancel()
		if err == nil {
			end = renewed
		}
		if !r.extend(end, errors.Is(err, ErrLost)) {
			return
		}
		if told != nil && err == nil {
			told(end)
		}
		timer.Reset(untilRenewal(time.Now(), end, ttl, err == nil))
	}
}

// extend takes in what a renewal came to. It is false once there is nothing to
// renew: a confirmation that comes after the end does not bring a lease back.
func (r *renewer) extend(end time.Time, gone bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone || !time.Now().Before(r.end) {
		r.loseLocked()
	}
	if r.over {
		return false
	}
	r.end = end
	r.expiry.Reset(time.Until(end))
	return true
}

// renewers are those of one locker.
type renewers struct {
	running sync.WaitGroup
	mu      sync.Mutex
	live    map[*renewer]struct{}
}

// start renews a lease that now lives until end. What it does in the background
// keeps the values of ctx, but not its end.
func (rs *renewers) start(ctx context.Context, end time.Time, ttl time.Duration, renew renewal) *renewer {
	r := &renewer{end: end, lost: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.mu.Lock() // the timer must not fire before it is known
	r.expiry = time.AfterFunc(time.Until(end), r.expire)
	r.mu.Unlock()

	rs.mu.Lock()
	if rs.live == nil {
		rs.live = map[*renewer]struct{}{}
	}
	rs.live[r] = struct{}{}
	rs.mu.Unlock()
	rs.running.Go(func() {
		r.run(ttl, renew)
		rs.mu.Lock()
		delete(rs.live, r)
		rs.mu.Unlock()
	})
	return r
}

// each calls f for every renewer, with its mutex held.
func (rs *renewers) each(f func(*renewer)) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.live {
		r.mu.Lock()
		f(r)
		r.mu.Unlock()
	}
}

// lose gives up every lease: what they all depend on is gone.
func (rs *renewers) lose() { rs.each((*renewer).loseLocked) }

// any says whether some lease is still renewed.
func (rs *renewers) any() (some bool) {
	rs.each(func(r *renewer) { some = some || !r.over })
	return some
}

// close stops all renewals and waits for those under way.
func (rs *renewers) close() {
	rs.each(func(r *renewer) { r.stopLocked() })
	rs.running.Wait()
}
