package report

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"regexp"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/diagram"
)

var (
	//go:embed page.html cells.html
	pageTexts embed.FS
	//go:embed page.css
	pageStyle string
	//go:embed cells.css
	cellsStyle string
	//go:embed cells.js
	cellsScript string
	//go:embed explore.js
	exploreScript string

	page = template.Must(template.ParseFS(pageTexts, "page.html", "cells.html"))
)

// HTML writes the run as a single HTML page with a summary, a heat map and each result's details.
func HTML(w io.Writer, run *experiment.Run) error { return runPage(run).write(w) }

// ExploredHTML writes the search results as a single HTML page that shows each failure step by
// step.
func ExploredHTML(w io.Writer, e Exploration) error {
	d := e.document(true)
	drawings := catalog.Map(d.Sections, func(s section) *diagram.Diagram { return s.Drawing })
	return pageOf{document: d, data: drawings, script: exploreScript}.write(w)
}

type pageOf struct {
	document
	Map    heatMap
	data   any // for the script
	script string
}

// write writes the page as a single HTML file that needs nothing from the network.
func (p pageOf) write(w io.Writer) error {
	data, err := json.Marshal(p.data) // Marshal escapes <, > and &
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	style := diagram.Style + pageStyle + cellsStyle
	script := imports.ReplaceAllString(diagram.Script+"\n"+p.script, "")
	err = page.ExecuteTemplate(w, "page.html", struct {
		pageOf
		Data   template.JS
		Policy string
		Style  template.CSS
		Script template.JS
	}{p, template.JS(data), policy(style, script), template.CSS(style), template.JS(script)})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// imports matches the imports between the ES modules. They must be removed, because the page
// contains all modules as a single script, in which imports would fail.
var imports = regexp.MustCompile(`(?m)^import \{[^}]*\} from "\./\w+\.js";$`)

// policy returns a Content-Security-Policy that allows only this style sheet and this script.
func policy(style, script string) string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src " + hash(style) + "; script-src " + hash(script)
}

// Class returns the CSS classes for field f in column i.
func (t table) Class(i int, f field) string {
	if t.Headings[i].Left {
		return f.Class
	}
	return "number " + f.Class
}
