package report

import (
	"io"
	"strings"

	"grablab/internal/measure/experiment"
)

// Markdown writes all details of a run as a Markdown document.
func Markdown(w io.Writer, run *experiment.Run) error {
	d := compose(run, true)
	d.addTimelines(run.Cells, func(experiment.Cell) bool { return true })
	return d.markdown(w)
}

func (d document) markdown(w io.Writer) error { return textTemplates.ExecuteTemplate(w, "document", d) }

// escape escapes characters that are special in Markdown or HTML.
var escape = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "<", "&lt;", "&", "&amp;", "\n", " ",
).Replace
