package report

import (
	"fmt"
	"io"
	"strings"

	"grablab/internal/bench"
)

// Markdown renders the run as a document of its own, with every story.
func Markdown(w io.Writer, run *bench.Run) error {
	var b strings.Builder
	d := compose(run, true)
	fmt.Fprintf(&b, "# %s\n\n", d.title)
	markdownList(&b, d.head)
	for _, s := range d.sections {
		fmt.Fprintln(&b)
		if s.title != "" {
			fmt.Fprintf(&b, "## %s\n\n", escape(s.title))
		}
		markdownList(&b, s.lines)
		if len(s.lines) > 0 && len(s.table.rows) > 0 {
			fmt.Fprintln(&b)
		}
		markdownTable(&b, s.table)
		if s.link.href != "" {
			fmt.Fprintf(&b, "\n[%s](%s)\n", escape(s.link.text), s.link.href)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func markdownList(b *strings.Builder, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(b, "- %s\n", escape(line))
	}
}

func markdownTable(b *strings.Builder, t table) {
	if len(t.rows) == 0 {
		return
	}
	rule := ""
	for _, h := range t.headings {
		fmt.Fprintf(b, "| %s ", strings.TrimSpace(h.group+" "+h.name))
		if h.left {
			rule += "|---"
		} else {
			rule += "|--:"
		}
	}
	fmt.Fprintf(b, "|\n%s|\n", rule)
	for _, row := range t.rows {
		for _, f := range row {
			fmt.Fprintf(b, "| %s ", escape(f.text))
		}
		fmt.Fprintln(b, "|")
	}
}

// escape keeps text from being read as Markdown, or as HTML.
var escape = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "<", "&lt;", "&", "&amp;", "\n", " ",
).Replace
