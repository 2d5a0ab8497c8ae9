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

// pointOutcome is a result of injecting a fault. names lists the steps in a request at which the
// fault had this result.
type pointOutcome struct {
	experiment.Point
	names []string
}

var pointHeadings = []heading{
	{Name: "fault", Left: true}, {Name: "strategy", Left: true}, {Name: "verdict", Left: true},
	{Group: "at each point", Name: "struck"}, {Group: "at each point", Name: "double"}, {Group: "at each point", Name: "stuck"},
	{Group: "at each point", Name: "overlaps"}, {Group: "at each point", Name: "near misses"},
	{Name: "explained by", Left: true}, {Name: "points", Left: true},
}

// maxPointsWidth is the width in characters at which a list of steps wraps.
const maxPointsWidth = 90

// points returns a table of the steps, such as "before claim 1", at which a fault had a visible
// effect.
func points(cells []experiment.Cell) section {
	s := section{Title: "Strike points at which anything happened", Table: table{Headings: pointHeadings}}
	for _, c := range cells {
		if c.Verdict == catalog.Safe && lockMark(c) == "" {
			continue
		}
		for _, o := range outcomesAt(c) {
			s.Table.Rows = append(s.Table.Rows, []field{
				{Text: string(c.Fault)}, {Text: c.Strategy}, {Text: string(o.Verdict), Class: string(o.Verdict)},
				{Text: fmt.Sprintf("%d/%d", o.Struck, o.Strikes)}, {Text: figure(c, o.DoubleGrabs, strconv.Itoa)}, {Text: figure(c, o.StuckOrders, strconv.Itoa)},
				{Text: optional(o.Overlaps, strconv.Itoa)}, {Text: figure(c, o.NearMisses, strconv.Itoa)},
				{Text: o.FailureMode}, {Text: listed(o.names)},
			})
		}
	}
	if len(s.Table.Rows) == 0 {
		return section{}
	}
	s.Lines = pointLegend(cells)
	if momentary(cells) {
		s.Lines = []string{momentLegend}
	}
	return s
}

// pointLegend explains the columns and the step names in the table.
func pointLegend(cells []experiment.Cell) []string {
	occurs := func(text string) bool {
		return slices.ContainsFunc(cells, func(c experiment.Cell) bool {
			return slices.ContainsFunc(outcomesAt(c), func(o pointOutcome) bool {
				return slices.ContainsFunc(o.names, func(name string) bool { return strings.Contains(name, text) })
			})
		})
	}
	struck := "struck: how often the fault struck at this point, out of how often it should have struck"
	if occurs("waiting: ") || occurs("handing over: ") {
		struck += `; a driver that is "waiting" arrived while another one had the lock; a driver that is "handing over" releases the lock to a waiting driver`
	}
	return applying([]remark{
		{true, struck},
		{occurs("before claim 1"), `"before claim 1" comes after the holder has checked its lease for the last time`},
	})
}

// momentary reports whether any fault was injected at a time instead of a step, because the
// request's steps were not visible.
func momentary(cells []experiment.Cell) bool {
	return slices.ContainsFunc(cells, func(c experiment.Cell) bool { return slices.ContainsFunc(c.Points, experiment.Point.IsMoment) })
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
			outcomes = append(outcomes, pointOutcome{Point: p})
		}
		outcomes[i].names = append(outcomes[i].names, p.Point)
	}
	return outcomes
}

// listed joins names with semicolons, and wraps long lines.
func listed(names []string) string {
	var b strings.Builder
	line := 0
	for i, name := range names {
		switch {
		case i == 0:
		case line+width(name) > maxPointsWidth:
			b.WriteString(";\n")
			line = 0
		default:
			b.WriteString("; ")
		}
		b.WriteString(name)
		line += width(name) + len("; ")
	}
	return b.String()
}

// isEventful reports whether the fault at this step had a visible effect, or may have had one.
func isEventful(p experiment.Point) bool {
	return p.Verdict != catalog.Safe || overlapped(p) || orZero(p.NearMisses) > 0
}

func sameOutcome(a, b experiment.Point) bool {
	a.Point, b.Point = "", ""
	return reflect.DeepEqual(a, b)
}
