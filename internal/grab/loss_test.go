package grab_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
)

// showingLock is a lock whose leases get lost. A test chooses in which way a loss becomes visible.
type showingLock struct {
	closes   time.Duration // the channel of Lost closes after this time; 0 means never
	answered int           // the first call of Lost that returns a closed channel, like after a pause; 0 means none
	check    error         // the result of Check
	calls    int
}

func (l *showingLock) Acquire(context.Context, string) (lock.Lease, error) {
	lease := &showingLease{showingLock: l, lost: make(chan struct{})}
	if l.closes > 0 {
		time.AfterFunc(l.closes, func() { close(lease.lost) })
	}
	return lease, nil
}

func (l *showingLock) Close() error { return nil }

type showingLease struct {
	*showingLock
	lost chan struct{}
}

func (l *showingLease) Token() string                 { return "token" }
func (l *showingLease) Fence() uint64                 { return 0 }
func (l *showingLease) Release(context.Context) error { return nil }
func (l *showingLease) Check(context.Context) error   { return l.check }
func (l *showingLease) Lost() <-chan struct{} {
	if l.calls++; l.calls == l.answered {
		close(l.lost)
	}
	return l.lost
}

// TestLossShowsInOneWay checks that a grab does not write if its lease is lost or its client has
// disconnected. This must be so even if only one of several signs shows the loss. With -on-lost ignore,
// only a disconnect counts.
func TestLossShowsInOneWay(t *testing.T) {
	const work = 100 * time.Millisecond
	errNoAnswer := errors.New("no answer")
	for _, tt := range []struct {
		name      string
		lock      showingLock
		work      time.Duration
		hangsUp   bool   // the client disconnects after the read
		hangsIn   bool   // the client disconnects during the work
		reason    string // the reason in the answer; empty if the order is grabbed
		ifIgnored string // the reason with -on-lost ignore
	}{
		{name: "no loss", work: work},
		{name: "the channel closes during the work", lock: showingLock{closes: work / 2}, work: work, reason: "lease_lost"},
		{name: "the channel closes after the work", lock: showingLock{closes: 2 * work}, work: work},
		{name: "Lost tells only when it is called before the write", lock: showingLock{answered: 2}, work: work, reason: "lease_lost"},
		{name: "only the server knows", lock: showingLock{check: lock.ErrLost}, work: work, reason: "lease_lost"},
		{name: "the server does not answer", lock: showingLock{check: errNoAnswer}, work: work, reason: "dependency"},
		{name: "the client hangs up after the read", hangsUp: true, reason: "cancelled", ifIgnored: "cancelled"},
		{name: "the client hangs up during the work", hangsIn: true, work: work, reason: "cancelled", ifIgnored: "cancelled"},
	} {
		for _, onLost := range []grab.OnLost{grab.Abort, grab.Ignore} {
			t.Run(fmt.Sprint(tt.name, "/", onLost), func(t *testing.T) {
				play(t, "showing", func(s *scene) {
					l := tt.lock
					st := lock.Strategy{Name: "showing", Guard: order.Naive, New: func(lock.Env) (lock.Locker, error) { return &l, nil }}
					a := s.instance(func(c *grab.Config) {
						c.Work, c.OnLost = tt.work, onLost
						c.Find = func(string) (lock.Strategy, error) { return st, nil }
					})
					ctx, cancel := context.WithCancel(s.Context())
					defer cancel()
					a.afterRead = func(_ order.Order, err error) error {
						if tt.hangsUp {
							cancel()
						}
						return err
					}
					if tt.hangsIn {
						time.AfterFunc(work/2, cancel)
					}
					told, want := a.Grab(ctx, grab.Request{Order: s.order, Driver: 1}), tt.reason
					if onLost == grab.Ignore {
						want = tt.ifIgnored
					}
					if (told.Outcome == grab.Grabbed) != (want == "") || told.Reason != want {
						t.Errorf("the driver is told %q %q (%s), want the reason %q", told.Outcome, told.Reason, told.Error, want)
					}
					if wrote := len(s.winners()) == 1; wrote != (want == "") {
						t.Errorf("the ledger has %v", s.winners())
					}
					time.Sleep(time.Second) // all timers have fired when the bubble ends
				})
			})
		}
	}
}

// boundedLock grants leases that end at a given time.
type boundedLock struct{ until time.Time }

type boundedLease struct {
	showingLease
	until time.Time
}

func (l boundedLock) Acquire(context.Context, string) (lock.Lease, error) {
	return &boundedLease{showingLease{showingLock: &showingLock{}}, l.until}, nil
}

func (l boundedLock) Close() error            { return nil }
func (l *boundedLease) Until() time.Time      { return l.until }
func (l *boundedLease) Lost() <-chan struct{} { return nil }

// TestLeaseIsRecorded checks how long a new lease lasts according to the history. A lease that has already
// ended must not look like one whose duration is unknown.
func TestLeaseIsRecorded(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		time.Hour: time.Hour, 2: 2, 1: 1, 0: 1, -time.Hour: 1, history.Endless: history.Endless,
	} {
		play(t, "bounded", func(s *scene) {
			l := boundedLock{time.Now().Add(left)}
			if left == history.Endless {
				l.until = time.Time{}
			}
			a := s.instance(func(c *grab.Config) {
				c.Find = func(string) (lock.Strategy, error) {
					return lock.Strategy{Name: "bounded", Guard: order.Naive, New: func(lock.Env) (lock.Locker, error) { return l, nil }}, nil
				}
			})
			s.wants("A", a.grab(), grab.Grabbed, "")
			for _, e := range a.history.Events() {
				if e.Op == history.Acquire && e.Kind == history.OK && e.Lease != want {
					t.Errorf("a lease that lasts for %v is recorded with %v, want %v", left, e.Lease, want)
				}
			}
		})
	}
}

// TestForgetsForAClientThatHasGone checks that a grab of an order that does not exist removes the lock's
// data from Redis even if its client disconnects before that.
func TestForgetsForAClientThatHasGone(t *testing.T) {
	for _, strategy := range fencedStrategies {
		play(t, strategy, func(s *scene) {
			ctx, hangUp := context.WithCancel(s.Context())
			defer hangUp()
			a := s.instance(func(c *grab.Config) {
				c.Find = func(name string) (lock.Strategy, error) {
					st, err := lock.Find(name)
					begin := st.New
					st.New = func(e lock.Env) (lock.Locker, error) {
						l, err := begin(e)
						return hangingUp{l.(forgetter), hangUp}, err
					}
					return st, err
				}
			})
			a.Grab(ctx, grab.Request{Order: 999, Driver: 1})
			if keys := s.redis.Keys(); len(keys) > 0 || ctx.Err() == nil {
				t.Errorf("%s leaves %v; the client has gone: %v", strategy, keys, ctx.Err() != nil)
			}
		})
	}
}

type forgetter interface {
	lock.Locker
	lock.Forgetter
}

// hangingUp is a lock whose client disconnects before the lock's data is deleted.
type hangingUp struct {
	forgetter
	hangUp func()
}

func (l hangingUp) Forget(ctx context.Context, key string) error {
	l.hangUp()
	return l.forgetter.Forget(ctx, key)
}

// TestLimitIsReadOnlyIfItCounts checks that a grab counts the driver's units only for an order of several units.
func TestLimitIsReadOnlyIfItCounts(t *testing.T) {
	for units, want := range map[int]int{1: 0, 2: 1} {
		play(t, "setnx", func(s *scene) {
			a, counted := s.instance(), 0
			a.beforeHeld = func(context.Context) error { counted++; return nil }
			id, err := s.store.Create(s.Context(), 1, units)
			if err != nil {
				t.Fatal(err)
			}
			answer := a.Grab(s.Context(), grab.Request{Order: id, Driver: 1})
			if answer.Outcome != grab.Grabbed || counted != want {
				t.Errorf("an order of %d: %+v, and %d counts, want %d", units, answer, counted, want)
			}
		})
	}
}

// TestLossDuringLimitCheck makes the lease end, or the client disconnect, while the database counts the
// driver's units. The answer must contain that reason, and not the error of the cancelled context.
func TestLossDuringLimitCheck(t *testing.T) {
	const takes = 100 * time.Millisecond
	for _, tt := range []struct {
		closes, hangsUp time.Duration // 0 means never
		onLost          grab.OnLost
		reason          string
	}{
		{0, 0, grab.Abort, ""},
		{takes / 2, 0, grab.Abort, "lease_lost"},
		{takes / 2, 0, grab.Ignore, ""},
		{0, takes / 2, grab.Abort, "cancelled"},
		{0, takes / 2, grab.Ignore, "cancelled"},
	} {
		play(t, "showing", func(s *scene) {
			l := showingLock{closes: tt.closes}
			st := lock.Strategy{Name: "showing", Guard: order.Naive, New: func(lock.Env) (lock.Locker, error) { return &l, nil }}
			a := s.instance(func(c *grab.Config) {
				c.OnLost = tt.onLost
				c.Find = func(string) (lock.Strategy, error) { return st, nil }
			})
			a.beforeHeld = func(ctx context.Context) error { return lock.Sleep(ctx, takes) }
			id, err := s.store.Create(s.Context(), 1, 2)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(s.Context())
			defer cancel()
			if tt.hangsUp > 0 {
				time.AfterFunc(tt.hangsUp, cancel)
			}
			if told := a.Grab(ctx, grab.Request{Order: id, Driver: 1}); told.Reason != tt.reason {
				t.Errorf("%+v: the driver is told %q %q (%s)", tt, told.Outcome, told.Reason, told.Error)
			}
			time.Sleep(time.Second) // all timers have fired when the bubble ends
		})
	}
}
