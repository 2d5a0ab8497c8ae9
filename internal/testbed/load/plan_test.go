package load

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"time"

	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

func drain(p *Plan) []Request {
	var all []Request
	for s, ok := p.take(); ok; s, ok = p.take() {
		all = append(all, s)
	}
	return all
}

// TestPlanSendsEveryDriverToEveryOrder checks plans with even and odd numbers of drivers and
// targets. The targets must take turns, even from one order to the next.
func TestPlanSendsEveryDriverToEveryOrder(t *testing.T) {
	const orders = 7
	for _, targets := range [][]string{{"http://a"}, {"http://a", "http://b"}, {"http://a", "http://b", "http://c"}} {
		for drivers := 1; drivers <= 5; drivers++ {
			requests := drain(NewPlan(targets, 101, orders, drivers, 1))
			if len(requests) != orders*drivers {
				t.Fatalf("%d drivers: %d requests, want %d", drivers, len(requests), orders*drivers)
			}
			seen := map[[2]int64]bool{}
			for i, s := range requests {
				if s.Target != targets[i%len(targets)] {
					t.Errorf("%d drivers, %d targets: request %d goes to %s", drivers, len(targets), i, s.Target)
				}
				if s.Order != requests[i/drivers*drivers].Order {
					t.Errorf("%d drivers: request %d: order %d comes between the requests for order %d", drivers, i, s.Order, requests[i/drivers*drivers].Order)
				}
				if s.Order < 101 || s.Order >= 101+orders || s.Driver < 1 || s.Driver > int64(drivers) {
					t.Errorf("%d drivers: request %d: order %d, driver %d", drivers, i, s.Order, s.Driver)
				}
				seen[[2]int64{s.Order, s.Driver}] = true
			}
			if len(seen) != orders*drivers {
				t.Errorf("%d drivers: %d different pairs of order and driver, want %d", drivers, len(seen), orders*drivers)
			}
		}
	}
}

func TestSeedDecidesThePlan(t *testing.T) {
	plan := func(seed uint64) []Request { return drain(NewPlan([]string{"http://a"}, 1, 50, 20, seed)) }
	if !reflect.DeepEqual(plan(7), plan(7)) {
		t.Error("the same seed gave two plans")
	}
	if reflect.DeepEqual(plan(7), plan(8)) {
		t.Error("two seeds gave one plan")
	}
}

func TestRequestSurvivesTheURL(t *testing.T) {
	foreign, _, err := target.Spec{Path: "/grab?o={order}&a=1", Method: "PUT", Headers: []string{"X-User: {driver}"}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		base  string
		shape *target.Shape
		want  vegeta.Target
	}{
		{"http://127.0.0.1:8004", target.Own, vegeta.Target{
			Method: "POST", URL: "http://127.0.0.1:8004/orders/12/grab#12,1,21", Body: []byte(`{"driver_id":1}`),
			Header: http.Header{"Content-Type": {"application/json"}},
		}},
		{"http://h/shop", foreign, vegeta.Target{
			Method: "PUT", URL: "http://h/shop/grab?o=12&a=1#12,1,13", Body: []byte(`{"driver_id":1}`),
			Header: http.Header{"Content-Type": {"application/json"}, "X-User": {"1"}},
		}},
	} {
		p := NewPlan([]string{tc.base}, 12, 1, 1, 1)
		var got vegeta.Target
		if err := targeter(p, tc.shape)(&got); err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("the target is %+v, %v; want %+v", got, err, tc.want)
		}
		back, err := ParseRequest(got.URL)
		if want := (Request{tc.base, 12, 1}); err != nil || back != want {
			t.Errorf("ParseRequest(%q) = %v, %v; want %v", got.URL, back, err, want)
		}
		if err := targeter(p, tc.shape)(&got); !errors.Is(err, vegeta.ErrNoTargets) {
			t.Errorf("an empty plan returns %v", err)
		}
	}
	for _, want := range []Request{{"http://h", 1, 2}, {"http://h/#x,y", 1 << 62, 0}, {"", 0, 1 << 62}, {"h", -1, -1}} {
		for _, path := range []string{"", "/", "/grab?o=1#2,3,4"} {
			if got, err := ParseRequest(want.URL([]byte(path))); err != nil || got != want {
				t.Errorf("%+v with path %q: %+v, %v", want, path, got, err)
			}
		}
	}
	for _, url := range []string{"", "http://a/orders/1/grab", "http://a/grab#x,1,8", "http://a/grab#1,1", "http://a/grab#1,1,99", "#1,1,-1", "1,1,0#"} {
		if r, err := ParseRequest(url); err == nil {
			t.Errorf("ParseRequest(%q) is %v", url, r)
		}
	}
}

// TestTogether checks that most drivers of an order are due at once. The others must follow one by one
// in the first half of the time until the next order. A plan must send nothing after End.
func TestTogether(t *testing.T) {
	p := NewPlan([]string{"http://a"}, 1, 2, 8, 1)
	pace := p.pacer(t.Context(), Config{Rate: 100, Together: true}, nil)
	for n, want := range []time.Duration{0, 0, 0, 0, 0, 0, 20, 40, 80, 80, 80, 80, 80, 80, 100, 120} {
		if got := pace.due(uint64(n)); got != want*time.Millisecond {
			t.Errorf("request %d is due after %v, want %v", n, got, want*time.Millisecond)
		}
	}
	apart := p.pacer(t.Context(), Config{Rate: 100}, nil)
	for n, want := range []time.Duration{0, 10, 20, 30, 40} {
		if got := apart.due(uint64(n)); got != want*time.Millisecond {
			t.Errorf("without Together, request %d is due after %v, want %v", n, got, want*time.Millisecond)
		}
	}
	if _, stop := pace.Pace(time.Hour, 15); stop {
		t.Error("the plan stops before its last request")
	}
	p.End()
	if _, stop := pace.Pace(time.Hour, 1); !stop {
		t.Error("the plan does not stop after End")
	}
	if r, ok := p.take(); ok {
		t.Errorf("%v is sent after End", r)
	}
}

// TestPace asks for the next request before and after the previous one was due, without a timer. A request that is due
// must be sent at once. After the last request, or if the plan or the context has ended, the load must stop.
func TestPace(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := NewPlan([]string{"a"}, 1, 2, 5, 1)
	pace := p.pacer(ctx, Config{Rate: 100}, nil)
	expect := func(elapsed time.Duration, hits uint64, stops bool) {
		t.Helper()
		if wait, stop := pace.Pace(elapsed, hits); wait != 0 || stop != stops {
			t.Errorf("request %d after %v: wait %v, stop %v; want 0, %v", hits, elapsed, wait, stop, stops)
		}
	}
	for n := range uint64(10) {
		expect(pace.due(n), n, false)
		expect(pace.due(n)+1, n, false)
	}
	expect(0, 10, true)
	p.End()
	expect(pace.due(3), 3, true)
	p = NewPlan([]string{"a"}, 1, 2, 5, 1)
	pace = p.pacer(ctx, Config{Rate: 100}, nil)
	cancel()
	expect(pace.due(3), 3, true)
}

// TestPaceWaits asks for requests before they are due. Pace must return only once they are.
func TestPaceWaits(t *testing.T) {
	timer, err := newTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.close()
	pace := NewPlan([]string{"a"}, 1, 2, 5, 1).pacer(t.Context(), Config{Rate: 100}, timer)
	began := time.Now()
	for n := range uint64(4) {
		if _, stop := pace.Pace(time.Since(began), n); stop || time.Since(began) < pace.due(n) {
			t.Errorf("request %d is sent after %v, but is due after %v; stop: %v", n, time.Since(began), pace.due(n), stop)
		}
	}
}

// TestSleepEndsWithTheContext sleeps for 20 s, and for a nanosecond. If the context has ended, the sleep must end at
// once and say so, even if its time has passed too.
func TestSleepEndsWithTheContext(t *testing.T) {
	timer, err := newTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.close()
	ctx, cancel := context.WithCancel(t.Context())
	if !timer.sleep(ctx, 1) {
		t.Error("a sleep was interrupted")
	}
	cancel()
	began := time.Now()
	if slept := timer.sleep(ctx, 20*time.Second) || timer.sleep(ctx, 1); slept || time.Since(began) > 10*time.Second {
		t.Errorf("a sleep ended after %v, and reported that the context had not ended: %v", time.Since(began), slept)
	}
	for range 50 { // a nanosecond often passes before the end of the context interrupts a new timer
		timer, err := newTimer()
		if err != nil {
			t.Fatal(err)
		}
		if timer.sleep(ctx, 1) {
			t.Error("the time of a sleep has passed, and it does not report that the context has ended")
		}
		timer.close()
	}
}

// endingPlan is a plan that ends after two requests, between Pace and take.
type endingPlan struct{ *Plan }

func (p endingPlan) take() (Request, bool) {
	if p.sent == 2 {
		p.End()
	}
	return p.Plan.take()
}

// TestPlanEndsAtOnce ends a plan while vegeta is about to take its third request. The load must report
// exactly two results, and each of them must belong to a request.
func TestPlanEndsAtOnce(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var urls []string
	p := NewPlan([]string{server.URL}, 1, 1, 5, 1)
	err := Attack(t.Context(), endingPlan{p}, Config{Timeout: time.Minute, MaxWorkers: 1}, func(r *vegeta.Result, _ time.Time) { urls = append(urls, r.URL) })
	if err != nil || len(urls) != 2 || slices.Contains(urls, "") {
		t.Errorf("results of %q, %v", urls, err)
	}
}
