package load

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSharesMakeThePlan splits small plans into shares. Together, the shares must send each request of
// the whole plan once, to the same target and at the same time.
func TestSharesMakeThePlan(t *testing.T) {
	targets := []string{"http://a", "http://b"}
	for orders := 1; orders <= 3; orders++ {
		for drivers := 1; drivers <= 4; drivers++ {
			for count := 1; count <= 5; count++ {
				for _, cfg := range []Config{{}, {Rate: 100}, {Rate: 100, Together: true}, {Rate: 1500}} {
					whole := NewPlan(targets, 1, orders, drivers, 3)
					all := drain(NewPlan(targets, 1, orders, drivers, 3))
					sent := 0
					for index := range count {
						p := NewPlan(targets, 1, orders, drivers, 3)
						p.Split(Share{Index: index, Count: count})
						of := drain(p)
						if len(of) != p.Requests() {
							t.Errorf("%d orders, %d drivers, share %d of %d: %d requests, want %d", orders, drivers, index, count, len(of), p.Requests())
						}
						sent += len(of)
						for n, r := range of {
							at := index + n*count
							if at >= len(all) || r != all[at] || p.Due(cfg, uint64(n)) != whole.Due(cfg, uint64(at)) {
								t.Errorf("%d orders, %d drivers, share %d of %d: request %d is %+v", orders, drivers, index, count, n, r)
							}
						}
					}
					if sent != orders*drivers {
						t.Errorf("%d orders, %d drivers in %d shares: %d requests", orders, drivers, count, sent)
					}
				}
			}
		}
	}
}

// TestDueTimes checks that each request is due less than a tick after its exact time, and never before
// it. At a slow rate, each request must be due at its exact time.
func TestDueTimes(t *testing.T) {
	for _, rate := range []float64{1, 99, 500, 501, 1000, 1700, 10_000} {
		p := NewPlan([]string{"http://a"}, 1, 100, 10, 1)
		interval := time.Duration(float64(time.Second) / rate)
		for n := range uint64(1000) {
			exact, due := time.Duration(n)*interval, p.Due(Config{Rate: rate}, n)
			if late := due - exact; late < 0 || late >= tick || interval >= tick && late != 0 {
				t.Fatalf("%v requests a second: request %d is due after %v, and its time is %v", rate, n, due, exact)
			}
		}
	}
}

// TestLateDriversAreDueExactly checks that a rate with one request per tick is slow enough for exact times, also for
// the drivers that arrive late on purpose.
func TestLateDriversAreDueExactly(t *testing.T) {
	const drivers = 10
	pace := NewPlan([]string{"http://a"}, 1, 10, drivers, 1).pacer(t.Context(), Config{Rate: 500, Together: true}, nil).(openLoop)
	for n := range 10 * drivers {
		k := n % drivers
		if due, want := pace.due(uint64(n)), time.Duration(n-k)*tick+pace.late(k); due != want {
			t.Errorf("request %d is due after %v, want %v", n, due, want)
		}
	}
}

// TestBurstsAreDueWhenSent checks that each request of several bursts is due at the time of its Send.
func TestBurstsAreDueWhenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewBursts()
		pace := w.pacer(t.Context(), Config{}, nil)
		var want []time.Duration
		for n := range 4 {
			time.Sleep(time.Second)
			requests := make([]Request, n)
			for range requests {
				want = append(want, time.Duration(n+1)*time.Second)
			}
			w.Send(requests)
		}
		for n, due := range want {
			if got := pace.due(uint64(n)); got != due {
				t.Errorf("request %d is due after %v, want %v", n, got, due)
			}
		}
	})
}

// TestHangUpEndsOneRequest calls HangUp for each of several requests that differ in a single field.
// Only that request must end.
func TestHangUpEndsOneRequest(t *testing.T) {
	all := []Request{{"http://a", 1, 1}, {"http://b", 1, 1}, {"http://a", 2, 1}, {"http://a", 1, 2}}
	for ends := range all {
		synctest.Test(t, func(t *testing.T) {
			w := NewBursts()
			var mu sync.Mutex
			var ended []int
			transport := w.through(roundTripper(func(req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, context.Cause(req.Context())
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for i, r := range all {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL([]byte("/grab")), nil)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					if _, err := transport.RoundTrip(req); err == nil {
						t.Errorf("request %d got a response", i)
					}
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, i)
				}()
				synctest.Wait()
			}
			w.HangUp(Request{"http://b", 2, 2}) // no such request
			w.HangUp(all[ends])
			synctest.Wait()
			if !slices.Equal(ended, []int{ends}) {
				t.Errorf("hanging up request %d ended %v", ends, ended)
			}
		})
	}
}

// TestLatenciesOutOfRange checks that a histogram counts latencies below and above its range as the
// minimum and maximum of the range.
func TestLatenciesOutOfRange(t *testing.T) {
	h := NewHistogram()
	for _, d := range []time.Duration{-time.Hour, -1, 0, time.Hour, 2 * time.Hour, 1 << 62} {
		h.Add(d)
	}
	got := h.Latency()
	if h.h.TotalCount() != 6 || got.Min != 0 || got.P50 != 0 || got.Max < 3.599e6 || got.Max > 3.61e6 || h.At(3) != 0 || h.At(4) < 59*time.Minute {
		t.Errorf("%d latencies: %+v", h.h.TotalCount(), got)
	}
}

// TestConnectionsEndWithTheAttack checks that every connection closes when the attack's context ends, even
// one that is opened later.
func TestConnectionsEndWithTheAttack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	dial := dialUntil(ctx)
	for i := range 5 {
		if i == 4 {
			cut()
		}
		conn, err := dial(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
		defer func() {
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("connection %d is still open: %v", i, err)
			}
		}()
	}
}

// countingContext counts the functions that are registered with it to run when it ends.
type countingContext struct {
	context.Context
	done       chan struct{}
	registered int
}

// Done returns a channel of its own, so that package context uses AfterFunc.
func (c *countingContext) Done() <-chan struct{} { return c.done }

func (c *countingContext) AfterFunc(func()) (stop func() bool) {
	c.registered++
	return func() bool { c.registered--; return true }
}

// TestClosedConnectionsLeaveNothing opens and closes connections, and checks that the context of the attack no longer
// refers to them. A load may open thousands of connections, and the context lives as long as the whole attack.
func TestClosedConnectionsLeaveNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx := &countingContext{Context: t.Context(), done: make(chan struct{})}
	dial := dialUntil(ctx)
	for range 3 {
		conn, err := dial(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if ctx.registered != 1 {
			t.Errorf("with an open connection, the context refers to %d, want 1", ctx.registered)
		}
		if err := conn.Close(); err != nil || ctx.registered != 0 {
			t.Errorf("after closing (%v), the context still refers to %d connections", err, ctx.registered)
		}
	}
}
