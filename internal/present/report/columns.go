package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/stat"
	"grablab/internal/testbed/load"
)

// column describes one column of a table. Each row of such a table shows one cell of the run.
type column struct {
	heading
	value func(experiment.Cell) string
}

// text returns a left-aligned column of words.
func text(name string, value func(experiment.Cell) string) column {
	return column{heading{Name: name, Left: true}, value}
}

// number returns a right-aligned column of figures.
func number(group, name string, value func(experiment.Cell) string) column {
	return column{heading{Group: group, Name: name}, value}
}

// loadColumns are the columns for the results of a load. There are no columns for costs, because a
// single run cannot measure costs reliably.
var loadColumns = []column{
	text("strategy", func(c experiment.Cell) string { return c.Strategy + heldMark(c) }),
	text("verdict", verdict),
	number("ledger", "grabs", func(c experiment.Cell) string { return count(c, c.Grabs) }),
	number("ledger", "double", doubleGrabText),
	number("ledger", "orders", func(c experiment.Cell) string { return count(c, c.OrdersGrabbed) }),
	number("ledger", "stuck", func(c experiment.Cell) string { return count(c, c.StuckOrders) }),
	number("answers", "grabbed", outcome("grabbed")),
	number("answers", "taken", outcome("taken")),
	number("answers", "busy", outcome("busy")),
	number("answers", "error", outcome("error")),
	number("answers", "timeout", outcome("timeout")),
}

// saleColumns are the columns for orders with several units.
var saleColumns = []column{
	loadColumns[0],
	loadColumns[1],
	number("ledger", "sold", func(c experiment.Cell) string { return count(c, c.Grabs) }),
	number("ledger", "oversold", doubleGrabText),
	number("ledger", "undersold", sale(func(s *experiment.Sale) *int { return s.Undersold }, strconv.Itoa)),
	number("ledger", "lost updates", sale(func(s *experiment.Sale) *int { return s.LostUpdates }, strconv.Itoa)),
	number("ms", "sold out", sale(func(s *experiment.Sale) *float64 { return s.SoldOutMS }, millis)),
	number("ms", "p99", func(c experiment.Cell) string {
		return figure(c, c.Latency, func(l load.Latency) string { return millis(l.P99) })
	}),
	number("", "in order", sale(func(s *experiment.Sale) *float64 { return s.InOrder }, percent)),
	number("answers", "grabbed", outcome("grabbed")),
	number("answers", "taken", outcome("taken")),
	number("answers", "busy", outcome("busy")),
	number("answers", "error", outcome("error")),
	number("answers", "timeout", outcome("timeout")),
}

// sale returns the value function of a column. The column shows a figure that exists only for
// orders with several units.
func sale[T any](of func(*experiment.Sale) *T, format func(T) string) func(experiment.Cell) string {
	return func(c experiment.Cell) string {
		if c.Sale == nil {
			return placeholder(c)
		}
		return figure(c, of(c.Sale), format)
	}
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 0, 64) + " %" }

// isSale reports whether the orders of a run had several units.
func isSale(run *experiment.Run) bool {
	return slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return c.Sale != nil })
}

// costColumns are the columns for the costs of a load. The costs are measured in several repetitions.
var costColumns = []column{
	strategyColumn,
	text("verdict", verdict),
	number("", "runs", func(c experiment.Cell) string { return strconv.Itoa(len(c.Repetitions)) }),
	number("ms, schedule", "p50", latencyOf(func(r experiment.Repetition) *load.Latency { return r.Latency }, func(l load.Latency) float64 { return l.P50 })),
	number("ms, schedule", "p99", latencyOf(func(r experiment.Repetition) *load.Latency { return r.Latency }, func(l load.Latency) float64 { return l.P99 })),
	number("ms, sent", "p50", latencyOf(func(r experiment.Repetition) *load.Latency { return r.LatencySent }, func(l load.Latency) float64 { return l.P50 })),
	number("ms, sent", "p99", latencyOf(func(r experiment.Repetition) *load.Latency { return r.LatencySent }, func(l load.Latency) float64 { return l.P99 })),
	number("per second", "done", overRepetitions(func(r experiment.Repetition) *float64 { return r.CompletedRPS }, rate)),
	number("per second", "grabs", overRepetitions(func(r experiment.Repetition) *float64 { return r.GrabsPerS }, rate)),
	number("redis", "/req", overRepetitions(func(r experiment.Repetition) *float64 { return r.RedisCommandsPerRequest }, ratio)),
}

// overRepetitions returns the value function of a column. The column shows the median of a figure
// over all repetitions, with its confidence interval.
func overRepetitions(of func(experiment.Repetition) *float64, format func(float64) string) func(experiment.Cell) string {
	return func(c experiment.Cell) string {
		values := experiment.ValuesOf(c.Repetitions, of)
		if len(values) == 0 {
			return placeholder(c)
		}
		x := stat.Median(values)
		if len(values) == 1 {
			return format(x.Median)
		}
		return fmt.Sprintf("%s [%s, %s]", format(x.Median), format(x.Low), format(x.High))
	}
}

func latencyOf(of func(experiment.Repetition) *load.Latency, at func(load.Latency) float64) func(experiment.Cell) string {
	return overRepetitions(func(r experiment.Repetition) *float64 {
		if l := of(r); l != nil {
			return new(at(*l))
		}
		return nil
	}, millis)
}

// repeatedCells returns the cells that ran more than once.
func repeatedCells(cells []experiment.Cell) []experiment.Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c experiment.Cell) bool { return len(c.Repetitions) < 2 })
}

// peakColumns are the columns for the results of a search for the highest rate.
var peakColumns = []column{
	strategyColumn,
	text("verdict", verdict),
	number("highest rate held", "req/s", func(c experiment.Cell) string {
		return peak(c, func(p *experiment.Peak) *float64 { return &p.HeldRPS })
	}),
	number("highest rate held", "grabs/s", func(c experiment.Cell) string {
		return peak(c, func(p *experiment.Peak) *float64 { return p.GrabsPerS })
	}),
	text("limited by", func(c experiment.Cell) string {
		if c.Peak == nil || c.Peak.LimitedBy == "" {
			return "?"
		}
		return c.Peak.LimitedBy
	}),
	number("ledger", "double", doubleGrabText),
	text("rates tried, p99 in ms", steps),
}

var (
	strategyColumn = text("strategy", func(c experiment.Cell) string { return c.Strategy })
	faultColumn    = text("fault", func(c experiment.Cell) string { return string(c.Fault) })
)

// columnsOf returns the columns in which a run of this kind shows its cells without a fault.
func columnsOf(run *experiment.Run, cells []experiment.Cell) []column {
	columns := loadColumns
	switch {
	case isPeak(run):
		columns = peakColumns
	case isSale(run):
		columns = saleColumns
	}
	return renameForAnswers(cells, columns)
}

// renameForAnswers renames the columns whose figures were counted in answers, because there is no ledger.
func renameForAnswers(cells []experiment.Cell, columns []column) []column {
	if !answersAlone(cells) {
		return columns
	}
	columns = slices.Clone(columns)
	for i := range columns {
		if columns[i].Group == "ledger" {
			columns[i].Group = fromAnswers
		}
	}
	return slices.DeleteFunc(columns, func(c column) bool {
		return c.Group == fromAnswers && (c.Name == "grabs" || c.Name == "sold" || c.Name == "lost updates")
	}) // these columns need a ledger
}

const fromAnswers = "answers"

// answersAlone reports whether the figures of all cells were counted in the answers, because the
// service has no ledger.
func answersAlone(cells []experiment.Cell) bool {
	return slices.ContainsFunc(cells, countedFromAnswers) &&
		!slices.ContainsFunc(cells, func(c experiment.Cell) bool { return c.CountedFrom != fromAnswers && c.Verdict != catalog.NA })
}

func countedFromAnswers(c experiment.Cell) bool {
	return c.CountedFrom == fromAnswers && c.DoubleGrabs != nil
}

// doubleGrabText returns the number of double-grabs as text. If there may be more, a mark shows
// that the number is a lower bound.
func doubleGrabText(c experiment.Cell) string {
	if c.LowerBound && c.DoubleGrabs != nil {
		return atLeast + strconv.Itoa(*c.DoubleGrabs)
	}
	return count(c, c.DoubleGrabs)
}

func isPeak(run *experiment.Run) bool {
	return slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return c.Peak != nil })
}

const (
	asExpected  = "✓"
	notExpected = "✗"
	notHeld     = "*"
	notClaimed  = "°"
	letIn       = "·" // the lock had two holders at once
	lockUnknown = letIn + "?"
	atLeast     = "≥"
)

// verdict returns the verdict on the orders. Marks say whether the lock failed, and whether the
// verdict was expected.
func verdict(c experiment.Cell) string {
	return markedVerdict(string(c.Verdict)+lockMark(c), c.Expected != nil, !differs(c))
}

// markedVerdict returns a verdict with a mark that says whether it was expected. It adds no mark if no
// verdict was expected.
func markedVerdict(verdict string, expected, as bool) string {
	switch {
	case !expected:
		return verdict
	case as:
		return verdict + " " + asExpected
	default:
		return verdict + " " + notExpected
	}
}

// differs reports whether the verdict on the orders or on the lock differs from the expected
// verdict.
func differs(c experiment.Cell) bool { return !c.AsExpected() }

func heldMark(c experiment.Cell) string {
	if c.LoadHeld != nil && !*c.LoadHeld {
		return notHeld
	}
	return ""
}

// placeholder returns the text that stands for a figure that the cell does not have.
func placeholder(c experiment.Cell) string {
	if c.Verdict == catalog.NA || c.Verdict == "" { // the row of the endpoint that does nothing has no verdict
		return "-"
	}
	return "?"
}

// figure formats *x. If x is nil, it returns the text that stands for a missing figure.
func figure[T any](c experiment.Cell, x *T, format func(T) string) string {
	if x == nil {
		return placeholder(c)
	}
	return format(*x)
}

func count(c experiment.Cell, n *int) string { return figure(c, n, strconv.Itoa) }

func outcome(o grab.Outcome) func(experiment.Cell) string {
	return func(c experiment.Cell) string {
		if c.Requests == 0 {
			return placeholder(c)
		}
		return strconv.Itoa(c.Outcomes[o])
	}
}

// withBare returns the cells of a run for a table. If the run also measured an endpoint that does
// nothing, such as GET /healthz, that endpoint comes first.
func withBare(run *experiment.Run) []experiment.Cell {
	if run.Bare == nil {
		return run.Cells
	}
	bare := experiment.Cell{Strategy: run.Bare.Endpoint, Peak: &run.Bare.Peak}
	return append([]experiment.Cell{bare}, run.Cells...)
}

func peak(c experiment.Cell, of func(*experiment.Peak) *float64) string {
	switch {
	case c.Peak == nil:
		return placeholder(c)
	case c.Peak.HeldRPS == 0:
		return "0"
	}
	return figure(c, of(c.Peak), rate)
}

func steps(c experiment.Cell) string {
	if c.Peak == nil {
		return placeholder(c)
	}
	tried := make([]string, len(c.Peak.Steps))
	for i, s := range c.Peak.Steps {
		mark := asExpected
		if !s.Held {
			mark = notExpected
		}
		tried[i] = fmt.Sprintf("%s:%s%s", rate(s.RPS), figure(c, s.P99MS, millis), mark)
	}
	return strings.Join(tried, " ")
}

// millis formats milliseconds. Below 10 ms, it shows two decimals.
func millis(ms float64) string {
	if ms < 10 {
		return strconv.FormatFloat(ms, 'f', 2, 64)
	}
	return rate(ms)
}

// rate formats a number. Below 100, it shows one decimal.
func rate(x float64) string {
	if x < 100 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return formatWhole(x)
}

func ratio(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }
