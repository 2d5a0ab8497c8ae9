package flags

import (
	"fmt"
	"grablab/internal/catalog"
	"io"
	"strings"
)

// lineWidth is the maximum line length in the help.
const lineWidth = 100

// Print prints all flags that are not hidden, with their help texts and defaults.
func Print(w io.Writer, flags []Flag) { PrintTable(w, Rows(flags)) }

// Rows returns a table row for each flag that is not hidden.
func Rows(flags []Flag) (rows [][2]string) {
	for _, f := range flags {
		if f.About == "" {
			continue
		}
		about := f.About
		if text := f.Value.String(); text != "" {
			about += fmt.Sprintf(" (default %s)", text)
		}
		rows = append(rows, [2]string{strings.TrimSpace("-" + f.Name + " " + f.Arg), about})
	}
	return rows
}

// PrintTable prints names and descriptions in two columns, and wraps long descriptions.
func PrintTable(w io.Writer, rows [][2]string) {
	const widest = 28
	column := 0
	for _, row := range rows {
		if n := len([]rune(row[0])); n <= widest {
			column = max(column, n)
		}
	}
	for _, row := range rows {
		name := row[0]
		if len([]rune(name)) > column {
			fmt.Fprintf(w, "  %s\n", name)
			name = ""
		}
		for _, text := range catalog.Wrap(row[1], lineWidth-column-4) {
			fmt.Fprintf(w, "  %-*s  %s\n", column, name, text)
			name = ""
		}
	}
}
