package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
)

// isMatrix reports whether any strategy of the run was tested under a fault.
func isMatrix(run *experiment.Run) bool {
	return slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return c.Fault != catalog.NoFault })
}

// maxFaultColumns limits the number of columns in a table of verdicts.
const maxFaultColumns = 9

// matrix returns tables of verdicts, with strategies as rows and faults as columns. Strategies that
// are broken on purpose have separate tables.
func matrix(run *experiment.Run) []section {
	var strategies, broken []experiment.Cell
	for _, c := range run.Cells {
		if slices.ContainsFunc(lock.KnownBroken, func(s lock.Strategy) bool { return s.Name == c.Strategy }) {
			broken = append(broken, c)
		} else {
			strategies = append(strategies, c)
		}
	}
	const title = "Known-broken variants"
	sections := matrixOf(strategies, "", "")
	return append(sections, matrixOf(broken, title, title+": ")...)
}

// matrixOf returns a table of verdicts. If there are too many faults for one table, it returns
// several, whose titles begin with prefix.
func matrixOf(cells []experiment.Cell, title, prefix string) []section {
	faults := faultsOf(cells)
	if len(faults) <= maxFaultColumns {
		return []section{{Title: title, Table: verdicts(cells, faults)}}
	}
	var sections []section
	for _, group := range catalog.FaultGroups {
		here := slices.DeleteFunc(slices.Clone(faults), func(f catalog.Fault) bool { return f.Entry().Group != group })
		if len(here) > 0 {
			sections = append(sections, section{Title: prefix + string(group), Table: verdicts(cells, here)})
		}
	}
	return sections
}

// faultsOf returns the faults of these results in the order of the catalog.
func faultsOf(cells []experiment.Cell) []catalog.Fault {
	return slices.DeleteFunc(slices.Clone(catalog.RunFaults), func(f catalog.Fault) bool {
		return !slices.ContainsFunc(cells, func(c experiment.Cell) bool { return c.Fault == f })
	})
}

// verdicts returns a table of the verdicts under these faults. The entry is empty if a strategy has
// not run under a fault.
func verdicts(cells []experiment.Cell, faults []catalog.Fault) table {
	t := table{stacked: true, Headings: []heading{{Name: "strategy", Left: true}}}
	for _, f := range faults {
		t.Headings = append(t.Headings, heading{Name: string(f), Left: true})
	}
	for _, c := range cells {
		column := 1 + slices.Index(faults, c.Fault)
		if column == 0 {
			continue
		}
		i := slices.IndexFunc(t.Rows, func(row []field) bool { return row[0].Text == c.Strategy })
		if i < 0 {
			i = len(t.Rows)
			t.Rows = append(t.Rows, make([]field, len(t.Headings)))
			t.Rows[i][0].Text = c.Strategy
		}
		t.Rows[i][column] = field{Text: matrixText(c), Class: class(c)}
	}
	return t
}

// ModesSeen returns the IDs of the failure modes that a strategy showed in the run, in catalog
// order.
func ModesSeen(run *experiment.Run, strategy string) []string {
	var seen []string
	for _, m := range catalog.Modes {
		shows := func(p experiment.Point) bool { return p.FailureMode == m.ID }
		if slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool {
			return c.Strategy == strategy && (mode(c) == m.ID || slices.ContainsFunc(c.Points, shows))
		}) {
			seen = append(seen, m.ID)
		}
	}
	return seen
}

// modesSeen lists the failure modes of each strategy. They show how strategies with equal verdicts
// differ.
func modesSeen(run *experiment.Run) section {
	s := section{Title: "Failure modes seen", Table: table{Headings: []heading{{Name: "strategy", Left: true}, {Name: "failure modes", Left: true}}}}
	for _, c := range run.Cells {
		known := slices.ContainsFunc(s.Table.Rows, func(row []field) bool { return row[0].Text == c.Strategy })
		if modes := ModesSeen(run, c.Strategy); !known && len(modes) > 0 {
			s.Table.Rows = append(s.Table.Rows, []field{{Text: c.Strategy}, {Text: strings.Join(modes, " ")}})
		}
	}
	return s
}

// hasNoExpectation reports whether no verdict was expected, although the strategy is one of this
// program and not a user's service.
func hasNoExpectation(c experiment.Cell) bool {
	return c.Expected == nil && c.Verdict != catalog.NA && c.Strategy != experiment.Foreign
}

// matrixText returns the verdicts on the orders and on the lock, with their counts. If other
// verdicts were expected, the text includes them.
func matrixText(c experiment.Cell) string {
	text := string(c.Verdict)
	if n := pointsWith(c, func(p experiment.Point) bool { return p.Verdict == c.Verdict }); n > 0 && c.Verdict != catalog.Safe {
		text += fmt.Sprintf(" %d/%d", n, len(c.Points))
	} else if n := decidingCount(c); n != nil && *n > 0 {
		text += " " + strconv.Itoa(*n)
	}
	switch text += lockMark(c); {
	case hasNoExpectation(c):
		return text + " " + notClaimed
	case differs(c):
		return text + " " + notExpected + expectedText(c)
	default:
		return text
	}
}

// lockMark returns the mark "·" if two clients held the lock at once. It returns "·?" if this is
// not known, although the program expected an answer.
func lockMark(c experiment.Cell) string {
	switch {
	case c.Exclusive == nil && c.ExpectedExclusive != nil && c.Verdict != catalog.Unknown && c.Verdict != catalog.NA:
		return lockUnknown
	case c.Exclusive == nil || *c.Exclusive == experiment.Yes:
		return ""
	}
	if n := pointsWith(c, overlapped); n > 0 {
		return letIn + strconv.Itoa(n)
	}
	return letIn
}

// expectedText returns the expected verdicts in the format of matrixText.
func expectedText(c experiment.Cell) string {
	text := string(*c.Expected)
	if c.ExpectedExclusive != nil && *c.ExpectedExclusive == experiment.No {
		text += letIn
	}
	return text
}

// decidingCount returns the count that led to the verdict, or nil if there is none.
func decidingCount(c experiment.Cell) *int {
	switch c.Verdict {
	case catalog.Unsafe:
		return c.DoubleGrabs
	case catalog.Stuck:
		return c.StuckOrders
	default:
		return nil
	}
}

// class returns the CSS classes for the verdicts of a result.
func class(c experiment.Cell) string {
	class := string(c.Verdict)
	if c.Verdict == catalog.NA {
		class = "na"
	}
	if lockMark(c) != "" {
		class += " let-in"
	}
	if differs(c) {
		class += " surprise"
	}
	return class
}

// matrixLegend explains the words and marks in the table of verdicts.
func matrixLegend(run *experiment.Run) []string {
	lines := []string{"each cell shows the verdict on the orders. The number after unsafe counts surplus grabs, and the number after stuck counts orders that no driver can grab any more. n/a: the strategy uses nothing that the fault affects"}
	if slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return len(c.Points) > 0 }) {
		lines = append(lines, fmt.Sprintf("unsafe 3/11: the fault struck at 11 points of a grab, and at 3 of them the order was %s; stuck and unknown are counted in the same way", tooOften(run)))
	}
	if momentary(run.Cells) {
		lines = append(lines, momentLegend)
	}
	lines = append(lines, lockLegend(run.Cells)...)
	expected, differ := 0, 0
	for _, c := range run.Cells {
		if c.Expected != nil {
			expected++
		}
		if differs(c) {
			differ++
		}
	}
	if expected > 0 {
		lines = append(lines, fmt.Sprintf("%d of %s as expected for the strategy", expected-differ, catalog.Plural(expected, "cell is", "cells are")))
	}
	if differ > 0 {
		lines[len(lines)-1] += "; " + notExpected + " marks a cell that is not as expected, and is followed by the expected verdict"
	}
	if slices.ContainsFunc(run.Cells, hasNoExpectation) {
		lines = append(lines, notClaimed+" no verdict is expected, because the flags change the conditions or the result depends on chance")
	}
	return lines
}

// tooOften says in words what happens to an order if the verdict is unsafe.
func tooOften(run *experiment.Run) string {
	if isSale(run) {
		return "oversold (more units were sold than it has)"
	}
	return "grabbed more than once"
}

// lockLegend explains the marks about the lock.
func lockLegend(cells []experiment.Cell) []string {
	occurs := func(mark string) bool {
		return slices.ContainsFunc(cells, func(c experiment.Cell) bool { return strings.HasPrefix(lockMark(c), mark) })
	}
	var lines []string
	if occurs(letIn) {
		lines = append(lines, letIn+" the lock let two drivers in at once; the number counts the points at which this happened; in safe"+letIn+"2 the orders are still safe")
	}
	if occurs(lockUnknown) {
		lines = append(lines, lockUnknown+" it is not known whether the lock let two drivers in at once")
	}
	return lines
}
