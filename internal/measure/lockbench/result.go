package lockbench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/stat"
)

// Schema is the format version of bench.json.
const Schema = 1

// Result is the content of bench.json. An unknown figure is nil, never 0.
type Result struct {
	Schema      int                    `json:"schema"`
	Complete    bool                   `json:"complete"` // false if the benchmark is still running or was interrupted
	StartedAt   time.Time              `json:"started_at"`
	DurationS   float64                `json:"duration_s"`
	Environment experiment.Environment `json:"environment"`
	Config      ResultConfig           `json:"config"`
	Rounds      int                    `json:"rounds"` // number of complete rounds
	Rows        []Row                  `json:"rows"`
	Bounds      []BoundRow             `json:"bounds"`
	LeftOut     []LeftOut              `json:"left_out"`

	Slices []Slice `json:"-"` // the raw measurements, from which rows and bounds are computed

	subjects []Subject
	cases    []Case
	failures map[string]int
}

// ResultConfig records the settings of the benchmark.
type ResultConfig struct {
	Rounds  int      `json:"rounds"`
	SliceMS float64  `json:"slice_ms"`
	Seed    uint64   `json:"seed"`
	Cases   []string `json:"cases"`
}

// LeftOut names a lock that was not measured, with the reason.
type LeftOut struct {
	Strategy string `json:"strategy"`
	Reason   string `json:"reason"`
}

// Row contains one lock's figures in one case. Most figures are medians over the rounds, with 95 %
// intervals, but counts and waits cover all rounds.
type Row struct {
	Figures
	Peer    bool    `json:"peer"`
	Rounds  int     `json:"rounds"`
	OpsLow  float64 `json:"ops_low"`
	OpsHigh float64 `json:"ops_high"`

	// Ratio is the lock's cost divided by the floor's cost. The function cost says which figure is the
	// cost in each case.
	Ratio     *float64 `json:"ratio_to_floor"`
	RatioLow  *float64 `json:"ratio_low"`
	RatioHigh *float64 `json:"ratio_high"`

	GapLow     *float64 `json:"handoff_gap_low_us"`
	GapHigh    *float64 `json:"handoff_gap_high_us"`
	WaitP999MS *float64 `json:"wait_p999_ms"`
	LongestMS  *float64 `json:"longest_wait_ms"`
	Turns      *int     `json:"longest_wait_turns"`
	GaveUp     *int     `json:"gave_up"` // failed Acquire calls, each retried at once
}

func newResult(cfg Config) *Result {
	res := &Result{
		Schema: Schema, StartedAt: time.Now().UTC(), Environment: experiment.NewEnvironment(cfg.Stack.Kind),
		Config: ResultConfig{Rounds: cfg.Rounds, SliceMS: ms(cfg.Slice), Seed: cfg.Seed},
		Rows:   []Row{}, Bounds: []BoundRow{}, LeftOut: append([]LeftOut{}, cfg.LeftOut...),
		subjects: []Subject{floor},
		cases:    cfg.Cases,
		failures: map[string]int{},
	}
	res.Config.Cases = catalog.Map(cfg.Cases, func(c Case) string { return c.Name })
	res.subjects = append(res.subjects, catalog.Filter(cfg.Subjects, func(s Subject) bool { return s.Name != Floor })...)
	return res
}

// maxFailures is how many times a lock may fail before the benchmark skips it. A single failure is
// not enough, because a busy machine may cause it.
const maxFailures = 3

func (r *Result) failed(name string, err error) {
	if r.failures[name]++; r.failures[name] == maxFailures {
		r.LeftOut = append(r.LeftOut, LeftOut{name, err.Error()})
	}
}

func (r *Result) isLeftOut(name string) bool { return r.failures[name] >= maxFailures }

// add adds one round's measurements, and recomputes all figures.
func (r *Result) add(measured []Slice, whole bool) {
	r.Slices = append(r.Slices, measured...)
	if whole {
		r.Rounds++
	}
	r.DurationS = time.Since(r.StartedAt).Seconds()
	r.Rows = []Row{}
	for _, c := range r.cases {
		for _, s := range r.subjects {
			if of := r.series(s.Name, c.Name); len(of) > 0 {
				r.Rows = append(r.Rows, r.row(s, c, of))
			}
		}
	}
	r.Bounds = r.bounds()
}

// series returns a lock's measurements in a case, in round order.
func (r *Result) series(strategy, name string) []Slice {
	return catalog.Filter(r.Slices, func(s Slice) bool { return s.Strategy == strategy && s.Case == name })
}

// row combines the rounds of one subject and case. Most figures are medians over the rounds. Waits
// are percentiles over all rounds, and violations are sums.
func (r *Result) row(subject Subject, c Case, of []Slice) Row {
	row := Row{Figures: Figures{Strategy: subject.Name, Case: c.Name}, Peer: subject.Peer, Rounds: len(of)}
	ops := median(of, opsPerS)
	row.OpsPerS, row.OpsLow, row.OpsHigh = ops.Median, ops.Low, ops.High
	row.P50US, row.P99US = median(of, p50).Median, median(of, p99).Median
	row.GapP50US, row.GapLow, row.GapHigh = knownInterval(median(of, gapP50))
	row.GapP99US, _, _ = knownInterval(median(of, gapP99))
	row.GapMeanUS, _, _ = knownInterval(median(of, gapMean))
	row.GapCrossUS, _, _ = knownInterval(median(of, gapAcross))
	row.SentPerOp, _, _ = knownInterval(median(of, sentPerOp))
	row.InsidePerOp, _, _ = knownInterval(median(of, insidePerOp))
	for _, s := range of {
		row.Acquisitions += s.Acquisitions
	}
	if subject.Name == Floor {
		row.Ratio, row.RatioLow, row.RatioHigh = new(1.0), new(1.0), new(1.0)
		return row
	}
	row.Ratio, row.RatioLow, row.RatioHigh = knownInterval(stat.Ratio(pairedValues(of, r.series(Floor, c.Name), cost(c), cost(c.forFloor()))))
	row.Jain, _, _ = knownInterval(median(of, jainIndex))
	row.SelfRetake, _, _ = knownInterval(median(of, retaken))
	row.GaveUp, row.Violations = new(int), new(int) // every slice of a lock has both of these counts
	var waits []float64
	for _, s := range of {
		waits = append(waits, s.waits...)
		if s.Turns != nil {
			row.Turns = new(max(*s.Turns, *cmp.Or(row.Turns, new(int))))
		}
		*row.GaveUp += s.GaveUp
		*row.Violations += *s.Violations
	}
	slices.Sort(waits)
	row.WaitP999MS, row.LongestMS = new(percentile(waits, 0.999)), new(percentile(waits, 1))
	return row
}

// figure selects a value from a measurement, such as the rate. It returns nil if the value is
// unknown.
type figure = func(Slice) *float64

func opsPerS(s Slice) *float64     { return &s.OpsPerS }
func p50(s Slice) *float64         { return &s.P50US }
func p99(s Slice) *float64         { return &s.P99US }
func gapP50(s Slice) *float64      { return s.GapP50US }
func gapP99(s Slice) *float64      { return s.GapP99US }
func gapMean(s Slice) *float64     { return s.GapMeanUS }
func gapAcross(s Slice) *float64   { return s.GapCrossUS }
func sentPerOp(s Slice) *float64   { return s.SentPerOp }
func insidePerOp(s Slice) *float64 { return s.InsidePerOp }
func jainIndex(s Slice) *float64   { return s.Jain }
func retaken(s Slice) *float64     { return s.SelfRetake }

func turns(s Slice) *float64 {
	if s.Turns == nil {
		return nil
	}
	return new(float64(*s.Turns))
}

// timePerOp returns the time per acquisition in µs: the total time divided by the acquisitions of
// all workers.
func timePerOp(s Slice) *float64 { return new(1e6 / s.OpsPerS) }

// cost returns the figure by which the locks in a case are compared. For example, if workers share a
// key, this is the hand-off gap.
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

// median returns a figure's median and 95 % interval, over all rounds in which the figure is known.
func median(of []Slice, f figure) stat.Interval {
	var values []float64
	for _, s := range of {
		if v := f(s); v != nil {
			values = append(values, *v)
		}
	}
	return stat.Median(values)
}

// pairedValues returns the values of two figures from the rounds in which both are known.
func pairedValues(a, b []Slice, fa, fb figure) (as, bs []float64) {
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

// knownInterval returns an interval's median and both ends, or nil for all three if there are no
// values.
func knownInterval(i stat.Interval) (median, low, high *float64) {
	if math.IsNaN(i.Median) {
		return nil, nil, nil
	}
	return &i.Median, &i.Low, &i.High
}

// Wrong returns a sentence for each missed limit, and for each lock that had two holders at once.
func (r *Result) Wrong() (wrong []string) {
	for _, b := range r.Bounds {
		if b.Verdict == Missed {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s: %.3f [%.3f, %.3f], want %s", b.Case, b.Strategy, b.What, b.Figure, b.Low, b.High, b.limit()))
		}
	}
	for _, row := range r.Rows {
		if row.Violations != nil && *row.Violations > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %d holders entered while another was inside", row.Case, row.Strategy, *row.Violations))
		}
	}
	return wrong
}

// JSON writes the result as bench.json.
func JSON(w io.Writer, r *Result) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// JSONLines writes one line of JSON for each measurement.
func JSONLines(w io.Writer, r *Result) error {
	enc := json.NewEncoder(w)
	for _, s := range r.Slices {
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
	return nil
}
