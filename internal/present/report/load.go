// Package report renders results: a run as text for a terminal, as Markdown and as
// a page of HTML, and what the explorer found as text, JSON and a mermaid diagram.
//
// A run comes from run.json alone (Load), so that every report can be drawn again.
// compose puts it together as a document of sections, lines and tables, which Text and
// Markdown only print; columns.go, details.go and points.go say what the columns are.
// Begin at compose. A page of a run is put together by runPage, from the same columns. Of the explorer, begin at Explored.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/infile"
)

// File is the name of a run's record in its result folder.
const File = "run.json"

// ErrNoRun says that a folder holds no run that can be read.
var ErrNoRun = errors.New("report: no run")

// Load reads the run of a result folder, or of a run.json. Its errors wrap ErrNoRun.
func Load(dir string) (*experiment.Run, error) {
	path := filepath.Join(dir, File)
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		path = dir
	}
	b, err := infile.Read(path, infile.Record)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s has no %s; a result folder has one", ErrNoRun, dir, File)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoRun, err)
	}
	run := new(experiment.Run)
	if err := json.Unmarshal(b, run); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoRun, path, err)
	}
	if run.Schema != experiment.Schema {
		return nil, fmt.Errorf("%w: %s has schema %d, and this program reads %d", ErrNoRun, path, run.Schema, experiment.Schema)
	}
	if run.ID == "" && run.Config.Scenario == "" {
		return nil, fmt.Errorf("%w: %s says neither id nor scenario, and is no record of a run", ErrNoRun, path)
	}
	if err := run.Contradiction(); err != nil {
		return nil, fmt.Errorf("%w: %s contradicts itself: %w", ErrNoRun, path, err)
	}
	return run, nil
}

// JSON writes run.json.
func JSON(w io.Writer, run *experiment.Run) error { return encode(w, run) }

// encode writes v as JSON, indented, and with a newline at its end.
func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // reasons are read by people, too
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
