package report

import (
	"io"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// Heat is a run as its heat map shows it, for a page that shows one as it comes.
type Heat struct {
	Run        *experiment.Run
	Strategies []string        // that are in it, whether they have run or not
	Faults     []catalog.Fault // likewise
	Prefix     string          // of the addresses of its cells
}

// Answer says in a sentence or two what has come of it.
func (h Heat) Answer() string { return answer(h.Run) }

// HTML renders the heat map, for CellsScript to look after.
func (h Heat) HTML(w io.Writer) error {
	m := newHeatMap(h.Run, h.Strategies, h.Faults)
	m.Prefix = h.Prefix
	return page.ExecuteTemplate(w, "cells", m)
}

// Cell is what the nth cell of the run opens, as CellsScript wants it: a run of that cell
// alone. false: there is none.
func (h Heat) Cell(n int) (any, bool) {
	if n < 0 || n >= len(h.Run.Cells) {
		return nil, false
	}
	alone := *h.Run
	alone.Cells = h.Run.Cells[n : n+1]
	return newRunData(&alone), true
}
