package report

import (
	_ "embed"
	"io"
	"strings"
	"text/template"

	"grablab/internal/measure/experiment"
)

//go:embed markdown.tmpl
var markdownTemplate string

var markdown = template.Must(template.New("").Funcs(template.FuncMap{"escape": escape}).Parse(markdownTemplate))

// Markdown writes all details of a run as a Markdown document.
func Markdown(w io.Writer, run *experiment.Run) error {
	d := compose(run, true)
	d.addTimelines(run.Cells, func(experiment.Cell) bool { return true })
	return d.markdown(w)
}

func (d document) markdown(w io.Writer) error { return markdown.ExecuteTemplate(w, "document", d) }

// escape escapes characters that are special in Markdown or HTML.
var escape = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "<", "&lt;", "&", "&amp;", "\n", " ",
).Replace
