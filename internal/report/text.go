package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"grablab/internal/bench"
)

// Text renders the run for a terminal: what it ran on, one table, why the
// verdicts are what they are, and what that means.
func Text(w io.Writer, run *bench.Run) error {
	var b strings.Builder
	for _, line := range head(run) {
		fmt.Fprintln(&b, line)
	}
	if len(run.Cells) > 0 {
		fmt.Fprintln(&b)
		textTable(&b, columnsOf(run), run.Cells)
	}
	for _, part := range [][]string{legend(run), notes(run), story(run)} {
		if len(part) == 0 {
			continue
		}
		fmt.Fprintln(&b)
		for _, line := range part {
			fmt.Fprintln(&b, line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// textTable aligns the columns, one blank apart, under the headings of their groups.
func textTable(b *strings.Builder, columns []column, cells []bench.Cell) {
	rows := make([][]string, len(cells))
	widths := make([]int, len(columns))
	for j, col := range columns {
		widths[j] = width(col.name)
		for i, c := range cells {
			v := col.value(c)
			rows[i] = append(rows[i], v)
			widths[j] = max(widths[j], width(v))
		}
	}
	headings := groups(columns, widths)
	for i, row := range append([][]string{names(columns)}, rows...) {
		if i == 0 {
			fmt.Fprintln(b, strings.TrimRight(headings, " "))
		}
		line := ""
		for j, v := range row {
			pad := strings.Repeat(" ", widths[j]-width(v))
			if columns[j].left {
				line += v + pad + " "
			} else {
				line += pad + v + " "
			}
		}
		fmt.Fprintln(b, strings.TrimRight(line, " "))
	}
}

// groups is the line of headings. A heading that is longer than its columns
// widens the first of them.
func groups(columns []column, widths []int) string {
	line := ""
	for from := 0; from < len(columns); {
		to, span := from, -1
		for to < len(columns) && columns[to].group == columns[from].group {
			span += widths[to] + 1
			to++
		}
		heading := columns[from].group
		if extra := width(heading) - span; extra > 0 {
			widths[from] += extra
			span += extra
		}
		fill := " "
		if span >= width(heading)+4 && heading != "" {
			fill, heading = "-", " "+heading+" "
		}
		rest := span - width(heading)
		line += strings.Repeat(fill, rest/2) + heading + strings.Repeat(fill, rest-rest/2) + " "
		from = to
	}
	return line
}

func names(columns []column) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names
}

func width(s string) int { return utf8.RuneCountInString(s) }
