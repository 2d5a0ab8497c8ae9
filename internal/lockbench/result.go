package lockbench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"grablab/internal/bench"
	"grablab/internal/grab/lock"
	"grablab/internal/stat"
)

// Schema is the version of bench.json.
const Schema = 1

// Result is bench.json. A figure that means nothing or could not be counted is
// nil, never 0.
type Result struct {
	Schema      int               `json:"schema"`
	Complete    bool              `json:"complete"` // false: interrupted, or under way
	StartedAt   time.Time         `json:"started_at"`
	DurationS   float64           `json:"duration_s"`
	Environment bench.Environment `json:"environment"`
	Config      ResultConfig      `json:"config"`
	Rounds      int               `json:"rounds"` // that are complete
	Rows        []Row             `json:"rows"`
	Bounds      []BoundRow        `json:"bounds"`
	LeftOut     []LeftOut         `json:"left_out"`

	Slices []Slice `json:"-"` // as they were measured: rows and bounds are drawn from them

	contestants []Contestant
	cases       []Case
	waits       map[cell][]float64 // ms
	failures    map[string]int
}

// ResultConfig is what was asked for.
type ResultConfig struct {
	Rounds  int      `json:"rounds"`
	SliceMS float64  `json:"slice_ms"`
	Seed    uint64   `json:"seed"`
	Cases   []string `json:"cases"`
}

// LeftOut is a contestant that failed, and was not asked again.
type LeftOut struct {
	Strategy string `json:"strategy"`
	Reason   string `json:"reason"`
}

// Row is one contestant in one case. Figures are medians of the rounds' own,
// with their 95 % intervals, but for counts, and for the waits: these are over
// all rounds together.
type Row struct {
	Strategy     string `json:"strategy"`
	Peer         bool   `json:"peer"`
	Case         string `json:"case"`
	Rounds       int    `json:"rounds"`
	Acquisitions int    `json:"acquisitions"`

	OpsPerS float64 `json:"ops_per_s"`
	OpsLow  float64 `json:"ops_low"`
	OpsHigh float64 `json:"ops_high"`
	P50US   float64 `json:"p50_us"` // of an acquire and its release, without the time between them
	P99US   float64 `json:"p99_us"`

	// Ratio is of p50; in many_keys, of the time for which an acquisition keeps
	// the machine busy, 1/ops_per_s; where many want one lock, of the hand-off
	// gap to the floor's p50.
	Ratio     *float64 `json:"ratio_to_floor"`
	RatioLow  *float64 `json:"ratio_low"`
	RatioHigh *float64 `json:"ratio_high"`

	GapP50US *float64 `json:"handoff_gap_p50_us"`
	GapLow   *float64 `json:"handoff_gap_low_us"`
	GapHigh  *float64 `json:"handoff_gap_high_us"`
	GapP99US *float64 `json:"handoff_gap_p99_us"`

	SentPerOp   *float64 `json:"commands_per_op"`
	InsidePerOp *float64 `json:"script_commands_per_op"` // that scripts ran inside of Redis, not sent

	Jain       *float64 `json:"jain"`
	SelfRetake *float64 `json:"self_retake"`
	WaitP999MS *float64 `json:"wait_p999_ms"`
	LongestMS  *float64 `json:"longest_wait_ms"`
	GaveUp     *int     `json:"gave_up"` // how often it did, and was called again at once
	Violations *int     `json:"violations"`
}

// cell is one contestant in one case.
type cell struct{ strategy, name string }

// needs says whether a contestant needs all of b.
func (r *Result) needs(b lock.Backend) bool {
	return slices.ContainsFunc(r.contestants, func(c Contestant) bool { return c.Needs&b == b })
}

// maxFailures is how often a contestant may fail: a machine that stands still
// for seconds is not its fault.
const maxFailures = 3

func (r *Result) failed(name string, err error) {
	if r.failures[name]++; r.failures[name] == maxFailures {
		r.LeftOut = append(r.LeftOut, LeftOut{name, err.Error()})
	}
}

func (r *Result) isLeftOut(name string) bool {
	return slices.ContainsFunc(r.LeftOut, func(l LeftOut) bool { return l.Strategy == name })
}

// add takes what a round has measured, and draws rows and bounds again.
func (r *Result) add(measured []Slice, whole bool) {
	for _, s := range measured {
		at := cell{s.Strategy, s.Case}
		r.waits[at] = append(r.waits[at], s.waits...)
		s.waits = nil
		r.Slices = append(r.Slices, s)
	}
	if whole {
		r.Rounds++
	}
	r.DurationS = time.Since(r.StartedAt).Seconds()
	r.Rows = []Row{}
	for _, c := range r.cases {
		for _, who := range r.contestants {
			if of := r.series(who.Name, c.Name); len(of) > 0 {
				r.Rows = append(r.Rows, r.row(who, c, of))
			}
		}
	}
	r.Bounds = r.bounds()
}

// series is what was measured of a cell, round after round.
func (r *Result) series(strategy, name string) (of []Slice) {
	for _, s := range r.Slices {
		if s.Strategy == strategy && s.Case == name {
			of = append(of, s)
		}
	}
	return of
}

func (r *Result) row(who Contestant, c Case, of []Slice) Row {
	row := Row{Strategy: who.Name, Peer: who.Peer, Case: c.Name, Rounds: len(of)}
	ops := median(of, opsPerS)
	row.OpsPerS, row.OpsLow, row.OpsHigh = ops.Median, ops.Low, ops.High
	row.P50US = median(of, p50).Median
	row.P99US = median(of, func(s Slice) *float64 { return &s.P99US }).Median

	floor := r.series(Floor, c.Name)
	ratio := stat.Ratio(within(of, floor, cost(c), floorCost(c)))
	if who.Name == Floor {
		ratio = stat.Interval{Median: 1, Low: 1, High: 1}
	}
	if row.Ratio = number(ratio.Median); row.Ratio != nil {
		row.RatioLow, row.RatioHigh = &ratio.Low, &ratio.High
	}
	gap := median(of, gapP50)
	if row.GapP50US = number(gap.Median); row.GapP50US != nil {
		row.GapLow, row.GapHigh = &gap.Low, &gap.High
	}
	row.GapP99US = number(median(of, func(s Slice) *float64 { return s.GapP99US }).Median)
	row.SentPerOp = number(median(of, func(s Slice) *float64 { return s.SentPerOp }).Median)
	row.InsidePerOp = number(median(of, func(s Slice) *float64 { return s.InsidePerOp }).Median)
	for _, s := range of {
		row.Acquisitions += s.Acquisitions
	}
	if who.Name != Floor {
		r.fight(&row, of)
	}
	return row
}

// fight fills in what there is to tell only of locks.
func (r *Result) fight(row *Row, of []Slice) {
	row.Jain = number(median(of, func(s Slice) *float64 { return s.Jain }).Median)
	row.SelfRetake = number(median(of, func(s Slice) *float64 { return s.SelfRetake }).Median)
	waits := slices.Sorted(slices.Values(r.waits[cell{row.Strategy, row.Case}]))
	row.WaitP999MS, row.LongestMS = new(percentile(waits, 0.999)), &waits[len(waits)-1]
	row.GaveUp = new(int)
	for _, s := range of {
		*row.GaveUp += s.GaveUp
		if s.Violations != nil {
			if row.Violations == nil {
				row.Violations = new(int)
			}
			*row.Violations += *s.Violations
		}
	}
}

// figure is one of a slice; nil: it is not known there.
type figure = func(Slice) *float64

func opsPerS(s Slice) *float64 { return &s.OpsPerS }
func p50(s Slice) *float64     { return &s.P50US }
func gapP50(s Slice) *float64  { return s.GapP50US }

// timePerOp is the time in which all workers together have had one acquisition.
func timePerOp(s Slice) *float64 { return new(1e6 / s.OpsPerS) }

// cost is what is compared in a case: alone, how long an acquire and its release
// take; side by side, how many there are; in a fight, how long the lock is
// nobody's.
func cost(c Case) figure {
	switch {
	case c.contended():
		return gapP50
	case c.Workers > 1:
		return timePerOp
	default:
		return p50
	}
}

// floorCost is what it is compared with: a hand-off, with two round trips.
func floorCost(c Case) figure { return cost(c.forFloor()) }

// median of a figure over the rounds in which it is known.
func median(of []Slice, f figure) stat.Interval {
	var known []float64
	for _, s := range of {
		if v := f(s); v != nil {
			known = append(known, *v)
		}
	}
	return stat.Median(known)
}

// within pairs two series up: a figure of one and a figure of the other, for
// every round in which both are known.
func within(a, b []Slice, fa, fb figure) (as, bs []float64) {
	other := map[int]*float64{}
	for _, s := range b {
		other[s.Round] = fb(s)
	}
	for _, s := range a {
		if va, vb := fa(s), other[s.Round]; va != nil && vb != nil {
			as, bs = append(as, *va), append(bs, *vb)
		}
	}
	return as, bs
}

// number is nil for what is none.
func number(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

// Wrong says in a sentence each what must not be: bounds that were missed, and
// locks that two held.
func (r *Result) Wrong() (wrong []string) {
	for _, b := range r.Bounds {
		if b.Verdict == Missed {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s: %.3f [%.3f, %.3f], want %s", b.Case, b.Strategy, b.What, b.Figure, b.Low, b.High, b.limit()))
		}
	}
	for _, row := range r.Rows {
		if row.Violations != nil && *row.Violations > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %d holders came in while another was inside", row.Case, row.Strategy, *row.Violations))
		}
	}
	return wrong
}

// overlaps sums up over all locks.
func (r *Result) overlaps() (acquisitions, overlaps int) {
	for _, row := range r.Rows {
		if row.Violations != nil {
			acquisitions += row.Acquisitions
			overlaps += *row.Violations
		}
	}
	return acquisitions, overlaps
}

// JSON writes bench.json.
func JSON(w io.Writer, r *Result) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// JSONLines writes every slice as it was measured, one object a line.
func JSONLines(w io.Writer, r *Result) error {
	enc := json.NewEncoder(w)
	for _, s := range r.Slices {
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
	return nil
}
