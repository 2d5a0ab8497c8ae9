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

// isMatrix reports whether the run injected any fault. If so, its report needs a table of verdicts.
func isMatrix(run *experiment.Run) bool {
	return slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return c.Fault != catalog.NoFault })
}

// maxFaultColumns is the largest number of faults in one table of verdicts.
const maxFaultColumns = 9

// matrix returns tables of verdicts, with a row per strategy and a column per fault. Strategies
// that are broken on purpose have their own tables.
func matrix(run *experiment.Run) []section {
	strategies := catalog.Filter(run.Cells, func(c experiment.Cell) bool { return isNotBroken(c.Strategy) })
	broken := catalog.Filter(run.Cells, func(c experiment.Cell) bool { return isKnownBroken(c.Strategy) })
	const title = "Known-broken variants"
	return append(matrixOf(strategies, "", ""), matrixOf(broken, title, title+": ")...)
}

func isKnownBroken(strategy string) bool {
	return slices.ContainsFunc(lock.KnownBroken, func(s lock.Strategy) bool { return s.Name == strategy })
}

func isNotBroken(strategy string) bool { return !isKnownBroken(strategy) }

// matrixOf returns a table of verdicts. If there are too many faults for one table, it returns a
// table for each group of faults, with prefix before the title. A table may be empty.
func matrixOf(cells []experiment.Cell, title, prefix string) []section {
	faults := faultsOf(cells)
	if len(faults) <= maxFaultColumns {
		return []section{{Title: title, Table: verdicts(cells, faults)}}
	}
	var sections []section
	for _, group := range catalog.FaultGroups {
		here := catalog.Filter(faults, func(f catalog.Fault) bool { return f.Entry().Group == group })
		sections = append(sections, section{Title: prefix + string(group), Table: verdicts(cells, here)})
	}
	return sections
}

// faultsOf returns the faults of these tests, in the order of the catalog.
func faultsOf(cells []experiment.Cell) []catalog.Fault {
	return catalog.Filter(catalog.RunFaults, func(f catalog.Fault) bool {
		return slices.ContainsFunc(cells, func(c experiment.Cell) bool { return c.Fault == f })
	})
}

// verdicts returns a table with each strategy's verdict under each fault. A cell stays empty if its
// combination has not run.
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

// hasNoExpectation reports whether a test of one of our own strategies has no expected verdict.
func hasNoExpectation(c experiment.Cell) bool {
	_, err := lock.Find(c.Strategy) // strategies in the user's service have no expectations at all
	return !isClaimed(c) && c.Verdict != catalog.NA && err == nil
}

// matrixText returns a table cell's text: the verdicts on the orders and the lock, with counts. If
// they are not as expected, it adds the expected verdicts.
func matrixText(c experiment.Cell) string {
	text := string(c.Verdict)
	switch n, atPoints := decidingCount(c); {
	case atPoints:
		text += fmt.Sprintf(" %d/%d", n, len(c.Points))
	case n > 0:
		text += " " + strconv.Itoa(n)
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

// lockMark returns "·" if two clients held the lock at once, and "·?" if the test should have
// determined this but could not. Otherwise, it returns "".
func lockMark(c experiment.Cell) string {
	switch {
	case c.Exclusive == nil && c.ExpectedExclusive != nil && c.Verdict != catalog.Unknown:
		return lockUnknown
	case c.Exclusive == nil || *c.Exclusive == experiment.Yes:
		return ""
	}
	return letIn + overlapCount(c)
}

// overlapCount returns the number of steps at which a fault let two clients hold the lock at once,
// or "" if there are none.
func overlapCount(c experiment.Cell) string {
	if n := len(catalog.Filter(c.Points, overlapped)); n > 0 {
		return strconv.Itoa(n)
	}
	return ""
}

// expectedText formats the expected verdicts in the same way as matrixText.
func expectedText(c experiment.Cell) string {
	text := string(*c.Expected)
	if c.ExpectedExclusive != nil && *c.ExpectedExclusive == experiment.No {
		text += letIn
	}
	return text
}

// decidingCount returns how many times a test went wrong. It counts the steps whose own verdict became the
// test's verdict. If there are none, it counts the surplus grabs or stuck orders instead.
func decidingCount(c experiment.Cell) (n int, atPoints bool) {
	if n := len(decidingPoints(c)); n > 0 && c.Verdict != catalog.Safe {
		return n, true
	}
	return orZero(map[catalog.Verdict]*int{catalog.Unsafe: c.DoubleGrabs, catalog.Stuck: c.StuckOrders}[c.Verdict]), false
}

// decidingPoints returns the steps whose own verdict became the verdict of the whole test.
func decidingPoints(c experiment.Cell) []experiment.Point {
	return catalog.Filter(c.Points, func(p experiment.Point) bool { return p.Verdict == c.Verdict })
}

// class returns the CSS classes for a test's table cell.
func class(c experiment.Cell) string {
	class := strings.ReplaceAll(string(c.Verdict), "/", "")
	if letsTwoIn(c) {
		class += " let-in"
	}
	if differs(c) {
		class += " surprise"
	}
	return class
}
