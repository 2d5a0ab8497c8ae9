package report

import (
	"io"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// Heat is a heat map of verdicts, with strategies as rows and faults as columns. It can show a run
// that is still in progress.
type Heat struct {
	Run        *experiment.Run
	Strategies []string        // the strategies of the run, including those that have not run yet
	Faults     []catalog.Fault // the faults of the run, including those that have not run yet
	Prefix     string          // prefix of the link targets of the cells
}

// Answer sums up the run in a few sentences.
func (h Heat) Answer() string { return answer(h.Run) }

// HTML writes the heat map as an HTML fragment, which CellsScript makes interactive.
func (h Heat) HTML(w io.Writer) error {
	return page.ExecuteTemplate(w, "cells", newHeatMap(h))
}

// Cell returns the data of a heat map cell in the form that CellsScript reads, or false if there is
// no such result.
func (h Heat) Cell(name experiment.CellName) (any, bool) {
	if h.Run == nil {
		return nil, false
	}
	one := *h.Run
	one.Cells = catalog.Filter(one.Cells, func(c experiment.Cell) bool { return c.Strategy == name.Strategy && c.Fault == name.Fault })
	return newRunData(&one), len(one.Cells) > 0
}
