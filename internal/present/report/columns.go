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

func text[T any](name string, value func(T) string) column[T] {
	return column[T]{heading: heading{Name: name, Left: true}, value: value}
}

func number[T any](group, name string, value func(T) string) column[T] {
	return column[T]{heading: heading{Group: group, Name: name}, value: value}
}

type cellColumn = column[experiment.Cell]

// loadColumns lists the columns for a load test. Costs are in a separate table, because a single
// run cannot measure them reliably.
var loadColumns = slices.Concat([]cellColumn{
	markedStrategyColumn,
	verdictColumn,
	grabsColumn,
	doubleColumn,
	number("ledger", "orders", func(c experiment.Cell) string { return count(c, c.OrdersGrabbed) }),
	stuckColumn,
}, outcomeColumns)

// saleColumns lists the columns for orders with several units.
var saleColumns = slices.Concat([]cellColumn{
	markedStrategyColumn,
	verdictColumn,
	number("ledger", "sold", func(c experiment.Cell) string { return count(c, c.Grabs) }),
	number("ledger", "oversold", doubleGrabText),
	number("ledger", "undersold", sale(func(s *experiment.Sale) *int { return s.Undersold }, strconv.Itoa)),
	number("ledger", "lost updates", sale(func(s *experiment.Sale) *int { return s.LostUpdates }, strconv.Itoa)),
	number("ms", "sold out", sale(func(s *experiment.Sale) *float64 { return s.SoldOutMS }, millis)),
	number("ms", "p99", func(c experiment.Cell) string {
		return figure(c, c.Latency, func(l load.Latency) string { return millis(l.P99) })
	}),
	number("", "in order", sale(func(s *experiment.Sale) *float64 { return s.InOrder }, percent)),
}, outcomeColumns)

// outcomeColumns has a column for each kind of response, with the number of requests that got it.
var outcomeColumns = catalog.Map(grab.Outcomes, func(o grab.Outcome) cellColumn {
	return number("answers", string(o), func(c experiment.Cell) string {
		if c.Requests == 0 {
			return placeholder(c)
		}
		return strconv.Itoa(c.Outcomes[o])
	})
})

// sale returns a function that formats a figure about orders with several units, or a placeholder
// if a test has no such orders.
func sale[T any](of func(*experiment.Sale) *T, format func(T) string) func(experiment.Cell) string {
	return func(c experiment.Cell) string {
		if c.Sale == nil {
			return placeholder(c)
		}
		return figure(c, of(c.Sale), format)
	}
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 0, 64) + " %" }

// isSale reports whether any order in the run has several units.
func isSale(run *experiment.Run) bool {
	return slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return c.Sale != nil })
}

// costColumns lists the columns for costs, which are measured several times to be reliable.
var costColumns = []cellColumn{
	strategyColumn,
	verdictColumn,
	number("", "runs", func(c experiment.Cell) string { return strconv.Itoa(len(c.Repetitions)) }),
	number("ms, schedule", "p50", latencyOf(func(r experiment.Repetition) *load.Latency { return r.Latency }, func(l load.Latency) float64 { return l.P50 })),
	number("ms, schedule", "p99", latencyOf(func(r experiment.Repetition) *load.Latency { return r.Latency }, func(l load.Latency) float64 { return l.P99 })),
	number("ms, sent", "p50", latencyOf(func(r experiment.Repetition) *load.Latency { return r.LatencySent }, func(l load.Latency) float64 { return l.P50 })),
	number("ms, sent", "p99", latencyOf(func(r experiment.Repetition) *load.Latency { return r.LatencySent }, func(l load.Latency) float64 { return l.P99 })),
	number("per second", "done", overRepetitions(func(r experiment.Repetition) *float64 { return r.CompletedRPS }, rate)),
	number("per second", "grabs", overRepetitions(func(r experiment.Repetition) *float64 { return r.GrabsPerS }, rate)),
	number("redis", "/req", overRepetitions(func(r experiment.Repetition) *float64 { return r.RedisCommandsPerRequest }, ratio)),
}

// overRepetitions returns a function that formats a figure's median over all repetitions of a test.
// For several repetitions, it adds the confidence interval.
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

func repeatedCells(cells []experiment.Cell) []experiment.Cell {
	return catalog.Filter(cells, func(c experiment.Cell) bool { return len(c.Repetitions) >= 2 })
}

// peakColumns lists the columns for a search for the highest request rate that the service can
// sustain.
var peakColumns = []cellColumn{
	strategyColumn,
	verdictColumn,
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
	doubleColumn,
	text("rates tried, p99 in ms", steps),
}

// Several tables share these columns.
var (
	strategyColumn       = text("strategy", func(c experiment.Cell) string { return c.Strategy })
	markedStrategyColumn = text("strategy", func(c experiment.Cell) string { return c.Strategy + heldMark(c) })
	verdictColumn        = cellColumn{heading{Name: "verdict", Left: true}, verdict, class}
	grabsColumn          = number("ledger", "grabs", func(c experiment.Cell) string { return count(c, c.Grabs) })
	doubleColumn         = number("ledger", "double", doubleGrabText)
	stuckColumn          = number("ledger", "stuck", func(c experiment.Cell) string { return count(c, c.StuckOrders) })
)

func columnsOf(run *experiment.Run, cells []experiment.Cell) []cellColumn {
	columns := loadColumns
	switch {
	case isPeak(run):
		columns = peakColumns
	case isSale(run):
		columns = saleColumns
	}
	return renameForAnswers(cells, columns)
}

// renameForAnswers adapts the columns if all figures come from HTTP responses.
func renameForAnswers(cells []experiment.Cell, columns []cellColumn) []cellColumn {
	if !answersAlone(cells) {
		return columns
	}
	columns = slices.Clone(columns)
	for i := range columns {
		if columns[i].Group == "ledger" {
			columns[i].Group = fromAnswers
		}
	}
	return slices.DeleteFunc(columns, func(c cellColumn) bool {
		return c.Group == fromAnswers && (c.Name == "grabs" || c.Name == "sold" || c.Name == "lost updates")
	}) // these columns need a ledger
}

const fromAnswers = "answers"

// answersAlone reports whether all figures come from HTTP responses, because the service's database
// was not read or names fewer winners.
func answersAlone(cells []experiment.Cell) bool {
	return slices.ContainsFunc(cells, countedFromAnswers) &&
		!slices.ContainsFunc(cells, func(c experiment.Cell) bool { return c.CountedFrom != fromAnswers && c.Verdict != catalog.NA })
}

func countedFromAnswers(c experiment.Cell) bool {
	return c.CountedFrom == fromAnswers && c.DoubleGrabs != nil
}

// doubleGrabText formats the number of double-grabs. A "≥" in front means that the real number may be
// higher.
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
	letIn       = "·" // two clients held the lock at once
	lockUnknown = letIn + "?"
	atLeast     = "≥"
)

// verdict formats the verdict on the orders. Marks show whether two clients held the lock at once,
// and whether the verdict was expected.
func verdict(c experiment.Cell) string {
	text := string(c.Verdict) + lockMark(c)
	if c.Expected == nil {
		return text
	}
	return compared(text, !differs(c), new(true))
}

// compared adds ✓ to text if got is the expected value, and ✗ if it is not. Without an expectation,
// it adds nothing.
func compared[T comparable](text string, got T, expected *T) string {
	switch {
	case expected == nil:
		return text
	case got == *expected:
		return text + " " + asExpected
	default:
		return text + " " + notExpected
	}
}

func differs(c experiment.Cell) bool { return !c.AsExpected() }

func isClaimed(c experiment.Cell) bool { return c.Expected != nil }

func heldMark(c experiment.Cell) string {
	if c.LoadHeld != nil && !*c.LoadHeld {
		return notHeld
	}
	return ""
}

// placeholder returns the text for a missing figure: "-" if it does not apply, and "?" if it is
// unknown.
func placeholder(c experiment.Cell) string {
	if c.Verdict == catalog.NA || c.Verdict == "" { // the no-op endpoint's row has no verdict
		return "-"
	}
	return "?"
}

// figure formats *x, or returns a placeholder if x is nil.
func figure[T any](c experiment.Cell, x *T, format func(T) string) string {
	if x == nil {
		return placeholder(c)
	}
	return format(*x)
}

func count(c experiment.Cell, n *int) string { return figure(c, n, strconv.Itoa) }

// withBare returns a run's results as table rows. If the run has measured a no-op endpoint, such as
// GET /healthz, its row comes first.
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

// millis formats milliseconds, with two decimals below 10 ms.
func millis(ms float64) string {
	if ms < 10 {
		return strconv.FormatFloat(ms, 'f', 2, 64)
	}
	return rate(ms)
}

// rate formats a number, with one decimal below 100.
func rate(x float64) string {
	if x < 100 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return formatWhole(x)
}

func ratio(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }
