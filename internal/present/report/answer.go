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
	sentences := []string{asExpectedSentence(run, cells)}
	twice, kept := "let an order be grabbed twice", "kept every order to one driver"
	if isSale(run) {
		twice, kept = "sold more units of an order than it has", "sold no more units of an order than it has"
	}
	if let := catalog.Filter(safe, letsTwoIn); len(let) > 0 {
		kept += fmt.Sprintf(" (in %d of these, the lock still let two holders in)", len(let))
	}
	unknown := len(cells) - len(unsafe) - len(stuck) - len(safe)
	parts := applying([]remark{
		{len(unsafe) > 0, fmt.Sprintf("%d %s", len(unsafe), twice)},
		{len(stuck) > 0, fmt.Sprintf("%d left an order that no driver can grab", len(stuck))},
		{unknown > 0, fmt.Sprintf("%d could not be judged", unknown)},
		{len(safe) > 0, fmt.Sprintf("%d %s", len(safe), kept)},
	})
	sentences = append(sentences, catalog.Capital(catalog.List(parts))+".")
	slices.SortStableFunc(unsafe, func(a, b experiment.Cell) int { return orZero(b.DoubleGrabs) - orZero(a.DoubleGrabs) })
	if len(unsafe) > 0 && orZero(unsafe[0].DoubleGrabs) > 0 {
		worst := unsafe[0]
		sentences = append(sentences, fmt.Sprintf("The worst cell is %s: %s too many.", strings.Replace(name(worst), "none", "none (no lock)", 1), catalog.Plural(*worst.DoubleGrabs, "grab", "grabs")))
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
