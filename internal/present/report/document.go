package report

import (
	"cmp"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/diagram"
)

// document is what a run comes to, whatever it is rendered as.
type document struct {
	Title    string
	Answer   string // in a sentence; a page begins with it
	Head     []string
	Sections []section
}

// section is a table, or lines, or both.
type section struct {
	Title string // "": it goes on where the one before ended
	Table table
	Lines []string
	// Drawing shows what the table says; nil: there is none.
	Drawing *diagram.Diagram
	drawn   int // its number in the page
	After   []string
}

// table of fields that are text already.
type table struct {
	Headings []heading
	Rows     [][]field
	stacked  bool // a terminal may break a heading at its hyphens
}

type heading struct {
	Group string // neighbours of one group share it; "": none
	Name  string
	Left  bool // aligned to the left
	least int  // how wide the column is on a terminal at the least
}

// field is one entry of a table; on a terminal it may have several lines. The
// class says what kind of verdict it is, for those who can show that.
type field struct {
	Text, Class string
	runsOn      bool // its text runs on over the columns to its right
}

// group of neighbouring columns under one heading.
type group struct {
	Text string
	Span int
}

// Groups are the headings of groups, from the left.
func (t table) Groups() []group {
	var groups []group
	for _, h := range t.Headings {
		if last := len(groups) - 1; last >= 0 && groups[last].Text == h.Group {
			groups[last].Span++
		} else {
			groups = append(groups, group{h.Group, 1})
		}
	}
	return groups
}

// Grouped says whether any column is in a group that has a heading.
func (t table) Grouped() bool {
	return slices.ContainsFunc(t.Headings, func(h heading) bool { return h.Group != "" })
}

// tableOf cells.
func tableOf(columns []column, cells []experiment.Cell) table {
	if len(cells) == 0 {
		return table{}
	}
	var t table
	for _, c := range columns {
		t.Headings = append(t.Headings, c.heading)
	}
	for _, cell := range cells {
		row := make([]field, len(columns))
		for i, c := range columns {
			row[i].Text = c.value(cell)
			if c.Name == "verdict" {
				row[i].Class = class(cell)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// compose puts the run's document together. In full it has every timeline
// and every detail; else of many cells only those that are not as expected.
func compose(run *experiment.Run, full bool) document {
	d := document{Title: run.ID, Head: head(run)}
	calm, faulty := split(run)
	named := run.Cells
	if isMatrix(run) {
		d.add(matrix(run)...)
		d.add(modesSeen(run))
		d.add(section{Lines: matrixLegend(run)})
		shown := faulty
		if !full && len(faulty) > fewCells {
			shown = slices.DeleteFunc(slices.Clone(faulty), func(c experiment.Cell) bool { return !surprising(c) })
			named = slices.Concat(calm, shown)
		}
		d.add(section{Title: "Under no fault", Table: tableOf(columnsOf(run, calm), calm)}, section{Lines: legend(run, calm)})
		d.add(costSections(calm)...)
		d.add(section{Title: "Under the faults", Table: tableOf(namedAfter(shown, detailColumns), shown)}, section{Lines: detailLegend(shown)})
		d.add(points(shown))
	} else {
		d.add(section{Table: tableOf(columnsOf(run, run.Cells), withBare(run))}, section{Lines: legend(run, run.Cells)}, section{Lines: limits(run)})
		d.add(costSections(run.Cells)...)
		calm = run.Cells
	}
	d.add(section{Lines: notes(named)}, section{Lines: morals(run, calm)})
	for _, c := range run.Cells {
		if c.Timeline != nil && (full || surprising(c)) {
			d.add(timeline(c))
		}
	}
	return d
}

// costSections are what the repeated ones of some cells took.
func costSections(cells []experiment.Cell) []section {
	cells = repeated(cells)
	return []section{{Title: "Costs", Table: tableOf(costColumns, cells)}, {Lines: costLegend(cells)}}
}

// fewCells is how many cells under faults are shown one by one even in short.
const fewCells = 24

// add leaves out what is empty.
func (d *document) add(sections ...section) {
	for _, s := range sections {
		if len(s.Lines) > 0 || len(s.Table.Rows) > 0 {
			d.Sections = append(d.Sections, s)
		}
	}
}

// split parts the cells of no fault from the others, and puts those together
// that had the same.
func split(run *experiment.Run) (calm, faulty []experiment.Cell) {
	for _, c := range run.Cells {
		if c.Fault == catalog.NoFault {
			calm = append(calm, c)
		} else {
			faulty = append(faulty, c)
		}
	}
	slices.SortStableFunc(faulty, func(a, b experiment.Cell) int {
		return cmp.Compare(slices.Index(catalog.RunFaults, a.Fault), slices.Index(catalog.RunFaults, b.Fault))
	})
	return calm, faulty
}

// surprising says whether the cell needs to be looked at.
func surprising(c experiment.Cell) bool {
	return differs(c) || c.Verdict == catalog.Unknown
}
