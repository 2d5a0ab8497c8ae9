package report

import (
	"fmt"
	"slices"
	"strconv"

	"grablab/internal/catalog"
	"grablab/internal/experiment"
)

// isMatrix says whether the run has cells of more than one fault.
func isMatrix(run *experiment.Run) bool {
	return slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return c.Fault != run.Cells[0].Fault })
}

// matrix has strategies down, and faults across. A cell that has not run is empty.
func matrix(run *experiment.Run) table {
	faults := slices.DeleteFunc(slices.Clone(catalog.RunFaults), func(f catalog.Fault) bool {
		return !slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return c.Fault == f })
	})
	t := table{stacked: true, Headings: []heading{{Name: "strategy", Left: true}}}
	for _, f := range faults {
		t.Headings = append(t.Headings, heading{Name: string(f), Left: true})
	}
	for _, c := range run.Cells {
		i := slices.IndexFunc(t.Rows, func(row []field) bool { return row[0].Text == c.Strategy })
		if i < 0 {
			i = len(t.Rows)
			t.Rows = append(t.Rows, make([]field, len(t.Headings)))
			t.Rows[i][0].Text = c.Strategy
		}
		t.Rows[i][1+slices.Index(faults, c.Fault)] = field{Text: inMatrix(c), Class: class(c)}
	}
	return t
}

// inMatrix is the verdict with its figure, and what was expected where that is
// something else.
func inMatrix(c experiment.Cell) string {
	text := string(c.Verdict)
	if n := givenFor(c); n != nil && *n > 0 {
		text += " " + strconv.Itoa(*n)
	}
	switch {
	case c.Expected == nil && c.Verdict != catalog.NA:
		return text + " " + notClaimed
	case differs(c):
		return text + " " + notExpected + string(*c.Expected)
	default:
		return text
	}
}

// givenFor is the figure that a verdict was given for; nil: none is.
func givenFor(c experiment.Cell) *int {
	switch {
	case c.Verdict == catalog.Unsafe && c.DoubleGrabs != nil && *c.DoubleGrabs > 0:
		return c.DoubleGrabs
	case c.Verdict == catalog.Unsafe:
		return c.Overlaps
	case c.Verdict == catalog.Stuck:
		return c.StuckOrders
	default:
		return nil
	}
}

// class of a cell, for a style sheet.
func class(c experiment.Cell) string {
	class := string(c.Verdict)
	if c.Verdict == catalog.NA {
		class = "na"
	}
	if differs(c) {
		class += " surprise"
	}
	return class
}

// matrixLegend explains the words and the marks that occur.
func matrixLegend(run *experiment.Run) []string {
	lines := []string{"unsafe, and how many grabs were too many, or else how often two holders were inside at once; stuck, and how many orders; n/a: the fault touches nothing that the strategy uses"}
	claimed, differ := 0, 0
	for _, c := range run.Cells {
		if c.Expected != nil {
			claimed++
		}
		if differs(c) {
			differ++
		}
	}
	if claimed > 0 {
		lines = append(lines, fmt.Sprintf("%d of %s as expected of the strategy", claimed-differ, plural(claimed, "cell is", "cells are")))
	}
	if differ > 0 {
		lines[len(lines)-1] += "; " + notExpected + " is not, and what was expected stands behind it"
	}
	if slices.ContainsFunc(run.Cells, func(c experiment.Cell) bool { return c.Expected == nil && c.Verdict != catalog.NA }) {
		lines = append(lines, notClaimed+" nothing is claimed: the flags change what the registry speaks of, or chance decides")
	}
	return lines
}
