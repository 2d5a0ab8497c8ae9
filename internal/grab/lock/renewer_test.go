package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntilRenewal(t *testing.T) {
	const ttl = 30 * time.Second
	now := time.Now()
	for _, c := range []struct {
		name      string
		end       time.Duration // from now
		confirmed bool
		want      time.Duration
	}{
		{"just taken: a third of the TTL", ttl, true, ttl / 3},
		{"a slow request counts", ttl - 4*time.Second, true, 6 * time.Second},
		{"drift counts", ttl - ttl/100, true, ttl/3 - ttl/100},
		{"a third has gone", ttl * 2 / 3, true, 0},
		{"more than a third has gone", ttl / 2, true, 0},
		{"not confirmed: again soon", ttl * 2 / 3, false, ttl / 10},
		{"not confirmed, and near the end: the expiry comes first", time.Second, false, ttl / 10},
	} {
		if got := untilRenewal(now, now.Add(c.end), ttl, c.confirmed); got != c.want {
			t.Errorf("%s: untilRenewal: %v, want %v", c.name, got, c.want)
		}
	}
}

var errNoAnswer = errors.New("no answer")

// TestRenewer simulates various replies to the renewals of a 30 s lease, and checks when the lease
// counts as lost.
func TestRenewer(t *testing.T) {
	const ttl = 30 * time.Second
	yes := func(context.Context) error { return nil }
	gone := func(context.Context) error { return ErrLost }
	silent := func(context.Context) error { return errNoAnswer }
	hangs := func(context.Context) error { time.Sleep(2 * ttl); return nil } // ignores its context
	slow := func(context.Context) error { time.Sleep(ttl / 4); return nil }
	for _, c := range []struct {
		name    string
		answers []func(context.Context) error // the last one is repeated
		lost    time.Duration                 // 0 means never
		asked   int
	}{
		{"kept", []func(context.Context) error{yes}, 0, 30},
		{"slow renewals count from when they were sent", []func(context.Context) error{slow}, 0, 30},
		{"found gone", []func(context.Context) error{yes, gone}, 20 * time.Second, 2},
		{"no answer", []func(context.Context) error{silent}, ttl, 7},
		{"no answer after one", []func(context.Context) error{yes, silent}, ttl + 10*time.Second, 8},
		{"an answer after some silence", []func(context.Context) error{silent, silent, silent, yes}, 0, 32},
		{"a renewal that hangs", []func(context.Context) error{hangs}, ttl, 1},
		{"a renewal that hangs after one", []func(context.Context) error{yes, hangs}, ttl + 10*time.Second, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				var rs renewers
				r := rs.start(t.Context(), began.Add(ttl), ttl, func(ctx context.Context) (time.Time, error) {
					sent, answer := time.Now(), c.answers[min(asked, len(c.answers)-1)]
					asked++
					return sent.Add(ttl), answer(ctx)
				})
				select {
				case <-r.Lost():
					if took := time.Since(began); took != c.lost {
						t.Errorf("lost after %v, want %v", took, c.lost)
					}
				case <-time.After(10*ttl + time.Second):
					if c.lost != 0 {
						t.Errorf("never lost, want after %v", c.lost)
					}
				}
				rs.close()
				if asked != c.asked {
					t.Errorf("asked %d times, want %d", asked, c.asked)
				}
			})
		})
	}
}

// TestRenewerStops checks that a released lease is neither renewed nor reported as lost.
func TestRenewerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		var rs renewers
		r := rs.start(t.Context(), time.Now().Add(ttl), ttl, func(context.Context) (time.Time, error) {
			t.Error("renewed after the stop")
			return time.Time{}, nil
		})
		r.stop()
		time.Sleep(2 * ttl)
		select {
		case <-r.Lost():
			t.Error("lost after the stop")
		default:
		}
		rs.close()
	})
}

// TestRenewerOutlivesAcquire checks that renewals keep the values of the acquire's context, but
// continue after that context is cancelled.
func TestRenewerOutlivesAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "grab"))
		var rs renewers
		renewed := 0
		rs.start(ctx, time.Now().Add(ttl), ttl, func(ctx context.Context) (time.Time, error) {
			renewed++
			if ctx.Err() != nil || ctx.Value(key{}) != "grab" {
				t.Errorf("renewal with %v, %v", ctx.Err(), ctx.Value(key{}))
			}
			return time.Now().Add(ttl), nil
		})
		cancel()
		time.Sleep(ttl / 2)
		rs.close()
		if renewed == 0 {
			t.Error("not renewed")
		}
	})
}

// TestLostChecksTheClock checks that Lost reports an expired lease even if the expiry timer has not
// fired yet. After a pause of the whole process, the holder can run before any timer.
func TestLostChecksTheClock(t *testing.T) {
	r := &renewer{lost: make(chan struct{}), end: time.Now().Add(-time.Millisecond), expiry: time.NewTimer(time.Hour), cancel: func() {}}
	select {
	case <-r.Lost():
	default:
		t.Error("an expired lease is not reported as lost")
	}
}

// TestExtend checks every outcome of a renewal if the expiry timer has not fired yet. After a pause
// of the process, a reply can be processed before the timer.
func TestExtend(t *testing.T) {
	for _, c := range []struct {
		name                string
		end                 time.Duration // from now, before the renewal
		gone, over          bool
		continues, lost     bool
		extended, cancelled bool
	}{
		{name: "confirmed in time", end: time.Hour, continues: true, extended: true},
		{name: "confirmed after the end", end: -time.Millisecond, lost: true, cancelled: true},
		{name: "found gone in time", end: time.Hour, gone: true, lost: true, cancelled: true},
		{name: "found gone after the end", end: -time.Millisecond, gone: true, lost: true, cancelled: true},
		{name: "confirmed after the release", end: time.Hour, over: true},
		{name: "found gone after the release", end: time.Hour, gone: true, over: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cancelled := false
			end, next := time.Now().Add(c.end), time.Now().Add(2*time.Hour)
			r := &renewer{lost: make(chan struct{}), end: end, expiry: time.NewTimer(time.Hour), cancel: func() { cancelled = true }, over: c.over}
			if got := r.extend(next, c.gone); got != c.continues {
				t.Errorf("renewals continue: %v, want %v", got, c.continues)
			}
			if got := r.isLost(); got != c.lost {
				t.Errorf("lost: %v, want %v", got, c.lost)
			}
			if got := r.Until().Equal(next); got != c.extended || !got && !r.Until().Equal(end) {
				t.Errorf("extended: %v, want %v", got, c.extended)
			}
			if cancelled != c.cancelled {
				t.Errorf("renewals cancelled: %v, want %v", cancelled, c.cancelled)
			}
		})
	}
}

// TestOnRenewal checks that the callback is called once for each renewal that succeeded in time. It
// must receive the new end of the lease, and Until must already return that end.
func TestOnRenewal(t *testing.T) {
	const ttl = 30 * time.Second
	for _, c := range []struct {
		name    string
		answers []error // the last one is repeated
		late    time.Duration
		told    int
	}{
		{"confirmed", []error{nil}, 0, 9},
		{"no answer", []error{errNoAnswer}, 0, 0},
		{"no answer, then confirmed", []error{errNoAnswer, errNoAnswer, nil}, 0, 8},
		{"gone", []error{ErrLost}, 0, 0},
		{"confirmed, then gone", []error{nil, ErrLost}, 0, 1},
		{"confirmed after the end", []error{nil}, ttl, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rs renewers
				var r atomic.Pointer[renewer]
				var sent time.Time // only the renewing goroutine uses sent and asked
				var told atomic.Int64
				asked := 0
				ctx := OnRenewal(t.Context(), func(until time.Time) {
					told.Add(1)
					if want, end := sent.Add(ttl), r.Load().Until(); !until.Equal(want) || !end.Equal(want) {
						t.Errorf("told %v, and the lease ends at %v, want %v", until, end, want)
					}
				})
				end := time.Now().Add(ttl)
				r.Store(rs.start(ctx, end, ttl, func(ctx context.Context) (time.Time, error) {
					end := r.Load().Until()
					if until, ok := ctx.Deadline(); !ok || !until.Equal(end) {
						t.Errorf("the renewal may last until %v, and the lease until %v", until, end)
					}
					sent = time.Now()
					err := c.answers[min(asked, len(c.answers)-1)]
					asked++
					time.Sleep(c.late)
					return sent.Add(ttl), err
				}))
				time.Sleep(3*ttl + time.Second)
				rs.close()
				if got := int(told.Load()); got != c.told {
					t.Errorf("the callback was called %d times, want %d", got, c.told)
				}
			})
		})
	}
}

// TestRenewersForget checks that renewers forgets a lease as soon as it has ended, and that close waits
// for a pending renewal.
func TestRenewersForget(t *testing.T) {
	const ttl = 30 * time.Second
	for _, c := range []struct {
		name string
		end  func(*renewers, *renewer)
		lost bool // whether the lease is lost afterwards
	}{
		{"stopped", func(_ *renewers, r *renewer) { r.stop() }, false},
		{"lost", func(rs *renewers, _ *renewer) { rs.lose() }, true},
		{"run out", func(*renewers, *renewer) { time.Sleep(ttl) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rs renewers
				pending := false
				r := rs.start(t.Context(), time.Now().Add(ttl), ttl, func(ctx context.Context) (time.Time, error) {
					pending = true
					<-ctx.Done()
					time.Sleep(time.Second)
					pending = false
					return time.Time{}, ctx.Err()
				})
				if !rs.any() {
					t.Error("any returns false although a lease is held")
				}
				time.Sleep(ttl / 2)
				c.end(&rs, r)
				if rs.any() {
					t.Error("any returns true although the only lease has ended")
				}
				rs.close()
				if pending || len(rs.live) > 0 {
					t.Errorf("pending renewal: %v, %d leases kept", pending, len(rs.live))
				}
				if r.isLost() != c.lost {
					t.Errorf("lost: %v, want %v", r.isLost(), c.lost)
				}
			})
		})
	}
}

// TestRenewersClose checks that no lease is renewed after close. Each lease must be reported as lost
// exactly when it expires.
func TestRenewersClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		var rs renewers
		end := time.Now().Add(ttl)
		r := rs.start(t.Context(), end, ttl, func(context.Context) (time.Time, error) {
			t.Error("renewed after the close")
			return time.Time{}, nil
		})
		rs.close()
		if IsClosed(r.Lost()) {
			t.Error("lost by the close")
		}
		select {
		case <-r.lost:
		case <-time.After(2 * ttl):
			t.Fatal("never lost")
		}
		if late := time.Since(end); late != 0 {
			t.Errorf("lost %v after the end", late)
		}
	})
}
