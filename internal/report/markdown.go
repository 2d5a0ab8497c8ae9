package report

import (
	"fmt"
	"io"
	"strings"

	"grablab/internal/bench"
)

// Markdown renders the run as a document of its own.
func Markdown(w io.Writer, run *bench.Run) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", run.ID)
	for _, line := range head(run) {
		fmt.Fprintf(&b, "- %s\n", escape(line))
	}
	if len(run.Cells) > 0 {
		fmt.Fprintln(&b)
		markdownTable(&b, columnsOf(run), run.Cells)
	}
	for _, part := range [][]string{legend(run), notes(run), story(run)} {
		if len(part) == 0 {
			continue
		}
		fmt.Fprintln(&b)
		for _, line := range part {
			fmt.Fprintf(&b, "- %s\n", escape(line))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func markdownTable(b *strings.Builder, columns []column, cells []bench.Cell) {
	rule := ""
	for _, col := range columns {
		fmt.Fprintf(b, "| %s ", strings.TrimSpace(col.group+" "+col.name))
		if col.left {
			rule += "|---"
		} else {
			rule += "|--:"
		}
	}
	fmt.Fprintf(b, "|\n%s|\n", rule)
	for _, c := range cells {
		for _, col := range columns {
			fmt.Fprintf(b, "| %s ", escape(col.value(c)))
		}
		fmt.Fprintln(b, "|")
	}
}

// escape keeps text from being read as Markdown, or as HTML.
var escape = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "<", "&lt;", "&", "&amp;", "\n", " ",
).Replace
