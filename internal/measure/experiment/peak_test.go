package experiment

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
)

// searched returns a search in which the service kept up with the rate low, but not with the rate
// high. At the high rate, there were the given errors and p99 latency, measured from sending.
func searched(low, high, sentP99 float64, errors int) *Peak {
	p := &Peak{HeldRPS: low, P99MS: 100, Steps: []PeakStep{{RPS: low, P99MS: new(9.0), P99SentMS: new(9.0), Held: true}}}
	for range 2 {
		p.Steps = append(p.Steps, PeakStep{RPS: high, P99MS: new(900.0), P99SentMS: &sentP99, Failed: errors})
	}
	return p
}

func TestLimits(t *testing.T) {
	endless := &Peak{HeldRPS: 6400, P99MS: 100, Steps: []PeakStep{{RPS: 6400, Held: true}}}
	for name, tt := range map[string]struct {
		strategy, none, bare *Peak
		lockless             bool
		want, why            string
	}{
		"the lock":                        {searched(400, 800, 500, 0), searched(3200, 3600, 500, 0), searched(6400, 7000, 500, 0), false, ByLock, "without a lock, the service kept up with 3200/s; with the lock, it did not keep up with 800/s"},
		"the lock, without an endpoint":   {searched(400, 800, 500, 0), searched(3200, 3600, 500, 0), nil, false, ByLock, "without a lock"},
		"the instances":                   {searched(3000, 3300, 500, 0), searched(3200, 3600, 500, 0), searched(6400, 7000, 500, 0), false, ByInstances, "kept up with no rate above 3200/s"},
		"faster than none, which writes":  {searched(3600, 4000, 500, 0), searched(3200, 3600, 500, 0), searched(6400, 7000, 500, 0), false, ByInstances, "no rate above 3200/s"},
		"as fast as a search can tell":    {searched(3000, 3300, 500, 0), searched(3500, 3800, 500, 0), searched(6400, 7000, 500, 0), false, ByInstances, "kept up with no rate above 3500/s"},
		"the control":                     {nil, searched(3200, 3600, 500, 0), searched(6400, 7000, 500, 0), true, ByInstances, "an endpoint that does no work kept up with 6400/s"},
		"no lock, and slower than none":   {searched(400, 800, 500, 0), searched(3200, 3600, 500, 0), searched(6400, 7000, 500, 0), true, ByInstances, "did not keep up with 800/s"},
		"the load generator, which lags":  {searched(3000, 3300, 40, 0), searched(6400, 7000, 500, 0), searched(9000, 9900, 500, 0), false, ByGenerator, "at 3300/s, requests were sent too late"},
		"but not where answers fail":      {searched(400, 800, 40, 3), searched(3200, 3600, 500, 0), searched(6400, 7000, 500, 0), false, ByLock, "without a lock"},
		"as the bare endpoint: generator": {searched(6000, 6400, 500, 0), searched(6000, 6400, 500, 0), searched(6400, 7000, 20, 0), false, ByGenerator, "an endpoint that does no work reached no rate above 6400/s"},
		"as the bare endpoint: HTTP":      {searched(6000, 6400, 500, 0), searched(6000, 6400, 500, 0), searched(6400, 7000, 500, 0), false, ByInstances, "an endpoint that does no work reached no rate above 6400/s"},
		"not reached":                     {endless, searched(3200, 3600, 500, 0), searched(6400, 7000, 500, 0), false, "", "ended before"},
		"the endpoint's not reached":      {searched(6000, 6400, 500, 0), searched(6000, 6400, 500, 0), endless, false, "", "the endpoint that does no work ended before"},
		"no control":                      {searched(400, 800, 500, 0), nil, searched(6400, 7000, 500, 0), false, "", "no run without a lock"},
		"no endpoint":                     {searched(3000, 3300, 500, 0), searched(3200, 3600, 500, 0), nil, false, "", "no endpoint without work"},
		"nothing held":                    {&Peak{P99MS: 100, Steps: []PeakStep{{RPS: 200, P99SentMS: new(500.0)}, {RPS: 100, P99SentMS: new(500.0)}}}, searched(3200, 3600, 500, 0), nil, false, ByLock, "with the lock, it did not keep up with 100/s"},
	} {
		run := &Run{}
		if tt.bare != nil {
			run.Bare = &Bare{Peak: *tt.bare}
		}
		if tt.none != nil {
			run.Cells = append(run.Cells, Cell{Strategy: lockless, Peak: tt.none})
		}
		strategy := "setnx"
		if tt.lockless {
			strategy = "mysql-cas"
		}
		of := tt.none
		if tt.strategy != nil {
			of = tt.strategy
			run.Cells = append(run.Cells, Cell{Strategy: strategy, Peak: tt.strategy})
		}
		run.limit()
		if of.LimitedBy != tt.want || !strings.Contains(of.LimitReason, tt.why) {
			t.Errorf("%s: limited by %q (%s), want %q (%s)", name, of.LimitedBy, of.LimitReason, tt.want, tt.why)
		}
	}
}

// TestPeak runs a short search. It must also measure the strategy without a lock and an endpoint
// without work, although only setnx was requested.
func TestPeak(t *testing.T) {
	cfg := small(t, stack.Embedded, "setnx")
	for _, s := range Scenarios {
		if s.Name == "peak" {
			cfg.Scenario, cfg.Load, cfg.PeakP99, cfg.Work, cfg.TTL, cfg.Wait = s.Name, s.Config.Load, s.Config.PeakP99, s.Config.Work, s.Config.TTL, s.Config.Wait
		}
	}
	cfg.Budget = time.Second
	cfg.Drivers = 4
	run, err := execute(t, t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := namesOf(run.Cells); got != "none/none setnx/none" {
		t.Fatalf("the run has the cells %s", got)
	}
	// Do not check the rates, because a busy machine may not keep up even with the first one.
	if run.Bare == nil || run.Bare.Endpoint != "GET /healthz" || len(run.Bare.Steps) == 0 || run.Bare.LimitReason == "" {
		t.Fatalf("bare: %+v", run.Bare)
	}
	for _, c := range run.Cells {
		if c.Peak == nil || len(c.Peak.Steps) == 0 || c.Peak.LimitReason == "" {
			t.Errorf("peak of %s: %+v", c.Strategy, c.Peak)
		}
		t.Logf("%s: %.0f/s, limited by %q: %s", c.Strategy, c.Peak.HeldRPS, c.Peak.LimitedBy, c.Peak.LimitReason)
	}
	t.Logf("%s: %.0f/s, limited by %q: %s", run.Bare.Endpoint, run.Bare.HeldRPS, run.Bare.LimitedBy, run.Bare.LimitReason)
}

// TestBestOf checks how the attempts of a search are combined: the rate must come from the best
// attempt, and the verdict from the worst.
func TestBestOf(t *testing.T) {
	at := func(rps float64, held bool, v catalog.Verdict, double int) Cell {
		exclusive := new(Yes)
		if double > 0 {
			exclusive = new(No)
		}
		return Cell{OfferedRPS: &rps, LoadHeld: &held, Verdict: v, Reason: "r", DoubleGrabs: &double, Grabs: new(10), DurationS: new(2.0), Exclusive: exclusive}
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	w := &worker{cfg: Defaults("peak"), progress: &workerProgress{progress: newProgress(Config{})}}
	c := w.peak(interrupted, lock.Strategies[0])
	if err := (&Run{Cells: []Cell{c}}).Contradiction(); err != nil || c.Strategy != lock.Strategies[0].Name || c.Verdict != catalog.Unknown || c.Peak == nil || len(c.Peak.Steps) > 0 {
		t.Errorf("no attempt: %+v, %v", c, err)
	}
	for _, tt := range []struct {
		name     string
		attempts []Cell
		rps      float64 // rate of the cell
		verdict  catalog.Verdict
		reason   string
		double   int
		grabs    bool // whether the grabs per second at the held rate are known
	}{
		{"held twice", []Cell{at(100, true, catalog.Safe, 0), at(200, true, catalog.Safe, 0), at(400, false, catalog.Safe, 0)}, 200, catalog.Safe, "r", 0, true},
		{"never held", []Cell{at(100, false, catalog.Safe, 0), at(50, false, catalog.Safe, 0)}, 50, catalog.Safe, "r", 0, false},
		{"unsafe above the held rate", []Cell{at(200, true, catalog.Safe, 0), at(400, false, catalog.Unsafe, 3)}, 200, catalog.Unsafe, "at 400/s r", 3, true},
		{"stuck, then unsafe", []Cell{at(200, true, catalog.Stuck, 0), at(400, false, catalog.Unsafe, 3)}, 200, catalog.Unsafe, "at 400/s r", 3, true},
		{"unsafe, then stuck", []Cell{at(200, true, catalog.Unsafe, 3), at(400, true, catalog.Stuck, 0)}, 400, catalog.Unsafe, "at 200/s r", 3, true},
		{"unknown is no failure", []Cell{at(200, true, catalog.Safe, 0), at(400, false, catalog.Unknown, 0)}, 200, catalog.Safe, "r", 0, true},
	} {
		search := new(Peak)
		c := bestOf(tt.attempts, func(c Cell) bool { return *c.LoadHeld }, search)
		exclusive := map[bool]string{true: Yes, false: No}[tt.double == 0]
		if *c.OfferedRPS != tt.rps || c.Verdict != tt.verdict || c.Reason != tt.reason || *c.DoubleGrabs != tt.double || *c.Exclusive != exclusive || (search.GrabsPerS != nil) != tt.grabs || c.Peak != search {
			t.Errorf("%s: %.0f/s, %s (%s), %d double-grabs, exclusive %s, %+v", tt.name, *c.OfferedRPS, c.Verdict, c.Reason, *c.DoubleGrabs, *c.Exclusive, search)
		}
	}
}

// TestHeldRates checks when a rate counts as held. The requests must be sent on time, or almost, and
// must be answered in time and without an error.
func TestHeldRates(t *testing.T) {
	w := &worker{cfg: Config{PeakP99: 10 * time.Millisecond}}
	for _, p99 := range []float64{1, 10, 10.5} {
		for _, late := range []float64{0, timerNoise / 2, timerNoise, 3 * timerNoise} {
			for _, onTime := range []bool{false, true} {
				for failed := range 2 {
					for timedOut := range 2 {
						c := Cell{
							Latency: &load.Latency{P99: p99}, LatencySent: &load.Latency{P99: p99 - late}, LoadHeld: &onTime,
							Outcomes: map[grab.Outcome]int{grab.Failed: failed, grab.Timeout: timedOut, grab.Busy: 1},
						}
						want := p99 <= 10 && (onTime || late < timerNoise) && failed+timedOut == 0
						if got := w.isHeld(c); got != want {
							t.Errorf("p99 %v ms, %v ms late, on time %v, %d failed, %d timed out: held %v", p99, late, onTime, failed, timedOut, got)
						}
					}
				}
			}
		}
	}
	if w.isHeld(Cell{}) {
		t.Error("a rate without a response was held")
	}
}

// TestEachFailureIsRetried searches for the highest rate of simulated services that also fail at
// random. Every failed attempt must be retried once, and only a second failure must count.
func TestEachFailureIsRetried(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 10))
			capacity := math.Exp(r.Float64() * 10)
			w := &worker{progress: &workerProgress{progress: newProgress(Config{})}}
			w.cfg.Budget, w.cfg.Drivers, w.cfg.PeakP99 = time.Hour, 1+r.IntN(20), time.Second
			p := w.search(t.Context(), func(size Load) Cell {
				time.Sleep(time.Second)
				requests, want := size.Orders*size.Drivers, int(size.Rate*peakStep.Seconds())
				if requests <= want-size.Drivers || requests > want && size.Orders > 1 || size.Orders < 1 || peakStep != 2*time.Second {
					t.Errorf("seed %d: %d orders at %v/s do not last %v", seed, size.Orders, size.Rate, peakStep)
				}
				c := Cell{Latency: &load.Latency{}, LatencySent: &load.Latency{}, LoadHeld: new(true), Outcomes: map[grab.Outcome]int{}}
				if size.Rate > capacity || r.IntN(4) == 0 {
					c.Outcomes[[]grab.Outcome{grab.Failed, grab.Timeout}[r.IntN(2)]] = 1
				}
				return c
			})
			for _, step := range p.Steps {
				if (step.Failed == 1) == step.Held {
					t.Errorf("seed %d: %v, with %d failures", seed, step, step.Failed)
				}
			}
			held, failed := 0.0, math.Inf(1)
			for i := 0; i < len(p.Steps); i++ {
				rate, times := p.Steps[i].RPS, 1
				if !p.Steps[i].Held && i+1 < len(p.Steps) && p.Steps[i+1].RPS == rate {
					i, times = i+1, 2
				}
				switch {
				case rate <= held || rate >= failed:
					t.Fatalf("seed %d: %v is tried between %v and %v: %v", seed, rate, held, failed, p.Steps)
				case p.Steps[i].Held:
					held = rate
				case times == 1:
					t.Fatalf("seed %d: the failure at %v is not retried: %v", seed, rate, p.Steps)
				default:
					failed = rate
				}
			}
			exact := failed <= peakFine*held || failed-held < 1.2 // rates are whole numbers
			if p.HeldRPS != held || held > capacity || held > 0 && !exact {
				t.Fatalf("seed %d: %v for a capacity of %v: %v", seed, p.HeldRPS, capacity, p.Steps)
			}
		})
	}
}

// TestFailureOfASearch gives a search a good and a bad attempt that differ in every field. The fields
// that explain the failure must come from the bad attempt, and all others from the good one.
func TestFailureOfASearch(t *testing.T) {
	explain := strings.Fields("Verdict DoubleGrabs OrdersDoubleGrabbed StuckOrders Overlaps Checks Timeline")
	good, bad := twoCells()
	for _, attempts := range [][]Cell{{good, bad}, {bad, good}} {
		c := reflect.ValueOf(bestOf(attempts, func(c Cell) bool { return c.Verdict == catalog.Safe }, new(Peak)))
		for i := range c.NumField() {
			name, want := c.Type().Field(i).Name, reflect.ValueOf(good).Field(i)
			if slices.Contains(explain, name) {
				want = reflect.ValueOf(bad).Field(i)
			}
			if slices.Contains([]string{"Peak", "Reason", "Exclusive"}, name) { // TestBestOf checks these
				continue
			}
			if !reflect.DeepEqual(c.Field(i).Interface(), want.Interface()) {
				t.Errorf("field %s: %v, want %v", name, c.Field(i), want)
			}
		}
	}
}

// TestLowestFailure checks which of several random attempts counts as the failure that ended a search.
// It must be the last attempt at the lowest rate above the held rate. If a rate failed only once, it
// was held at the second attempt.
func TestLowestFailure(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 20))
	for range 1000 {
		p := &Peak{HeldRPS: float64(r.IntN(4))}
		var want *PeakStep
		for i := range 5 {
			p.Steps = append(p.Steps, PeakStep{RPS: float64(1 + r.IntN(5)), Failed: i, Held: r.IntN(3) == 0})
		}
		for rate := p.HeldRPS + 1; rate <= 5 && want == nil; rate++ {
			for i, s := range p.Steps {
				if s.RPS == rate && !s.Held {
					want = &p.Steps[i]
				}
			}
		}
		if got := p.failed(); got != want {
			t.Fatalf("%+v: failed: %+v, want %+v", p, got, want)
		}
	}
}
