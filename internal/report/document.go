package report

import (
	"cmp"
	"slices"

	"grablab/internal/bench"
	"grablab/internal/grab/lock"
)

// document is what a run comes to, whatever it is rendered as.
type document struct {
	title    string
	head     []string
	sections []section
}

// section is a table, or lines, or both.
type section struct {
	title string // "": it goes on where the one before ended
	table table
	lines []string
	link  link // to what belongs to it; none: its href is ""
}

type link struct{ text, href string }

// table of fields that are text already.
type table struct {
	headings []heading
	stacked  bool // a heading may be broken at its hyphens
	rows     [][]field
}

type heading struct {
	group string // neighbours of one group share it; "": none
	name  string
	left  bool // aligned to the left
}

// field is one entry of a table. The class says what kind of verdict it is, for
// those who can show that.
type field struct{ text, class string }

// tableOf cells.
func tableOf(columns []column, cells []bench.Cell) table {
	if len(cells) == 0 {
		return table{}
	}
	var t table
	for _, c := range columns {
		t.headings = append(t.headings, heading{c.group, c.name, c.left})
	}
	for _, cell := range cells {
		row := make([]field, len(columns))
		for i, c := range columns {
			row[i].text = c.value(cell)
			if c.name == "verdict" {
				row[i].class = class(cell)
			}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// compose puts the run's document together. In full it tells every story and
// every detail; else of many cells only those that are not as expected.
func compose(run *bench.Run, full bool) document {
	d := document{title: run.ID, head: head(run)}
	calm, faulty := split(run)
	named := run.Cells
	if isMatrix(run) {
		d.add(section{table: matrix(run)}, section{lines: matrixLegend(run)})
		shown := faulty
		if !full && len(faulty) > fewCells {
			shown = slices.DeleteFunc(slices.Clone(faulty), func(c bench.Cell) bool { return !surprising(c) })
			named = slices.Concat(calm, shown)
		}
		d.add(section{title: "Under no fault", table: tableOf(columnsOf(run, calm), calm)})
		d.addTable(section{lines: legend(calm)}, calm)
		d.add(section{title: "Under the faults", table: tableOf(detailColumns, shown)})
		d.addTable(section{lines: detailLegend(shown)}, shown)
	} else {
		d.add(section{table: tableOf(columnsOf(run, run.Cells), run.Cells)}, section{lines: legend(run.Cells)})
		calm = run.Cells
	}
	d.add(section{lines: notes(named)}, section{lines: morals(run, calm)})
	for _, c := range run.Cells {
		if c.Story != nil && (full || surprising(c)) {
			d.add(story(c))
		}
	}
	return d
}

// fewCells is how many cells under faults are told of one by one even in short.
const fewCells = 24

// add leaves out what is empty.
func (d *document) add(sections ...section) {
	for _, s := range sections {
		if len(s.lines) > 0 || len(s.table.rows) > 0 {
			d.sections = append(d.sections, s)
		}
	}
}

// addTable adds what belongs to a table of these cells, if there is one.
func (d *document) addTable(s section, cells []bench.Cell) {
	if len(cells) > 0 {
		d.add(s)
	}
}

// split parts the cells of no fault from the others, and puts those together
// that had the same.
func split(run *bench.Run) (calm, faulty []bench.Cell) {
	for _, c := range run.Cells {
		if c.Fault == noFault {
			calm = append(calm, c)
		} else {
			faulty = append(faulty, c)
		}
	}
	slices.SortStableFunc(faulty, func(a, b bench.Cell) int {
		return cmp.Compare(slices.Index(lock.Faults, a.Fault), slices.Index(lock.Faults, b.Fault))
	})
	return calm, faulty
}

// surprising says whether somebody has to look at the cell.
func surprising(c bench.Cell) bool {
	return c.Expected != nil && *c.Expected != c.Verdict || c.Verdict == unknown
}
