package lockbench

import (
	"fmt"
	"slices"

	"grablab/internal/stat"
)

// BoundRow is a bound that a lock is to keep, and what was measured.
type BoundRow struct {
	Case     string   `json:"case"`
	Strategy string   `json:"strategy"`
	What     string   `json:"what"`
	AtMost   *float64 `json:"at_most"` // one of the two
	AtLeast  *float64 `json:"at_least"`
	Figure   float64  `json:"figure"` // with its 95 % interval
	Low      float64  `json:"low"`
	High     float64  `json:"high"`
	// Verdict is "kept", "missed" if the whole interval lies beyond the bound,
	// else "open".
	Verdict string `json:"verdict"`
}

// The verdicts on a bound.
const (
	Kept   = "kept"
	Missed = "missed"
	Open   = "open"
)

// bound is what is asked of a strategy in a case.
type bound struct {
	name, strategy string
	what           string
	atMost         float64
	atLeast        float64 // one of the two
	figures        func(r *Result, strategy string, c Case) stat.Interval
}

// bounds of our own locks. What is compared with another contestant is left
// out where that one was not measured.
var bounds = []bound{
	{name: "uncontended", strategy: "setnx", what: "acquire and release, of the floor's", atMost: 1.30, figures: p50Over(Floor)},
	{name: "uncontended", strategy: "handoff", what: "acquire and release, of setnx's", atMost: 1.12, figures: p50Over("setnx")},
	{name: "uncontended", strategy: "setnx", what: "the aim: acquire and release, of the floor's", atMost: 1.15, figures: p50Over(Floor)},
	{name: "uncontended", strategy: "handoff", what: "the aim: acquire and release, of the floor's", atMost: 1.15, figures: p50Over(Floor)},
	{name: "many_keys", strategy: "setnx", what: "rate, of redislock's", atLeast: 1, figures: rateOver("redislock")},
	{name: "many_keys", strategy: "handoff", what: "rate, of redislock's", atLeast: 1, figures: rateOver("redislock")},
	{name: "waves", strategy: "handoff", what: "hand-off gap, of two round trips", atMost: 1, figures: gapOverFloor},
	{name: "waves", strategy: "handoff", what: "rate, of rueidislock-1's", atLeast: 2.5, figures: rateOver("rueidislock-1")},
	{name: "waves", strategy: "handoff", what: "rate, of redsync-5ms's", atLeast: 10, figures: rateOver("redsync-5ms")},
	{name: "waves", strategy: "handoff", what: "rate, of redislock-5ms's", atLeast: 10, figures: rateOver("redislock-5ms")},
	{name: "waves", strategy: "handoff", what: "commands sent per acquisition", atMost: 2.1, figures: each(func(s Slice) *float64 { return s.SentPerOp })},
	{name: "closed_loop", strategy: "handoff", what: "commands sent per acquisition", atMost: 2.1, figures: each(func(s Slice) *float64 { return s.SentPerOp })},
	{name: "closed_loop", strategy: "handoff", what: "Jain's index", atLeast: 0.99, figures: each(func(s Slice) *float64 { return s.Jain })},
	{name: "closed_loop", strategy: "handoff", what: "p99.9 of the wait, of workers x (held + median gap)", atMost: 3, figures: waitOverTurn},
}

func p50Over(other string) func(*Result, string, Case) stat.Interval {
	return func(r *Result, strategy string, c Case) stat.Interval {
		return stat.Ratio(within(r.series(strategy, c.Name), r.series(other, c.Name), p50, p50))
	}
}

func rateOver(other string) func(*Result, string, Case) stat.Interval {
	return func(r *Result, strategy string, c Case) stat.Interval {
		return stat.Ratio(within(r.series(strategy, c.Name), r.series(other, c.Name), opsPerS, opsPerS))
	}
}

func gapOverFloor(r *Result, strategy string, c Case) stat.Interval {
	return stat.Ratio(within(r.series(strategy, c.Name), r.series(Floor, c.Name), gapP50, p50))
}

func each(f figure) func(*Result, string, Case) stat.Interval {
	return func(r *Result, strategy string, c Case) stat.Interval { return median(r.series(strategy, c.Name), f) }
}

// waitOverTurn is how often everybody else could have had the lock while one
// waited.
func waitOverTurn(r *Result, strategy string, c Case) stat.Interval {
	return median(r.series(strategy, c.Name), func(s Slice) *float64 {
		if s.GapP50US == nil {
			return nil
		}
		return new(s.WaitP999MS * 1000 / (float64(c.Workers) * (us(c.Held) + *s.GapP50US)))
	})
}

// bounds says how the locks stand to theirs.
func (r *Result) bounds() []BoundRow {
	rows := []BoundRow{}
	for _, b := range bounds {
		i := slices.IndexFunc(r.cases, func(c Case) bool { return c.Name == b.name })
		if i < 0 {
			continue
		}
		x := b.figures(r, b.strategy, r.cases[i])
		if number(x.Median) == nil {
			continue
		}
		row := BoundRow{Case: b.name, Strategy: b.strategy, What: b.what, Figure: x.Median, Low: x.Low, High: x.High}
		if b.atMost > 0 {
			row.AtMost, row.Verdict = &b.atMost, verdict(x.Median <= b.atMost, x.Low > b.atMost)
		} else {
			row.AtLeast, row.Verdict = &b.atLeast, verdict(x.Median >= b.atLeast, x.High < b.atLeast)
		}
		rows = append(rows, row)
	}
	return rows
}

func verdict(kept, missed bool) string {
	switch {
	case kept:
		return Kept
	case missed:
		return Missed
	default:
		return Open
	}
}

// limit is the bound as one says it.
func (b BoundRow) limit() string {
	if b.AtMost != nil {
		return fmt.Sprintf("at most %g", *b.AtMost)
	}
	return fmt.Sprintf("at least %g", *b.AtLeast)
}
