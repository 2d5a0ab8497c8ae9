package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// stub returns a service whose only handler serves the grab request.
func stub(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s
}

// fireAt sends a load to the servers and returns its accounting.
func fireAt(t *testing.T, ctx context.Context, orders int, size Load, servers ...*httptest.Server) (*accounting, error) {
	t.Helper()
	var urls []string
	names := map[string]string{}
	for i, s := range servers {
		urls = append(urls, s.URL)
		names[s.URL] = fmt.Sprint("stub", i+1)
	}
	p := load.NewPlan(urls, 1, orders, size.Drivers, 1)
	ta := newAccounting(size.Drivers, names, target.Own)
	err := load.Attack(ctx, p, size, func(r *vegeta.Result, due time.Time) {
		if err := ta.add(r, due); err != nil {
			t.Error(err)
		}
	})
	ta.finish()
	return ta, err
}

func TestAccountingCountsEveryAnswer(t *testing.T) {
	var mu sync.Mutex
	first := map[string]bool{}
	once := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if first[r.URL.Path] {
			w.WriteHeader(http.StatusConflict)
		}
		first[r.URL.Path] = true
	}
	ta, err := fireAt(t, t.Context(), 10, Load{Drivers: 6, Timeout: 5 * time.Second, MaxWorkers: 100}, stub(t, once), stub(t, once))
	if err != nil {
		t.Fatal(err)
	}
	if ta.requests != 60 || ta.outcomes[grab.Grabbed] != 10 || ta.outcomes[grab.Taken] != 50 {
		t.Errorf("%d requests: %v", ta.requests, ta.outcomes)
	}
	told := check.CountGrabs(check.Rows(ta.told), 1)
	if told.DoubleGrabs != 0 || told.Orders != 10 || ta.tried != 10 || len(ta.open) != 0 {
		t.Errorf("doubles %d, won %d, tried %d, open %d", told.DoubleGrabs, told.Orders, ta.tried, len(ta.open))
	}
	if ta.servedBy["stub1"] != 30 || ta.servedBy["stub2"] != 30 {
		t.Errorf("served by %v", ta.servedBy)
	}
}

func TestDoubleGrabsByTheAnswers(t *testing.T) {
	all := func(w http.ResponseWriter, _ *http.Request) {}
	ta, err := fireAt(t, t.Context(), 3, Load{Drivers: 5, Timeout: 5 * time.Second, MaxWorkers: 100}, stub(t, all))
	told := check.CountGrabs(check.Rows(ta.told), 1)
	if err != nil || told.DoubleGrabs != 12 || told.OrdersDouble != 3 || len(ta.told) != 15 {
		t.Errorf("err %v, doubles %d, orders %d, grabs %d; want 12, 3, 15", err, told.DoubleGrabs, told.OrdersDouble, len(ta.told))
	}
}

// TestStallShowsInTheLatencyFromTheSchedule checks that a stall of the service increases the
// latency that is measured from the schedule. With too few workers, the latency measured from
// sending hides it.
func TestStallShowsInTheLatencyFromTheSchedule(t *testing.T) {
	for _, workers := range []int{1, 1000} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			const stall = 400 * time.Millisecond
			var once sync.Once
			stalls := func(http.ResponseWriter, *http.Request) { once.Do(func() { time.Sleep(stall) }) }
			size := Load{Drivers: 2, Rate: 200, Timeout: 5 * time.Second, MaxWorkers: workers}
			ta, err := fireAt(t, t.Context(), 100, size, stub(t, stalls))
			if err != nil {
				t.Fatal(err)
			}
			scheduled, sent := ta.scheduled.Latency(), ta.sent.Latency()
			// With one worker, the stall delays every request that was due during it.
			if workers == 1 && scheduled.P90 < 50 {
				t.Errorf("p90 from the schedule is %.1f ms: the stall of %v is hidden", scheduled.P90, stall)
			}
			if workers == 1 && load.Held(scheduled, sent) {
				t.Errorf("the load counts as held: p99 %.1f ms from the schedule, %.1f ms from sending", scheduled.P99, sent.P99)
			}
			if scheduled.Max < stall.Seconds()*1000 {
				t.Errorf("the longest latency is %.1f ms, shorter than the stall", scheduled.Max)
			}
		})
	}
}

// untilHungUp waits until the client has closed the connection. It reads the body first, because a
// server does not notice the closing before.
func untilHungUp(r *http.Request) {
	io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestFailuresByKind(t *testing.T) {
	closed := stub(t, nil)
	closed.Close()
	resets := stub(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.Close()
	})
	hangs := stub(t, func(_ http.ResponseWriter, r *http.Request) { untilHungUp(r) })
	broken := stub(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"reason":"lease_lost"}`)
	})
	for _, tc := range []struct {
		server  *httptest.Server
		kind    string
		outcome grab.Outcome
	}{
		{closed, load.Refused, grab.Failed},
		{resets, load.Reset, grab.Failed},
		{hangs, load.Timeout, grab.Timeout},
		{broken, "lease_lost", grab.Failed},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			ta, err := fireAt(t, t.Context(), 1, Load{Drivers: 3, Timeout: 200 * time.Millisecond, MaxWorkers: 10}, tc.server)
			if err != nil {
				t.Fatal(err)
			}
			if ta.errors[tc.kind] != 3 || ta.outcomes[tc.outcome] != 3 {
				t.Errorf("errors %v, outcomes %v", ta.errors, ta.outcomes)
			}
		})
	}
}

// TestCompletedRequests checks which failed requests count as completed: all except those that no
// instance received, or that the end of the load interrupted.
func TestCompletedRequests(t *testing.T) {
	for kind, completes := range map[string]bool{
		load.Interrupted: false, load.Refused: false, load.Timeout: true, load.Reset: true, load.Other: true, "http 500": true,
	} {
		a := newAccounting(2, nil, target.Own)
		a.requests, a.errors[kind] = 10, 4
		a.scheduled.Add(time.Millisecond)
		a.sent.Add(time.Millisecond)
		c := Cell{DurationS: new(2.0)}
		c.answers(a)
		if want := map[bool]float64{true: 5, false: 3}[completes]; value(c.CompletedRPS) != want {
			t.Errorf("4 of 10 requests in 2 s ended with %s: %v completed per second, want %v", kind, value(c.CompletedRPS), want)
		}
	}
}

func TestInterruptedAttackEndsAtOnceAndKeepsItsAccounts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var answered sync.WaitGroup
	answered.Add(1)
	var once sync.Once
	hangs := stub(t, func(w http.ResponseWriter, r *http.Request) {
		once.Do(answered.Done)
		untilHungUp(r)
	})
	go func() { answered.Wait(); cancel() }()
	ta, err := fireAt(t, ctx, 1000, Load{Drivers: 20, Rate: 100, Timeout: time.Minute, MaxWorkers: 100}, hangs)
	if !errors.Is(err, context.Canceled) || ta.errors[load.Interrupted] == 0 || ta.requests >= 20000 {
		t.Errorf("err %v after %d requests: %v", err, ta.requests, ta.errors)
	}
}

func TestContention(t *testing.T) {
	at := func(ms ...int) []span {
		var out []span
		for i := 0; i < len(ms); i += 2 {
			out = append(out, span{time.UnixMilli(int64(ms[i])), time.UnixMilli(int64(ms[i+1]))})
		}
		return out
	}
	for _, tc := range []struct {
		spans []span
		want  bool
	}{
		{at(0, 5), false},
		{at(0, 5, 5, 9), false},
		{at(5, 9, 0, 5), false},
		{at(0, 6, 5, 9), true},
		{at(7, 8, 0, 9), true},
	} {
		if got := overlapping(tc.spans); got != tc.want {
			t.Errorf("overlapping(%v) = %v", tc.spans, got)
		}
	}
}
