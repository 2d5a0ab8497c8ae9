package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

const (
	peakFirst = 200.0 // first rate that the search tries, in requests per second
	peakStep  = 2 * time.Second
	peakFine  = 1.1 // the search ends when two rates differ by less than this factor
)

// lockless is the strategy without a lock. A search for the highest rate compares all other
// strategies with it.
const lockless = "none"

// peak searches for the highest rate that a strategy can sustain, and returns the result.
func (w *worker) peak(ctx context.Context, s lock.Strategy) Cell {
	var attempts []Cell
	search := w.search(ctx, func(size Load) Cell {
		attempts = append(attempts, w.cell(ctx, s, size))
		return attempts[len(attempts)-1]
	})
	if len(attempts) == 0 { // the run was interrupted before the first attempt
		c := w.blank(s, catalog.NoFault, w.cfg.Load)
		c.Verdict, c.Reason, c.Peak = catalog.Unknown, "not measured: the run was interrupted", search
		return c
	}
	return bestOf(attempts, w.isHeld, search)
}

// bestOf returns the attempt with the highest rate that the strategy sustained, or the last attempt if it
// sustained none. Its verdict, with the figures that explain it, comes from the attempt with the worst
// failure.
func bestOf(attempts []Cell, held func(Cell) bool, search *Peak) Cell {
	var best, bad *Cell
	exclusive := new(Yes)
	for i := range attempts {
		c := &attempts[i]
		if held(*c) {
			best = c
		}
		if c.Verdict.IsFailure() && (bad == nil || c.Verdict.WorseThan(bad.Verdict)) {
			bad = c
		}
		exclusive = bothExclusive(exclusive, c.Exclusive)
	}
	if best != nil && best.Grabs != nil {
		search.GrabsPerS = new(float64(*best.Grabs) / *best.DurationS)
	}
	result := *cmp.Or(best, &attempts[len(attempts)-1])
	result.Peak, result.Exclusive = search, exclusive
	if bad != nil {
		result.Verdict, result.Reason = bad.Verdict, fmt.Sprintf("at %.0f/s %s", *bad.OfferedRPS, bad.Reason)
		result.DoubleGrabs, result.OrdersDoubleGrabbed, result.StuckOrders = bad.DoubleGrabs, bad.OrdersDoubleGrabbed, bad.StuckOrders
		result.Overlaps, result.Checks, result.Timeline = bad.Overlaps, bad.Checks, bad.Timeline
	}
	return result
}

// search doubles the rate until an attempt fails, and then narrows down the highest rate until time
// runs out. It retries each failed attempt once, because a busy machine may be the cause.
func (w *worker) search(ctx context.Context, try func(Load) Cell) *Peak {
	var (
		search = &Peak{P99MS: millis(w.cfg.PeakP99), Steps: []PeakStep{}}
		low    = 0.0         // highest rate that was sustained
		high   = math.Inf(1) // lowest rate that was not sustained
		end    = time.Now().Add(w.cfg.Budget)
		rate   = peakFirst
		again  bool
	)
	for ctx.Err() == nil && high/low > peakFine && (len(search.Steps) == 0 || time.Now().Before(end)) {
		size := w.cfg.Load
		size.Rate = rate
		size.Orders = max(1, int(rate*peakStep.Seconds())/size.Drivers)
		attempt := try(size)
		step := PeakStep{RPS: rate, Held: w.isHeld(attempt)}
		if attempt.Latency != nil {
			step.P99MS, step.P99SentMS = &attempt.Latency.P99, &attempt.LatencySent.P99
		}
		step.Failed = attempt.Outcomes[grab.Failed] + attempt.Outcomes[grab.Timeout]
		search.Steps = append(search.Steps, step)
		w.progress.say("  %s", step)
		switch {
		case step.Held:
			low, again = rate, false
		case !again:
			again = true
			continue
		default:
			high, again = rate, false
		}
		if rate = nextRate(low, high); rate < 1 || rate == low || rate == high { // no whole rate is left between the two
			break
		}
	}
	search.HeldRPS = low
	return search
}

// nextRate returns the next rate to try. It doubles low until a rate has failed, and halves high
// until a rate has been sustained. After that, it returns their geometric mean.
func nextRate(low, high float64) float64 {
	switch {
	case math.IsInf(high, 1):
		return low * 2
	case low == 0:
		return high / 2
	default:
		return math.Round(math.Sqrt(low * high))
	}
}

// bare searches for the highest rate of an endpoint that does no work, which shows the limits of
// HTTP and of the load generator. It returns nil for a user's service.
func (w *worker) bare(ctx context.Context) (*Bare, error) {
	if !w.fleet.Ours && !w.fleet.Known() {
		return nil, nil
	}
	const path = "/healthz"
	shape, _, _ := target.Spec{Method: http.MethodGet, Path: path + "?{order}", Body: new("")}.Compile() // a request template must contain the order
	if err := w.fleet.Equip(ctx, w.cfg.setup()); err != nil {
		return nil, err
	}
	w.progress.say("GET %s", path)
	var failed error
	search := w.search(ctx, func(size Load) Cell {
		var c Cell
		size.Shape = shape
		a := newAccounting(size.Drivers, w.fleet.IDs(), shape)
		err := load.Attack(ctx, load.NewPlan(w.fleet.URLs(), 1, size.Orders, size.Drivers, w.cfg.Seed), size, func(r *vegeta.Result, due time.Time) {
			failed = cmp.Or(failed, a.add(r, due))
		})
		a.finish()
		if a.requests > 0 && err == nil {
			c.lasted(a)
			c.answers(a)
		}
		return c
	})
	if failed != nil || ctx.Err() != nil {
		return nil, failed
	}
	return &Bare{Endpoint: "GET " + path, Peak: *search}, nil
}

// Peak.LimitedBy has one of these values, or is empty.
const (
	ByGenerator = "load generator"
	ByInstances = "instances"
	ByLock      = "lock"
)

// limit finds out what limited the rate in each search. For this, it compares each strategy with
// requests without a lock, and with an endpoint that does no work.
func (r *Run) limit() {
	var bare, none *Peak
	if r.Bare != nil {
		bare = &r.Bare.Peak
		bare.LimitedBy, bare.LimitReason = limitOf(bare, nil, bare, false)
	}
	i := slices.IndexFunc(r.Cells, func(c Cell) bool { return c.Strategy == lockless && c.Peak != nil })
	if i >= 0 {
		none = r.Cells[i].Peak
	}
	for _, c := range r.Cells {
		if c.Peak == nil {
			continue
		}
		s, err := lock.Find(c.Strategy)
		locks := err != nil || s.Excludes != catalog.NoExclusion
		c.Peak.LimitedBy, c.Peak.LimitReason = limitOf(c.Peak, none, bare, locks)
	}
}

// limitOf returns what limited a strategy's highest rate p, and why. It compares p with none, the
// rate without a lock, and with bare, the rate of an endpoint that does no work. limit is "" if the
// cause is unknown.
func limitOf(p, none, bare *Peak, locks bool) (limit, why string) {
	failed := p.failed()
	if failed == nil {
		return "", "the search ended before any rate was too high, so the limit is not known"
	}
	above := func(other *Peak) bool { return other.HeldRPS > peakFine*failed.RPS }
	switch {
	case failed.isLate(p.P99MS):
		return ByGenerator, fmt.Sprintf("at %.0f/s, requests were sent too late: measured from the send time, the p99 was %.1f ms", failed.RPS, *failed.P99SentMS)
	case p == bare:
		return ByInstances, fmt.Sprintf("at %.0f/s, responses came too late or not at all", failed.RPS)
	case locks && none != nil && above(none):
		return ByLock, fmt.Sprintf("without a lock, the service kept up with %.0f/s; with the lock, it did not keep up with %.0f/s", none.HeldRPS, failed.RPS)
	case bare != nil && !above(bare) && bare.LimitedBy != "":
		return bare.LimitedBy, fmt.Sprintf("even an endpoint that does no work reached no rate above %.0f/s", bare.HeldRPS)
	case none == nil && locks:
		return "", "there is no run without a lock to compare with"
	case bare == nil:
		return "", "no endpoint without work was measured, so either the load generator or the instances may be the limit"
	case !above(bare):
		return "", "the search on the endpoint that does no work ended before any rate was too high"
	case p == none || !locks:
		return ByInstances, fmt.Sprintf("an endpoint that does no work kept up with %.0f/s, but a grab without a lock did not keep up with %.0f/s", bare.HeldRPS, failed.RPS)
	default:
		return ByInstances, fmt.Sprintf("even without a lock, the service kept up with no rate above %.0f/s", none.HeldRPS)
	}
}

// failed returns the failed attempt with the lowest rate, or nil if no attempt failed. If that rate
// was tried twice, it returns the second attempt.
func (p *Peak) failed() *PeakStep {
	var lowest *PeakStep
	for i, s := range p.Steps {
		if !s.Held && s.RPS > p.HeldRPS && (lowest == nil || s.RPS <= lowest.RPS) {
			lowest = &p.Steps[i]
		}
	}
	return lowest
}

// isLate reports whether an attempt failed only because the load generator sent requests late.
func (s PeakStep) isLate(bound float64) bool {
	return s.Failed == 0 && s.P99SentMS != nil && *s.P99SentMS <= bound
}

// String formats the step, such as "400/s: p99 12.3 ms, held".
func (s PeakStep) String() string {
	what := "not held"
	if s.Held {
		what = "held"
	}
	if s.P99MS == nil {
		return fmt.Sprintf("%.0f/s: no responses", s.RPS)
	}
	return fmt.Sprintf("%.0f/s: p99 %.1f ms, %s", s.RPS, *s.P99MS, what)
}

// timerNoise is how much the timers of a busy machine may add to a latency, in milliseconds.
const timerNoise = 2.0

// isHeld reports whether the service kept up with the load: every request was sent on time and
// answered within the latency limit.
func (w *worker) isHeld(c Cell) bool {
	return c.Latency != nil &&
		(*c.LoadHeld || c.Latency.P99-c.LatencySent.P99 < timerNoise) &&
		c.Latency.P99 <= millis(w.cfg.PeakP99) &&
		c.Outcomes[grab.Failed] == 0 && c.Outcomes[grab.Timeout] == 0
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
