package report

import (
	"fmt"
	"slices"
	"strconv"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
)

// detailColumns lists the columns for tests under a fault.
var detailColumns = []cellColumn{
	text("fault", func(c experiment.Cell) string { return string(c.Fault) }),
	strategyColumn,
	{heading{Name: "verdict", Left: true}, func(c experiment.Cell) string {
		return compared(string(c.Verdict), c.Verdict, c.Expected)
	}, class},
	text("exclusive", exclusive),
	number("", "struck", struck),
	grabsColumn,
	doubleColumn,
	stuckColumn,
	number("events", "overlaps", func(c experiment.Cell) string { return optional(c.Overlaps, strconv.Itoa) }),
	number("events", "near misses", func(c experiment.Cell) string { return count(c, c.NearMisses) }),
	number("ms", "lease", func(c experiment.Cell) string { return figure(c, c.LeaseMS, formatWhole) }),
	number("ms", "belief gap", func(c experiment.Cell) string { return optional(c.BeliefGapMS, formatWhole) }),
	text("explained by", mode),
}

// exclusive says whether the lock kept other clients out, with a mark that says whether this was expected.
func exclusive(c experiment.Cell) string {
	switch {
	case c.Exclusive != nil:
		return compared(*c.Exclusive, *c.Exclusive, c.ExpectedExclusive)
	case c.Verdict == catalog.NA || !locks(c.Strategy):
		return "-"
	default:
		return compared("?", "?", c.ExpectedExclusive)
	}
}

// locks reports whether a strategy uses a lock. For an unknown strategy, it returns true.
func locks(strategy string) bool {
	s, err := lock.Find(strategy)
	return err != nil || s.Excludes != catalog.NoExclusion
}

// struck returns the number of steps in a request at which the fault was injected as often as
// planned. If the result has no steps, it returns how many requests the fault hit.
func struck(c experiment.Cell) string {
	if !hasPoints(c) {
		return count(c, c.Struck)
	}
	asPlanned := catalog.Filter(c.Points, func(p experiment.Point) bool { return p.Struck >= p.Strikes })
	return fmt.Sprintf("%d/%d", len(asPlanned), len(c.Points))
}

func hasPoints(c experiment.Cell) bool { return len(c.Points) > 0 }

// optional formats *x, or returns "-" if x is nil.
func optional[T any](x *T, format func(T) string) string {
	if x == nil {
		return "-"
	}
	return format(*x)
}

func formatWhole(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }

func mode(c experiment.Cell) string {
	if c.Timeline == nil {
		return ""
	}
	return c.Timeline.Mode
}

var timelineColumns = []column[check.Step]{
	number("", "ms", func(s check.Step) string { return strconv.FormatFloat(s.TMS, 'f', 1, 64) }),
	text("instance", func(s check.Step) string { return s.Instance }),
	number("", "driver", func(s check.Step) string { return strconv.FormatInt(s.Driver, 10) }),
	text("what happened", func(s check.Step) string { return s.Event }),
	text("what the driver believed", func(s check.Step) string { return s.Believed }),
	text("what was true", func(s check.Step) string { return s.True }),
}

// timeline shows what happened to one order, and the failure mode, if any, that explains it.
func timeline(c experiment.Cell) section {
	s := c.Timeline
	explained := "no known failure mode explains this failure: look below for the first step at which a driver believes something that is not true"
	if s.Mode != "" {
		explained = fmt.Sprintf("%s: %s; cure: %s", s.Mode, s.Name, s.Cure)
	}
	return section{
		Title: fmt.Sprintf("%s is %s: the timeline of order %d", name(c), c.Said(), s.Order),
		Lines: []string{explained},
		Table: tableOf(timelineColumns, s.Steps),
	}
}

// decisive lists the properties that determine a verdict. The notes skip them, because the table
// already shows the verdict.
var decisive = []string{catalog.OneWinner, catalog.HoldersExclusive, catalog.StuckOrder, catalog.AnswersAgree}

// doubleGrabs lists the properties that cannot hold once an order was given to two drivers.
var doubleGrabs = []string{catalog.Linearizable, catalog.WritesExclusive}

// otherFailures describes the violated properties that did not affect the verdict.
func otherFailures(c experiment.Cell) []string {
	var why []string
	for _, k := range c.Checks {
		property, _ := catalog.FindProperty(k.Property) // an older run may use an old name
		implied := slices.Contains(doubleGrabs, property.Name) && orZero(c.DoubleGrabs) > 0
		if k.Result == check.Fail && !implied && !slices.Contains(decisive, property.Name) {
			why = append(why, property.Name+": "+k.Why)
		}
	}
	return why
}
