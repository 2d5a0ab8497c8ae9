package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"grablab/internal/bench"
)

// Text renders the run for a terminal: what it ran on, a table, why the
// verdicts are what they are, and what that means. Of a run with many cells it
// tells in detail what is not as expected.
func Text(w io.Writer, run *bench.Run) error {
	var b strings.Builder
	d := compose(run, false)
	for _, line := range d.head {
		fmt.Fprintln(&b, line)
	}
	for _, s := range d.sections {
		fmt.Fprintln(&b)
		if s.title != "" {
			fmt.Fprintln(&b, s.title)
		}
		for _, line := range s.lines {
			fmt.Fprintln(&b, line)
		}
		textTable(&b, s.table)
		if s.link.href != "" {
			fmt.Fprintf(&b, "%s: %s\n", s.link.text, s.link.href)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// textTable aligns the columns, one blank apart, under the headings of their groups.
func textTable(b *strings.Builder, t table) {
	if len(t.rows) == 0 {
		return
	}
	names := nameLines(t)
	widths := make([]int, len(t.headings))
	for _, line := range names {
		for j, name := range line {
			widths[j] = max(widths[j], width(name))
		}
	}
	for _, row := range t.rows {
		for j, f := range row {
			widths[j] = max(widths[j], width(f.text))
		}
	}
	if line := strings.TrimRight(groups(t.headings, widths), " "); line != "" {
		fmt.Fprintln(b, line)
	}
	for _, line := range names {
		textLine(b, t.headings, widths, line)
	}
	for _, row := range t.rows {
		texts := make([]string, len(row))
		for j, f := range row {
			texts[j] = f.text
		}
		textLine(b, t.headings, widths, texts)
	}
}

func textLine(b *strings.Builder, headings []heading, widths []int, texts []string) {
	line := ""
	for j, v := range texts {
		pad := strings.Repeat(" ", widths[j]-width(v))
		if headings[j].left {
			line += v + pad + " "
		} else {
			line += pad + v + " "
		}
	}
	fmt.Fprintln(b, strings.TrimRight(line, " "))
}

// nameLines are the names of the columns, over several lines if they may be.
func nameLines(t table) [][]string {
	parts := make([][]string, len(t.headings))
	height := 1
	for j, h := range t.headings {
		parts[j] = []string{h.name}
		if t.stacked {
			parts[j] = strings.Split(h.name, "-")
		}
		height = max(height, len(parts[j]))
	}
	lines := make([][]string, height)
	for i := range lines {
		lines[i] = make([]string, len(parts))
		for j, p := range parts { // those with fewer lines stand at the bottom
			if at := i - (height - len(p)); at >= 0 {
				lines[i][j] = p[at]
			}
		}
	}
	return lines
}

// groups is the line of headings. A heading that is longer than its columns
// widens the first of them.
func groups(headings []heading, widths []int) string {
	line := ""
	for from := 0; from < len(headings); {
		to, span := from, -1
		for to < len(headings) && headings[to].group == headings[from].group {
			span += widths[to] + 1
			to++
		}
		text := headings[from].group
		if extra := width(text) - span; extra > 0 {
			widths[from] += extra
			span += extra
		}
		fill := " "
		if span >= width(text)+4 && text != "" {
			fill, text = "-", " "+text+" "
		}
		rest := span - width(text)
		line += strings.Repeat(fill, rest/2) + text + strings.Repeat(fill, rest-rest/2) + " "
		from = to
	}
	return line
}

func width(s string) int { return utf8.RuneCountInString(s) }
