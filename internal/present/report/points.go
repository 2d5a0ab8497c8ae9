package report

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// overlapped reports whether injecting the fault at this step let two clients hold the lock at
// once.
func overlapped(p experiment.Point) bool { return orZero(p.Overlaps) > 0 }

// pointOutcome is a result of injecting a fault in a cell. names lists the steps in a request at
// which the fault had this result.
type pointOutcome struct {
	experiment.Point
	cell  experiment.Cell
	names []string
}

var pointColumns = []column[pointOutcome]{
	text("fault", func(o pointOutcome) string { return string(o.cell.Fault) }),
	text("strategy", func(o pointOutcome) string { return o.cell.Strategy }),
	{heading{Name: "verdict", Left: true}, verdictOf, verdictOf},
	number("at each point", "struck", func(o pointOutcome) string { return fmt.Sprintf("%d/%d", o.Struck, o.Strikes) }),
	number("at each point", "double", func(o pointOutcome) string { return count(o.cell, o.DoubleGrabs) }),
	number("at each point", "stuck", func(o pointOutcome) string { return count(o.cell, o.StuckOrders) }),
	number("at each point", "overlaps", func(o pointOutcome) string { return optional(o.Overlaps, strconv.Itoa) }),
	number("at each point", "near misses", func(o pointOutcome) string { return count(o.cell, o.NearMisses) }),
	text("explained by", func(o pointOutcome) string { return o.FailureMode }),
	text("points", func(o pointOutcome) string { return wrap(strings.Join(o.names, "; "), maxPointsWidth) }),
}

func verdictOf(o pointOutcome) string { return string(o.Verdict) }

// maxPointsWidth is the width in characters at which a list of steps wraps.
const maxPointsWidth = 90

// points returns a table of the steps, such as "before claim 1", at which a fault had a visible
// effect.
func points(cells []experiment.Cell) section {
	bad := catalog.Filter(cells, func(c experiment.Cell) bool { return c.Verdict != catalog.Safe || lockMark(c) != "" })
	outcomes := slices.Concat(catalog.Map(bad, outcomesAt)...)
	if len(outcomes) == 0 {
		return section{}
	}
	return section{Title: "Strike points at which anything happened", Table: tableOf(pointColumns, outcomes)}
}

// hasMoments reports whether a fault was injected at times instead of steps, because the request's
// steps were not visible.
func hasMoments(c experiment.Cell) bool {
	return slices.ContainsFunc(c.Points, experiment.Point.IsMoment)
}

const momentLegend = "these points are moments after a grab was sent, because its steps could not be seen. A step may lie between two moments, " +
	"and a moment at which no grab was in flight is unknown"

// outcomesAt returns the fault's result for each step at which it was injected. Steps with equal
// results are combined.
func outcomesAt(c experiment.Cell) []pointOutcome {
	var outcomes []pointOutcome
	for _, p := range catalog.Filter(c.Points, isEventful) {
		i := slices.IndexFunc(outcomes, func(o pointOutcome) bool { return sameOutcome(o.Point, p) })
		if i < 0 {
			i = len(outcomes)
			outcomes = append(outcomes, pointOutcome{Point: p, cell: c})
		}
		outcomes[i].names = append(outcomes[i].names, p.Point)
	}
	return outcomes
}

// isEventful reports whether the fault at this step had a visible effect, or may have had one.
func isEventful(p experiment.Point) bool {
	return p.Verdict != catalog.Safe || overlapped(p) || orZero(p.NearMisses) > 0
}

func sameOutcome(a, b experiment.Point) bool {
	a.Point, b.Point = "", ""
	return reflect.DeepEqual(a, b)
}
