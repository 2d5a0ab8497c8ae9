package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
)

const (
	peakFirst = 200.0 // requests/s of the first step
	peakStep  = 2 * time.Second
	peakFine  = 1.1 // two rates that lie closer than this are not told apart
)

// peak searches the highest rate that is held: it doubles the rate until a
// step is not held, then halves the interval, in proportion, until the budget
// is spent. A step that was not held is tried once more, for the machine may
// have been busy with something else. The cell's figures are those of the
// highest step that held.
func (w *worker) peak(ctx context.Context, s lock.Strategy) Cell {
	var (
		search  = Peak{P99MS: millis(w.cfg.Peak.P99), Steps: []PeakStep{}}
		best    *Cell
		low     = 0.0         // the highest rate that held
		high    = math.Inf(1) // the lowest that did not
		end     = time.Now().Add(w.cfg.Budget)
		rate    = peakFirst
		again   bool
		attempt Cell
		bad     *Cell // the first step that was unsafe or left an order stuck
	)
	for ctx.Err() == nil && high/low > peakFine && (len(search.Steps) == 0 || time.Now().Before(end)) {
		size := w.cfg.Load
		size.Rate = rate
		size.Orders = max(1, int(rate*peakStep.Seconds())/size.Drivers)
		attempt = w.cell(ctx, s, size)
		if bad == nil && (attempt.Verdict == catalog.Unsafe || attempt.Verdict == catalog.Stuck) {
			bad = new(attempt)
		}
		step := PeakStep{RPS: rate, Held: w.isHeld(attempt)}
		if attempt.Latency != nil {
			step.P99MS = &attempt.Latency.P99
		}
		search.Steps = append(search.Steps, step)
		w.progress.say("  %s", step)
		switch {
		case step.Held:
			low, best, again = rate, new(attempt), false
		case !again:
			again = true
			continue
		default:
			high, again = rate, false
		}
		if rate = nextRate(low, high); rate < 1 {
			break
		}
	}
	if best == nil {
		best = &attempt
	} else {
		search.HeldRPS = low
		if best.Grabs != nil {
			search.GrabsPerS = new(float64(*best.Grabs) / *best.DurationS)
		}
	}
	best.Peak = &search
	if bad != nil {
		best.Verdict, best.Reason = bad.Verdict, fmt.Sprintf("at %.0f/s %s", *bad.OfferedRPS, bad.Reason)
	}
	return *best
}

// nextRate doubles while nothing has failed, halves while nothing has held,
// and in between takes the geometric middle.
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

// String is "400/s: p99 12.3 ms, held".
func (s PeakStep) String() string {
	what := "not held"
	if s.Held {
		what = "held"
	}
	if s.P99MS == nil {
		return fmt.Sprintf("%.0f/s: no answers", s.RPS)
	}
	return fmt.Sprintf("%.0f/s: p99 %.1f ms, %s", s.RPS, *s.P99MS, what)
}

// timerNoise is by how many milliseconds the two load.Histogram part on a busy
// machine although nothing queues.
const timerNoise = 2.0

// isHeld says whether a step held its rate: every request was answered, the
// load was held to within what a timer can tell, and the 99th percentile kept
// its bound.
func (w *worker) isHeld(c Cell) bool {
	return c.Latency != nil &&
		(*c.LoadHeld || c.Latency.P99-c.LatencySent.P99 < timerNoise) &&
		c.Latency.P99 <= millis(w.cfg.Peak.P99) &&
		c.Outcomes[grab.Failed] == 0 && c.Outcomes[grab.Timeout] == 0
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
