package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"grablab/internal/bench"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// HTML renders the run as one page that needs nothing else, no network and no
// script, with every story. The pictures that it links to stand beside run.json.
func HTML(w io.Writer, run *bench.Run) error {
	d := compose(run, true)
	var p struct {
		Title    string
		Head     []string
		Sections []htmlSection
	}
	p.Title, p.Head = d.title, d.head
	for _, s := range d.sections {
		p.Sections = append(p.Sections, htmlOf(s))
	}
	if err := page.Execute(w, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// htmlSection is a section as the page shows it.
type htmlSection struct {
	Title          string
	Lines          []string
	Groups         []htmlGroup // nil: no column has one
	Names          []htmlField
	Rows           [][]htmlField
	LinkText, Href string
}

type htmlGroup struct {
	Text string
	Span int
}

type htmlField struct{ Text, Class string }

func htmlOf(s section) htmlSection {
	h := htmlSection{Title: s.title, Lines: s.lines, LinkText: s.link.text, Href: s.link.href}
	if len(s.table.rows) == 0 {
		return h
	}
	align := make([]string, len(s.table.headings))
	grouped := false
	for i, head := range s.table.headings {
		if !head.left {
			align[i] = "number "
		}
		h.Names = append(h.Names, htmlField{head.name, align[i]})
		grouped = grouped || head.group != ""
		if last := len(h.Groups) - 1; last >= 0 && h.Groups[last].Text == head.group {
			h.Groups[last].Span++
		} else {
			h.Groups = append(h.Groups, htmlGroup{head.group, 1})
		}
	}
	if !grouped {
		h.Groups = nil
	}
	for _, row := range s.table.rows {
		fields := make([]htmlField, len(row))
		for i, f := range row {
			fields[i] = htmlField{f.text, align[i] + f.class}
		}
		h.Rows = append(h.Rows, fields)
	}
	return h
}
