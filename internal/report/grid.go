package report

import "strings"

// wrap breaks text into lines of at most most columns, at blanks where it can.
// Text without anything in it is one empty line.
func wrap(text string, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) <= most:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
		for width(line) > most {
			runes := []rune(line)
			lines, line = append(lines, string(runes[:most])), string(runes[most:])
		}
	}
	return append(lines, line)
}

// wrapAll wraps every text by itself, one below the other.
func wrapAll(texts []string, most int) []string {
	var lines []string
	for _, text := range texts {
		lines = append(lines, wrap(text, most)...)
	}
	return lines
}

// pad fills text up with blanks behind it.
func pad(text string, to int) string {
	return text + strings.Repeat(" ", max(0, to-width(text)))
}

// align prints rows under their heads, a blank apart. sides has a letter a
// column: l or r.
func align(b *strings.Builder, heads []string, sides string, rows [][]string) {
	rows = append([][]string{heads}, rows...)
	widths := make([]int, len(heads))
	for _, row := range rows {
		for j, cell := range row {
			widths[j] = max(widths[j], width(cell))
		}
	}
	for _, row := range rows {
		line := ""
		for j, cell := range row {
			blanks := strings.Repeat(" ", widths[j]-width(cell))
			if sides[j] == 'r' {
				cell = blanks + cell
			} else {
				cell += blanks
			}
			line += cell + "  "
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// grid is a table whose cells may have several lines.
type grid struct {
	columns []gridColumn
	rows    []gridRow
}

type gridColumn struct {
	head  string
	least int  // how wide it is at the least
	right bool // aligned to the right
}

type gridRow struct {
	cells  [][]string // a column, the lines
	runsOn int        // the column whose text runs on over those to its right; 0: none's does
}

func (g *grid) print(b *strings.Builder) {
	head := gridRow{}
	for _, c := range g.columns {
		head.cells = append(head.cells, []string{c.head})
	}
	rows := append([]gridRow{head}, g.rows...)
	widths := g.widths(rows)
	for _, row := range rows {
		for k := range row.height() {
			b.WriteString(g.line(row, k, widths) + "\n")
		}
	}
}

func (g *grid) widths(rows []gridRow) []int {
	widths := make([]int, len(g.columns))
	for j, c := range g.columns {
		widths[j] = c.least
		for _, row := range rows {
			if row.runsOn > 0 && row.runsOn == j {
				continue
			}
			for _, line := range row.cells[j] {
				widths[j] = max(widths[j], width(line))
			}
		}
	}
	return widths
}

// line is the kth line of a row.
func (g *grid) line(row gridRow, k int, widths []int) string {
	line, from := "", 0
	for j, lines := range row.cells {
		if k < len(lines) && lines[k] != "" {
			start := from
			if g.columns[j].right {
				start += widths[j] - width(lines[k])
			}
			line = pad(line, start) + lines[k]
		}
		from += widths[j] + 2
	}
	return line
}

func (r gridRow) height() int {
	h := 0
	for _, lines := range r.cells {
		h = max(h, len(lines))
	}
	return h
}
