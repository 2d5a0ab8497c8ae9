package report

import (
	"io"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// Heat is the heat map of a run. The run may still be in progress.
type Heat struct {
	Run        *experiment.Run
	Strategies []string        // the strategies of the run, including those that have not run yet
	Faults     []catalog.Fault // the faults of the run, including those that have not run yet
	Prefix     string          // the prefix of the cells' addresses
}

// Answer summarizes the run in a few sentences.
func (h Heat) Answer() string { return answer(h.Run) }

// HTML writes the heat map as part of a page. CellsScript makes it interactive.
func (h Heat) HTML(w io.Writer) error {
	m := newHeatMap(h.Run, h.Strategies, h.Faults)
	m.Prefix = h.Prefix
	return page.ExecuteTemplate(w, "cells", m)
}

// Cell returns a run that contains only the nth cell, in the form that CellsScript needs. It returns
// false if there is no such cell.
func (h Heat) Cell(n int) (any, bool) {
	if n < 0 || n >= len(h.Run.Cells) {
		return nil, false
	}
	alone := *h.Run
	alone.Cells = h.Run.Cells[n : n+1]
	return newRunData(&alone), true
}
