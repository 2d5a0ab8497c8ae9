package report

import (
	"fmt"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// answer sums up a run in a few sentences for the top of a report.
func answer(run *experiment.Run) string {
	cells := catalog.Filter(run.Cells, func(c experiment.Cell) bool { return c.Verdict != catalog.NA })
	if len(cells) == 0 {
		return "Nothing has been measured."
	}
	of := func(v catalog.Verdict) []experiment.Cell {
		return catalog.Filter(cells, func(c experiment.Cell) bool { return c.Verdict == v })
	}
	unsafe, stuck, safe := of(catalog.Unsafe), of(catalog.Stuck), of(catalog.Safe)
	twice, kept := "an order was grabbed more than once", "each order went to one driver"
	if isSale(run) {
		twice, kept = "an order sold more units than it has", "no order sold more units than it has"
	}
	if let := catalog.Filter(safe, letsTwoIn); len(let) > 0 {
		kept += fmt.Sprintf(" (in %d of these, the lock still let two holders in)", len(let))
	}
	unknown := len(cells) - len(unsafe) - len(stuck) - len(safe)
	in := func(n int, what string) string {
		return fmt.Sprintf("In %s, %s.", catalog.Plural(n, "cell", "cells"), what)
	}
	sentences := append([]string{asExpectedSentence(run, cells)}, applying([]remark{
		{len(unsafe) > 0, in(len(unsafe), twice)},
		{len(stuck) > 0, in(len(stuck), "an order is left that no driver can grab")},
		{unknown > 0, catalog.Plural(unknown, "cell", "cells") + " could not be judged."},
		{len(safe) > 0, in(len(safe), kept)},
	})...)
	slices.SortStableFunc(unsafe, func(a, b experiment.Cell) int { return orZero(b.DoubleGrabs) - orZero(a.DoubleGrabs) })
	if len(unsafe) > 0 && orZero(unsafe[0].DoubleGrabs) > 0 {
		worst := unsafe[0]
		sentences = append(sentences, fmt.Sprintf("The worst cell is %s: %s.", strings.Replace(name(worst), "none", "none (no lock)", 1), catalog.Plural(*worst.DoubleGrabs, "extra grab", "extra grabs")))
	}
	if !run.Complete {
		sentences = append(sentences, "The run is not complete.")
	}
	return joined(sentences)
}

func asExpectedSentence(run *experiment.Run, measured []experiment.Cell) string {
	claimed, differ := len(catalog.Filter(run.Cells, isClaimed)), len(catalog.Filter(measured, differs))
	switch {
	case claimed == 0:
		return fmt.Sprintf("%s measured, and no verdict was expected.", catalog.Plural(len(measured), "cell was", "cells were"))
	case differ > 0:
		return fmt.Sprintf("%s not as expected, of %d.", catalog.Plural(differ, "cell is", "cells are"), claimed)
	case claimed < len(measured):
		return fmt.Sprintf("%d of %d cells are as expected, and no verdict was expected for the rest.", claimed, len(measured))
	case claimed == 1:
		return "The one cell is as expected."
	default:
		return fmt.Sprintf("All %d cells are as expected.", claimed)
	}
}

func joined(sentences []string) string { return strings.Join(sentences, " ") }
