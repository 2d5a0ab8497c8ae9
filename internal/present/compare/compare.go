// Package compare finds the differences between an old and a new test run.
//
// A Comparison lists the verdicts that changed, and says which costs, such as a latency, have
// increased. The statistical test is the one in benchstat. With many costs, about one in twenty would
// seem to change by chance. Holm's method corrects for this: it limits the probability that any cost is
// reported as changed by mistake.
//
// Start reading at Runs, and continue with judge.
package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/measure/stat"

	"golang.org/x/perf/benchmath"
)

// Comparison lists the differences between two runs.
type Comparison struct {
	Schema int  `json:"schema"`
	Old    Side `json:"old"`
	New    Side `json:"new"`
	// Unlike lists how the environments and settings of the two runs differ, because this may explain
	// different figures.
	Unlike  []string `json:"unlike"`
	Cells   int      `json:"cells"`   // how many cells both runs have
	Changes []Change `json:"changes"` // the verdicts that differ
	OnlyOld []string `json:"only_old"`
	OnlyNew []string `json:"only_new"`
	Alpha   float64  `json:"alpha"` // probability that at least one answer "slower" or "faster" is wrong
	Costs   []Cost   `json:"costs"`
}

// Schema is the version of the JSON format of a Comparison.
const Schema = 2

// Side identifies one of the two compared runs.
type Side struct {
	Path      string    `json:"path"`
	StartedAt time.Time `json:"started_at"`
	Commit    string    `json:"commit"`
	Complete  bool      `json:"complete"`
}

// Change is a cell with different verdicts in the two runs.
type Change struct {
	Cell string `json:"cell"` // the strategy and the fault, as strategy/fault
	Old  string `json:"old"`
	New  string `json:"new"`
	Why  string `json:"why"` // the reason for the new verdict; may be empty
}

// Cost compares one figure, such as a latency, between two runs.
type Cost struct {
	Strategy string   `json:"strategy"`
	Figure   string   `json:"figure"` // name of the figure, with its unit
	Old      Measured `json:"old"`
	New      Measured `json:"new"`
	Change   *float64 `json:"change"` // the new value divided by the old one; nil if a value is unknown or 0
	P        *float64 `json:"p"`      // the test's p-value; nil if no test was possible
	Answer   Answer   `json:"answer"`
	Why      string   `json:"why"` // why the answer is not known; may be empty

	old, new []float64 // the values that are compared
	more     bool      // whether a larger value is better
}

// Measured is a median with its 95 % confidence interval.
type Measured struct {
	N      int      `json:"n"`
	Median *float64 `json:"median"`
	Low    *float64 `json:"low"` // nil if there are too few values for an interval
	High   *float64 `json:"high"`
}

// Answer says whether the measurements show that a cost has increased or decreased.
type Answer string

// These are the possible answers for a cost. Slower also covers a lower request rate.
const (
	Slower   Answer = "slower"
	Faster   Answer = "faster"
	Same     Answer = "no difference"
	NotShown Answer = "none shown" // there may be a difference, but the test does not show one
	NotKnown Answer = "not known"
)

const (
	alpha      = 0.05
	noticeable = 0.01 // smaller relative changes are ignored
)

// Worse reports whether any verdict has changed or any cost has risen.
func (c *Comparison) Worse() bool {
	return len(c.Changes) > 0 || c.count(Slower) > 0
}

func (c *Comparison) count(a Answer) int {
	return len(catalog.Filter(c.Costs, func(x Cost) bool { return x.Answer == a }))
}

// Summary sums up the comparison in one sentence.
func (c *Comparison) Summary() string {
	unknown := c.count(NotKnown)
	var parts []string
	if len(c.Changes) > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d verdicts changed", len(c.Changes), c.Cells))
	}
	for _, a := range []Answer{Slower, Faster} {
		if n := c.count(a); n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d costs %s", n, len(c.Costs), a))
		}
	}
	if len(parts) == 0 {
		switch {
		case c.Cells == 0 && len(c.Costs) == 0:
			return "the runs have no cell or cost in common"
		case unknown+c.count(NotShown) == 0:
			return "no difference"
		case unknown == 0:
			return "no difference shown"
		default:
			parts = append(parts, "no verdict changed")
		}
	}
	if unknown > 0 {
		parts = append(parts, fmt.Sprintf("for %d of %d costs, it is not known", unknown, len(c.Costs)))
	}
	return strings.Join(parts, "; ")
}

// judge decides for every cost whether it has changed. Because it tests many costs, it uses Holm's
// method, so that chance differences do not count.
func (c *Comparison) judge() {
	c.Alpha = alpha
	var tested []*Cost
	for i := range c.Costs {
		x := &c.Costs[i]
		x.Answer = NotKnown
		switch {
		case len(x.old) == 0 || len(x.new) == 0:
			x.Why = "the cost was not measured in both runs"
		case slices.Equal(x.old, x.new):
			x.Answer = Same
		default:
			a, b := sample(x.old), sample(x.new)
			x.P = new(benchmath.AssumeNothing.Compare(a, b).P)
			tested = append(tested, x)
		}
		if len(x.old) > 0 && len(x.new) > 0 && medianOf(x.old) != 0 {
			x.Change = new(medianOf(x.new) / medianOf(x.old))
		}
	}
	slices.SortStableFunc(tested, func(a, b *Cost) int { return cmp.Compare(*a.P, *b.P) })
	holds := true
	for i, x := range tested {
		bound := alpha / float64(len(tested)-i)
		holds = holds && *x.P <= bound
		up := x.Change == nil || *x.Change > 1
		switch {
		case holds && x.Change != nil && math.Abs(*x.Change-1) < noticeable:
			x.Answer = Same
		case holds && up == x.more:
			x.Answer = Faster
		case holds:
			x.Answer = Slower
		case leastP(len(x.old), len(x.new)) > alpha/float64(len(tested)):
			x.Why = fmt.Sprintf("%d and %d measurements are too few, because with %d costs each run needs %d", len(x.old), len(x.new), len(tested), enough(len(tested)))
			x.Answer = NotKnown
		default:
			x.Answer = NotShown
		}
	}
}

// leastP returns the smallest p-value that a test can reach with n and m values. The test reaches it if
// the two groups of values do not overlap.
func leastP(n, m int) float64 {
	ways := 1.0 // the number of ways to choose n of n+m values
	for i := 1; i <= n; i++ {
		ways *= float64(m+i) / float64(i)
	}
	return 2 / ways
}

// enough returns how many measurements each run needs so that a clear difference is significant
// despite this number of tests.
func enough(tests int) int {
	n := 1
	for leastP(n, n) > alpha/float64(tests) {
		n++
	}
	return n
}

func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

func medianOf(values []float64) float64 { return stat.Median(values).Median }

// measure returns the median of values with its confidence interval. If there are no values, both
// are nil.
func measure(values []float64) Measured {
	if len(values) == 0 {
		return Measured{}
	}
	x := stat.Median(values)
	m := Measured{N: len(values), Median: &x.Median}
	if len(values) >= stat.Enough {
		m.Low, m.High = &x.Low, &x.High
	}
	return m
}
