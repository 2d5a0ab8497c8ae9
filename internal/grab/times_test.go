package grab_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// These are the durations of the steps of a grab. They are powers of two, so a sum of some of them
// shows which steps it contains.
const (
	acquireTime = 1 * time.Second
	readTime    = 2 * time.Second
	workTime    = 4 * time.Second
	claimTime   = 8 * time.Second
	releaseTime = 16 * time.Second
	raiseTime   = 32 * time.Second
)

// slowLocker grants its lock after acquireTime. Its fencing tokens continue from fence.
type slowLocker struct {
	fence uint64
	busy  bool
}

func (l *slowLocker) Acquire(ctx context.Context, _ string) (lock.Lease, error) {
	if err := lock.Sleep(ctx, acquireTime); err != nil {
		return nil, err
	}
	if l.busy {
		return nil, lock.ErrBusy
	}
	l.fence++
	return &slowLease{fence: l.fence, lost: make(chan struct{})}, nil
}

func (l *slowLocker) RaiseFence(_ context.Context, _ string, fence uint64) error {
	time.Sleep(raiseTime)
	l.fence = max(l.fence, fence)
	return nil
}

func (l *slowLocker) Close() error { return nil }

type slowLease struct {
	fence uint64
	lost  chan struct{}
}

func (l *slowLease) Token() string         { return fmt.Sprint("token-", l.fence) }
func (l *slowLease) Fence() uint64         { return l.fence }
func (l *slowLease) Lost() <-chan struct{} { return l.lost }

func (l *slowLease) Release(context.Context) error {
	time.Sleep(releaseTime)
	return nil
}

// TestTimesOfAGrab gives each step of a grab a different duration, and ends the grab in various ways.
// The answer and the metrics must state exactly how long the driver waited for the lock and how long
// it held the lock.
func TestTimesOfAGrab(t *testing.T) {
	for _, c := range []struct {
		name    string
		seen    uint64 // the highest fencing token that the order has seen
		busy    bool
		read    error         // returned by the read
		claim   error         // returned by the claim
		hangUp  time.Duration // after the request; 0 means never
		outcome grab.Outcome
		waited  time.Duration
		held    time.Duration
	}{
		{name: "won", outcome: grab.Grabbed, waited: acquireTime, held: readTime + workTime + claimTime},
		{name: "refused", claim: order.ErrTaken, outcome: grab.Taken, waited: acquireTime, held: readTime + workTime + claimTime},
		{name: "read fails", read: errors.New("down"), outcome: grab.Failed, waited: acquireTime, held: readTime},
		{name: "busy", busy: true, outcome: grab.Busy, waited: acquireTime},
		{name: "hangs up while it waits", hangUp: acquireTime / 2, outcome: grab.Failed, waited: acquireTime / 2},
		{name: "hangs up while it works", hangUp: acquireTime + readTime + workTime/2, outcome: grab.Failed,
			waited: acquireTime, held: readTime + workTime/2},
		{name: "hangs up during the claim", hangUp: acquireTime + readTime + workTime + claimTime/2, outcome: grab.Grabbed,
			waited: acquireTime, held: readTime + workTime + claimTime},
		{name: "repaired", seen: 9, outcome: grab.Grabbed, waited: 2 * acquireTime, held: readTime + workTime + claimTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := new(order.Mem)
				if _, err := mem.Create(t.Context(), 1, 1); err != nil {
					t.Fatal(err)
				}
				if c.seen > 0 {
					if _, err := mem.Read(t.Context(), 1, c.seen); err != nil {
						t.Fatal(err)
					}
				}
				steps := map[order.CallKind]struct {
					takes time.Duration
					err   error
				}{order.ReadCall: {readTime, c.read}, order.ClaimCall: {claimTime, c.claim}}
				store := order.Intercept(mem, func(ctx context.Context, call *order.Call, send func(context.Context) error) error {
					step := steps[call.Kind]
					time.Sleep(step.takes)
					if step.err != nil {
						return step.err
					}
					return send(ctx)
				})
				service, err := grab.New(grab.Config{
					Orders: store, Strategy: "slow", Work: workTime,
					Lock: lock.Env{Orders: store, TTL: time.Hour, Wait: time.Hour, Now: time.Now, Token: rand.Text, Rand: mathrand.Float64},
					Find: func(string) (lock.Strategy, error) {
						return lock.Strategy{Name: "slow", Guard: order.Fenced, Fences: true, New: func(lock.Env) (lock.Locker, error) {
							return &slowLocker{busy: c.busy}, nil
						}}, nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				metrics := grab.NewMetrics()
				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				if c.hangUp > 0 {
					time.AfterFunc(c.hangUp, hangUp)
				}
				w := httptest.NewRecorder()
				newHandler(service, grab.HTTPConfig{Metrics: metrics, Timeout: time.Hour}).
					ServeHTTP(w, request("POST", "/orders/1/grab", `{"driver_id":42}`).WithContext(ctx))
				a := answerOf(t, w)
				if waited, held := c.waited.Seconds()*1000, c.held.Seconds()*1000; a.Outcome != c.outcome || a.WaitedMS != waited || a.HeldMS != held {
					t.Errorf("%s after waiting %v ms and holding %v ms, want %s, %v, %v", a.Outcome, a.WaitedMS, a.HeldMS, c.outcome, waited, held)
				}
				wantWait := c.waited.Seconds()
				if c.held == 0 {
					wantWait = 0 // the metric counts only grabs that got the lock
				}
				if wait, hold := seconds(t, metrics, "grab_lock_wait_seconds"), seconds(t, metrics, "grab_lock_hold_seconds"); wait != wantWait || hold != c.held.Seconds() {
					t.Errorf("the metrics say %v s of waiting and %v s of holding, want %v, %v", wait, hold, wantWait, c.held.Seconds())
				}
			})
		})
	}
}

// seconds returns the sum of a histogram. It returns 0 if nothing was observed.
func seconds(t *testing.T, m *grab.Metrics, name string) (sum float64) {
	t.Helper()
	for _, series := range seriesOf(t, m, name) {
		sum += series.GetHistogram().GetSampleSum()
	}
	return sum
}
