package lock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// untilRenewal returns the time until the next renewal. A renewal is due once a third of the TTL
// has passed. After a failed renewal, the next one follows a tenth of the TTL later.
func untilRenewal(now, end time.Time, ttl time.Duration, confirmed bool) time.Duration {
	if !confirmed {
		return ttl / 10
	}
	return max(end.Add(-ttl*2/3).Sub(now), 0)
}

// A renewal is a function that renews a lease once and returns its new end. It returns ErrLost if
// the server no longer stores the lease. After any other error, the result is unknown.
type renewal func(context.Context) (end time.Time, err error)

// A renewer renews a lease until the lease is released or lost. A lease is lost if the server no
// longer stores it, or if no renewal succeeds in time.
type renewer struct {
	ctx    context.Context // the caller's context without its cancellation
	cancel context.CancelFunc
	lost   chan struct{}

	mu     sync.Mutex
	end    time.Time   // when the lease ends, on the monotonic clock
	expiry *time.Timer // fires at end, even while a renewal hangs
	over   bool        // whether the renewer was stopped or has lost the lease
}

// Lost implements Lease. It also checks the clock, because the timer may fire late if the process
// was paused.
func (r *renewer) Lost() <-chan struct{} {
	r.expire()
	return r.lost
}

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

// stopLocked ends the renewals. It returns false if they have already ended.
func (r *renewer) stopLocked() bool {
	if r.over {
		return false
	}
	r.over = true
	r.expiry.Stop()
	r.cancel()
	return true
}

// stop ends the renewals. The channel from Lost then stays open.
func (r *renewer) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopLocked()
}

// isLost reports whether the lease is known to be lost. Unlike Lost, it does not check the clock.
func (r *renewer) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return IsClosed(r.lost)
}

// run renews the lease again and again, until the lease is lost or the renewals are stopped.
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

// extend records a renewal result. It returns false if the renewals have ended. A confirmation that
// arrives after the lease has ended does not restore the lease.
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

// renewers contains the active renewers of one Locker. The zero value is ready to use.
type renewers struct {
	running tasks
	mu      sync.Mutex
	live    map[*renewer]struct{}
}

// start renews a lease in the background, even after ctx is cancelled. Unless a renewal succeeds,
// the lease expires at end.
func (rs *renewers) start(ctx context.Context, end time.Time, ttl time.Duration, renew renewal) *renewer {
	r := &renewer{end: end, lost: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.mu.Lock() // expire must not run before r.expiry is set
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

// each calls f for every active renewer, and locks the renewer's mutex during the call.
func (rs *renewers) each(f func(*renewer)) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.live {
		r.mu.Lock()
		f(r)
		r.mu.Unlock()
	}
}

// lose marks all leases as lost, for example because their session has ended.
func (rs *renewers) lose() { rs.each((*renewer).loseLocked) }

// any reports whether any renewer is still active.
func (rs *renewers) any() (some bool) {
	rs.each(func(r *renewer) { some = some || !r.over })
	return some
}

// close ends all renewals and waits for pending ones. Each lease is still reported as lost when it
// ends, because its holder may continue to work.
func (rs *renewers) close() {
	rs.each(func(r *renewer) { r.cancel() })
	rs.running.Wait()
}
