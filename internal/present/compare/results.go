package compare

import (
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/load"
)

// Runs compares two test runs' verdicts and costs. The paths identify the runs in the report.
func Runs(oldPath string, old *experiment.Run, newPath string, now *experiment.Run) *Comparison {
	c := &Comparison{
		Schema: Schema, Old: sideOf(oldPath, old), New: sideOf(newPath, now), Changes: []Change{}, OnlyOld: []string{}, OnlyNew: []string{}, Costs: []Cost{},
		Unlike: slices.Concat([]string{}, environments(old.Environment, now.Environment), configs(old.Config, now.Config)),
	}
	find := func(run *experiment.Run, like experiment.Cell) int {
		return slices.IndexFunc(run.Cells, func(x experiment.Cell) bool { return x.Name() == like.Name() })
	}
	for _, b := range now.Cells {
		if find(old, b) < 0 {
			c.OnlyNew = append(c.OnlyNew, b.Name().String())
		}
	}
	for _, a := range old.Cells {
		i, name := find(now, a), a.Name().String()
		if i < 0 {
			c.OnlyOld = append(c.OnlyOld, name)
			continue
		}
		b := now.Cells[i]
		c.Unlike = catalog.Distinct(append(c.Unlike, settings(a, b)...))
		c.Cells++
		if verdictText(a) != verdictText(b) {
			c.Changes = append(c.Changes, Change{name, verdictText(a), verdictText(b), b.Reason})
		}
		if a.Fault == catalog.NoFault {
			c.Costs = append(c.Costs, costsOf(a, b)...)
		}
	}
	c.judge()
	return c
}

func sideOf(path string, run *experiment.Run) Side {
	return Side{path, run.StartedAt, run.Environment.Commit, run.Complete}
}

// figure is a kind of cost to compare between two runs. Its last field reads the values from a test
// result.
type figure struct {
	name string
	more bool // whether a larger value is better
	of   func(experiment.Cell) []float64
}

var loadFigures = []figure{
	{"p50 from the schedule, ms", false, latency(func(l load.Latency) float64 { return l.P50 })},
	{"p99 from the schedule, ms", false, latency(func(l load.Latency) float64 { return l.P99 })},
	{"answers a second", true, repetitions(func(r experiment.Repetition) *float64 { return r.CompletedRPS }, func(c experiment.Cell) *float64 { return c.CompletedRPS })},
}

// peakFigures lists the costs to compare in searches for the highest request rate.
var peakFigures = []figure{{"highest rate held, a second", true, func(c experiment.Cell) []float64 {
	if c.Peak == nil {
		return nil
	}
	return []float64{c.Peak.HeldRPS}
}}}

func costsOf(a, b experiment.Cell) (costs []Cost) {
	figures := loadFigures
	if a.Peak != nil || b.Peak != nil {
		figures = peakFigures
	}
	for _, f := range figures {
		x := Cost{Strategy: a.Strategy, Figure: f.name, old: f.of(a), new: f.of(b), more: f.more}
		x.Old, x.New = measure(x.old), measure(x.new)
		if x.Old.N+x.New.N > 0 {
			costs = append(costs, x)
		}
	}
	return costs
}

func latency(of func(load.Latency) float64) func(experiment.Cell) []float64 {
	at := func(l *load.Latency) *float64 {
		if l == nil {
			return nil
		}
		return new(of(*l))
	}
	return repetitions(func(r experiment.Repetition) *float64 { return at(r.Latency) }, func(c experiment.Cell) *float64 { return at(c.Latency) })
}

// repetitions returns a function that reads a figure from each repetition of a test. For a test
// without repetitions, it reads the single value with once.
func repetitions(of func(experiment.Repetition) *float64, once func(experiment.Cell) *float64) func(experiment.Cell) []float64 {
	return func(c experiment.Cell) []float64 {
		if len(c.Repetitions) > 0 {
			return experiment.ValuesOf(c.Repetitions, of)
		}
		if x := once(c); x != nil {
			return []float64{*x}
		}
		return nil
	}
}

// verdictText returns the verdicts on the orders and on the lock as text.
func verdictText(c experiment.Cell) string {
	if c.Exclusive == nil && c.ExpectedExclusive != nil {
		return c.Said() + "; it is not known whether the lock kept holders apart"
	}
	return c.Said()
}

// environments lists the differences between two environments, apart from the commits.
func environments(a, b experiment.Environment) []string {
	return slices.Concat(
		differ("stack", a.Stack, b.Stack), differ("Go", a.Go, b.Go), differ("system", a.OS+"/"+a.Arch, b.OS+"/"+b.Arch), differ("CPUs", a.CPUs, b.CPUs),
		differ("Redis", a.Redis, b.Redis), differ("database", a.Database, b.Database), differ("ZooKeeper", a.ZooKeeper, b.ZooKeeper),
		differ("etcd", a.Etcd, b.Etcd), differ("vegeta", a.Vegeta, b.Vegeta),
	)
}

func configs(a, b experiment.RunConfig) []string {
	return slices.Concat(
		differ("scenario", a.Scenario, b.Scenario), differ("orders", a.Orders, b.Orders), differ("drivers", a.Drivers, b.Drivers),
		differ("rate", a.Rate, b.Rate), differ("drivers of an order close together", a.Together, b.Together), differ("instances", a.Instances, b.Instances),
		differ("units per order", max(a.Stock, 1), max(b.Stock, 1)), differ("units per driver", max(a.PerDriver, 1), max(b.PerDriver, 1)), differ("rules", valueOf(a.Rules), valueOf(b.Rules)),
	)
}

// settings lists the settings in which two tests differ.
func settings(a, b experiment.Cell) []string {
	limit := func(c experiment.Cell) string {
		if c.Peak == nil {
			return ""
		}
		return fmt.Sprint(c.Peak.P99MS)
	}
	return slices.Concat(
		differ("guard", a.Guard, b.Guard), differ("on-lost", a.OnLost, b.OnLost), differ("work ms", valueOf(a.WorkMS), valueOf(b.WorkMS)),
		differ("TTL ms", valueOf(a.TTLMS), valueOf(b.TTLMS)), differ("wait ms", valueOf(a.WaitMS), valueOf(b.WaitMS)), differ("p99 limit ms", limit(a), limit(b)),
	)
}

// valueOf formats *x, or returns "" if x is nil.
func valueOf[T any](x *T) string {
	if x == nil {
		return ""
	}
	return fmt.Sprint(*x)
}

// differ returns a text such as "what: a, now b" if a and b differ, and nil otherwise.
func differ[T comparable](what string, a, b T) []string {
	if a == b {
		return nil
	}
	text := func(x T) string {
		if s := fmt.Sprint(x); s != "" {
			return s
		}
		return "none"
	}
	return []string{fmt.Sprintf("%s: %s, now %s", what, text(a), text(b))}
}
