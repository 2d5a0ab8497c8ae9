package report

import (
	"io"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// Heat is a heat map of verdicts, with strategies as rows and faults as columns. The run may still
// be in progress.
type Heat struct {
	Run        *experiment.Run
	Strategies []string        // the strategies of the run, including those that have not run yet
	Faults     []catalog.Fault // the faults of the run, including those that have not run yet
	Prefix     string          // prefix of the link targets of the cells
}

// Answer sums up the run in a few sentences.
func (h Heat) Answer() string { return answer(h.Run) }

// HTML writes the heat map as an HTML fragment. CellsScript makes the fragment interactive.
func (h Heat) HTML(w io.Writer) error {
	m := newHeatMap(h.Run, h.Strategies, h.Faults)
	m.Prefix = h.Prefix
	return page.ExecuteTemplate(w, "cells", m)
}

// Cell returns the data of the nth table cell in the form that CellsScript reads. It returns false
// if n is out of range.
func (h Heat) Cell(n int) (any, bool) {
	if n < 0 || n >= len(h.Run.Cells) {
		return nil, false
	}
	alone := *h.Run
	alone.Cells = h.Run.Cells[n : n+1]
	return newRunData(&alone), true
}
