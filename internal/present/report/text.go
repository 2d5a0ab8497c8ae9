package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// Text writes a run for a terminal: the environment, a table, and the reasons for the verdicts. If
// there are many results, it explains only unexpected ones.
func Text(w io.Writer, run *experiment.Run) error {
	d := compose(run, false)
	d.addTimelines(run.Cells, isUnexpected)
	return d.text(w, 1)
}

// text writes the document as text. The columns of its tables are gap spaces apart.
func (d document) text(w io.Writer, gap int) error {
	var b strings.Builder
	writeLines(&b, d.Head)
	for i, s := range d.Sections {
		if i > 0 || len(d.Head) > 0 {
			fmt.Fprintln(&b)
		}
		if s.Title != "" {
			fmt.Fprintln(&b, s.Title)
		}
		writeLines(&b, s.Lines)
		s.Table.text(&b, gap)
		writeLines(&b, s.After)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeLines(b *strings.Builder, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(b, line)
	}
}

func (t table) widths() []int {
	widths := make([]int, len(t.Headings))
	for j, h := range t.Headings {
		widths[j] = h.least
		for _, row := range append([][]field{t.head()}, t.Rows...) {
			if row[j].runsOn {
				continue
			}
			for line := range strings.SplitSeq(row[j].Text, "\n") {
				widths[j] = max(widths[j], width(line))
			}
		}
	}
	return widths
}

// text writes the table with aligned columns, gap spaces apart.
func (t table) text(b *strings.Builder, gap int) {
	if len(t.Rows) == 0 {
		return
	}
	widths := t.widths()
	if line := strings.TrimRight(t.groupLine(widths, gap), " "); line != "" {
		fmt.Fprintln(b, line)
	}
	for _, row := range append([][]field{t.head()}, t.Rows...) {
		t.textRow(b, row, widths, gap)
	}
}

// textRow writes a row of the table. A field may have several lines.
func (t table) textRow(b *strings.Builder, row []field, widths []int, gap int) {
	height := 1
	lines := make([][]string, len(row))
	for j, f := range row {
		lines[j] = strings.Split(f.Text, "\n")
		height = max(height, len(lines[j]))
	}
	for k := range height {
		line, from := "", 0
		for j := range row {
			if k < len(lines[j]) && lines[j][k] != "" {
				start := from
				if !t.Headings[j].Left {
					start += widths[j] - width(lines[j][k])
				}
				line = fmt.Sprintf("%-*s%s", start, line, lines[j][k])
			}
			from += widths[j] + gap
		}
		fmt.Fprintln(b, strings.TrimRight(line, " "))
	}
}

// head returns the column headings. It pads short headings with empty lines above, so that all
// headings end on the same line.
func (t table) head() []field {
	head := make([]field, len(t.Headings))
	height := 0
	for j, h := range t.Headings {
		head[j].Text = h.Name
		if t.stacked {
			head[j].Text = strings.ReplaceAll(h.Name, "-", "\n")
		}
		height = max(height, strings.Count(head[j].Text, "\n"))
	}
	for j := range head {
		head[j].Text = strings.Repeat("\n", height-strings.Count(head[j].Text, "\n")) + head[j].Text
	}
	return head
}

// groupLine returns a line with the common headings above several columns. If a common heading is
// too wide, it widens the first of its columns.
func (t table) groupLine(widths []int, gap int) string {
	line, from := "", 0
	for _, g := range t.Groups() {
		span := -gap
		for _, w := range widths[from : from+g.Span] {
			span += w + gap
		}
		text := g.Text
		if extra := width(text) - span; extra > 0 {
			widths[from] += extra
			span += extra
		}
		fill := " "
		if span >= width(text)+4 && text != "" {
			fill, text = "-", " "+text+" "
		}
		rest := span - width(text)
		line += strings.Repeat(fill, rest/2) + text + strings.Repeat(fill, rest-rest/2) + strings.Repeat(" ", gap)
		from += g.Span
	}
	return line
}

func width(s string) int { return utf8.RuneCountInString(s) }

// wrap wraps text at a maximum width.
func wrap(text string, most int) string { return strings.Join(catalog.Wrap(text, most), "\n") }
