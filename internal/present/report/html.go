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
	"strings"

	"grablab/internal/measure/experiment"
	"grablab/internal/present/diagram"
)

var (
	//go:embed page.html cells.html
	pageTexts embed.FS
	//go:embed page.css
	pageStyle string
	//go:embed explore.js
	exploreScript string
	//go:embed run.js
	runScript string

	page = template.Must(template.ParseFS(pageTexts, "page.html", "cells.html"))
)

// CellsScript is the ES module that makes the HTML of a Heat interactive. CellsStyle is its style
// sheet.
var (
	//go:embed cells.js
	CellsScript string
	//go:embed cells.css
	CellsStyle string
)

// HTML writes the run as a single HTML page with a summary, a heat map and the details of each
// result.
func HTML(w io.Writer, run *experiment.Run) error {
	p, err := runPage(run)
	if err != nil {
		return err
	}
	return p.write(w)
}

// ExploredHTML writes the search results as a single HTML page that shows each failure step by
// step.
func ExploredHTML(w io.Writer, e Exploration) error {
	p := pageOf{document: e.document(), script: exploreScript}
	drawings := []*diagram.Diagram{}
	for i := range p.Sections {
		if s := &p.Sections[i]; s.Drawing != nil {
			s.drawn = len(drawings)
			drawings = append(drawings, s.Drawing)
		}
	}
	var err error
	if p.Data, err = encodeData(drawings); err != nil {
		return err
	}
	return p.write(w)
}

type pageOf struct {
	document
	Map    heatMap
	Data   template.JS // the data for the script
	script string
}

// encodeData encodes data as JSON for an HTML script element.
func encodeData(data any) (template.JS, error) {
	text, err := json.Marshal(data) // Marshal escapes <, > and &
	if err != nil {
		return "", fmt.Errorf("report: %w", err)
	}
	return template.JS(text), nil
}

func (p pageOf) write(w io.Writer) error {
	style, script := diagram.Style+pageStyle+CellsStyle, inOne(diagram.Script, CellsScript, p.script)
	err := page.ExecuteTemplate(w, "page.html", struct {
		pageOf
		Policy string
		Style  template.CSS
		Script template.JS
	}{p, policy(style, script), template.CSS(style), template.JS(script)})
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// inOne joins ES modules into one script and removes the imports between them.
func inOne(modules ...string) string {
	return imports.ReplaceAllString(strings.Join(modules, "\n"), "")
}

var imports = regexp.MustCompile(`(?m)^import \{[^}]*\} from "\./\w+\.js";$`)

// policy returns a Content-Security-Policy that allows only this style sheet and this script.
func policy(style, script string) string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src " + hash(style) + "; script-src " + hash(script)
}

// Drawn returns the number of the section's diagram on the page.
func (s section) Drawn() int { return s.drawn }

// Class returns the CSS classes of field f in column i.
func (t table) Class(i int, f field) string {
	if t.Headings[i].Left {
		return f.Class
	}
	return "number " + f.Class
}
