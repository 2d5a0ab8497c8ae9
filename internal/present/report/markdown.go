package report

import (
	"fmt"
	"io"
	"strings"

	"grablab/internal/measure/experiment"
)

// Markdown writes all details of a run as a Markdown document.
func Markdown(w io.Writer, run *experiment.Run) error {
	return compose(run, true).markdown(w)
}

func (d document) markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", d.Title)
	markdownList(&b, d.Head)
	for _, s := range d.Sections {
		fmt.Fprintln(&b)
		if s.Title != "" {
			fmt.Fprintf(&b, "## %s\n\n", escape(s.Title))
		}
		markdownList(&b, s.Lines)
		if len(s.Lines) > 0 && len(s.Table.Rows) > 0 {
			fmt.Fprintln(&b)
		}
		markdownTable(&b, s.Table)
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
	if len(t.Rows) == 0 {
		return
	}
	rule := ""
	for _, h := range t.Headings {
		fmt.Fprintf(b, "| %s ", strings.TrimSpace(h.Group+" "+h.Name))
		if h.Left {
			rule += "|---"
		} else {
			rule += "|--:"
		}
	}
	fmt.Fprintf(b, "|\n%s|\n", rule)
	for _, row := range t.Rows {
		for _, f := range row {
			fmt.Fprintf(b, "| %s ", escape(f.Text))
		}
		fmt.Fprintln(b, "|")
	}
}

// escape escapes characters that are special in Markdown or HTML.
var escape = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "<", "&lt;", "&", "&amp;", "\n", " ",
).Replace
