package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/stat"
	"grablab/internal/present/diagram"
)

// document is the content of a report, independent of the output format.
type document struct {
	Title    string
	Answer   string // the result in one sentence for the top of a page
	Head     []string
	Sections []section
}

// section is a part of a document. It contains text, a table, or both.
type section struct {
	Title string // empty if the section continues the previous one
	Table table
	Lines []string
	// Drawing is a diagram of what the table describes, or nil.
	Drawing *diagram.Diagram
	After   []string // lines below the table
}

// table contains headings and rows, already formatted as text.
type table struct {
	Headings []heading
	Rows     [][]field
	stacked  bool // whether a terminal may break a heading at its hyphens
}

type heading struct {
	Group string // common heading above neighbouring columns in a group; may be empty
	Name  string
	Left  bool // whether the column is left-aligned
	least int  // minimum column width on a terminal
}

// field is a table entry. Class is its CSS class on an HTML page.
type field struct {
	Text, Class string
	runsOn      bool // whether the text may extend into the columns to its right
}

// group is a common heading above several neighbouring columns.
type group struct {
	Text string
	Span int
}

// Groups returns the common headings that appear above the columns, from left to right.
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

// Grouped reports whether any column belongs to a group.
func (t table) Grouped() bool {
	return slices.ContainsFunc(t.Headings, func(h heading) bool { return h.Group != "" })
}

// column is a table column. value formats a row's cell, and class returns the cell's CSS class.
// class may be nil.
type column[T any] struct {
	heading
	value func(T) string
	class func(T) string
}

func tableOf[T any](columns []column[T], rows []T) table {
	t := table{Headings: catalog.Map(columns, func(c column[T]) heading { return c.heading })}
	for _, x := range rows {
		row := make([]field, len(columns))
		for i, c := range columns {
			row[i].Text = c.value(x)
			if c.class != nil {
				row[i].Class = c.class(x)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// compose builds a run's report, without timelines. If there are many results and full is false, it shows
// details only for unexpected ones.
func compose(run *experiment.Run, full bool) document {
	d := document{Title: run.ID, Head: append([]string{answer(run)}, head(run)...)}
	plainCells, faultCells := splitByFault(run)
	named := run.Cells
	if isMatrix(run) {
		d.add(matrix(run)...)
		d.explain()
		shown := faultCells
		if !full && len(faultCells) > fewCells {
			shown = catalog.Filter(faultCells, isUnexpected)
			named = slices.Concat(plainCells, shown)
		}
		d.add(section{Title: "Under no fault", Table: tableOf(columnsOf(run, plainCells), plainCells)}, costs(plainCells))
		d.add(section{Title: "Under the faults", Table: tableOf(renameForAnswers(shown, detailColumns), shown)}, points(shown))
	} else {
		d.add(section{Table: tableOf(columnsOf(run, run.Cells), withBare(run))}, costs(run.Cells))
	}
	d.explain()
	d.add(section{Lines: remarks(run)}, section{Lines: notes(run, named)})
	return d
}

// addTimelines adds the timelines of the cells for which shown returns true.
func (d *document) addTimelines(cells []experiment.Cell, shown func(experiment.Cell) bool) {
	for _, c := range cells {
		if c.Timeline != nil && shown(c) {
			d.add(timeline(c))
		}
	}
}

// costs returns a table of costs for the tests that ran several times.
func costs(cells []experiment.Cell) section {
	title := fmt.Sprintf("Costs: the median of all runs, with its 95 %% interval (with fewer than %d runs, their range)", stat.Enough)
	return section{Title: title, Table: tableOf(costColumns, repeatedCells(cells))}
}

// fewCells is the largest number of results for which a report shows all details by default.
const fewCells = 24

// orZero returns *n, or 0 if n is nil.
func orZero(n *int) int { return *cmp.Or(n, new(int)) }

// add appends the non-empty sections to the document.
func (d *document) add(sections ...section) {
	d.Sections = append(d.Sections, catalog.Filter(sections, func(s section) bool { return len(s.Lines) > 0 || len(s.Table.Rows) > 0 })...)
}

// explain adds a legend of the marks and the common headings in the tables so far, except those that
// the document has already explained.
func (d *document) explain() {
	var lines []string
	for _, w := range catalog.Columns {
		line := w.Name + ": " + w.Meaning
		isShown := func(s section) bool { return s.Table.shows(w.Name) }
		isExplained := func(s section) bool { return slices.Contains(s.Lines, line) }
		if slices.ContainsFunc(d.Sections, isShown) && !slices.ContainsFunc(d.Sections, isExplained) {
			lines = append(lines, line)
		}
	}
	d.add(section{Lines: lines})
}

// shows reports whether the table has a common heading with this name, or an entry with this mark.
func (t table) shows(name string) bool {
	isMark := slices.Contains([]string{asExpected, notExpected, notHeld, notClaimed, letIn, lockUnknown, atLeast, noChange}, name)
	return slices.ContainsFunc(t.Headings, func(h heading) bool { return h.Group == name }) ||
		slices.ContainsFunc(slices.Concat(t.Rows...), func(f field) bool {
			return isMark && strings.Contains(f.Text, name) || name == "n/m" && fraction.MatchString(f.Text)
		})
}

var fraction = regexp.MustCompile(`\d/\d`)

// splitByFault separates the tests without a fault from the others. It sorts the others by fault.
func splitByFault(run *experiment.Run) (plainCells, faultCells []experiment.Cell) {
	plainCells = catalog.Filter(run.Cells, func(c experiment.Cell) bool { return c.Fault == catalog.NoFault })
	faultCells = catalog.Filter(run.Cells, func(c experiment.Cell) bool { return c.Fault != catalog.NoFault })
	slices.SortStableFunc(faultCells, func(a, b experiment.Cell) int {
		return cmp.Compare(slices.Index(catalog.RunFaults, a.Fault), slices.Index(catalog.RunFaults, b.Fault))
	})
	return plainCells, faultCells
}

// isUnexpected reports whether a verdict is unknown or differs from the expected one.
func isUnexpected(c experiment.Cell) bool {
	return differs(c) || c.Verdict == catalog.Unknown
}
