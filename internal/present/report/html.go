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

// CellsScript is an ES module, beside [diagram.Script] as diagram.js, whose function heatMap
// looks after what Heat.HTML writes and shows what its cells open. CellsStyle is the style sheet of
// both.
var (
	//go:embed cells.js
	CellsScript string
	//go:embed cells.css
	CellsStyle string
)

// HTML renders the run as one page that needs nothing else and no network: the answer, the
// matrix as a heat map, and of each cell what was found and how to see it again.
func HTML(w io.Writer, run *experiment.Run) error {
	p, err := runPage(run)
	if err != nil {
		return err
	}
	return p.write(w)
}

// ExploredHTML renders the exploration likewise: every failure, step by step.
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

// pageOf is what a page is made of.
type pageOf struct {
	document
	Map    heatMap
	Data   template.JS // what its script shows
	script string
}

// encodeData writes data as JSON that cannot end the element of the page that it stands in.
func encodeData(data any) (template.JS, error) {
	text, err := json.Marshal(data) // which escapes <, > and &
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

// inOne makes one module of several. What they import of each other is there, then.
func inOne(modules ...string) string {
	return imports.ReplaceAllString(strings.Join(modules, "\n"), "")
}

var imports = regexp.MustCompile(`(?m)^import \{[^}]*\} from "\./\w+\.js";$`)

// policy lets a page have this style sheet and this script, and nothing else of anybody.
func policy(style, script string) string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src " + hash(style) + "; script-src " + hash(script)
}

// Drawn is the number of the section's drawing.
func (s section) Drawn() int { return s.drawn }

// Class of the ith field of a row, for a style sheet.
func (t table) Class(i int, f field) string {
	if t.Headings[i].Left {
		return f.Class
	}
	return "number " + f.Class
}
