package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"grablab/internal/experiment"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// HTML renders the run as one page that needs nothing else, no network and no
// script, with every timeline. The pictures that it links to stand beside run.json.
func HTML(w io.Writer, run *experiment.Run) error {
	if err := page.Execute(w, compose(run, true)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Class of the ith field of a row, for a style sheet.
func (t table) Class(i int, f field) string {
	if t.Headings[i].Left {
		return f.Class
	}
	return "number " + f.Class
}
