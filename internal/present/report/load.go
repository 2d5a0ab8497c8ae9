// Package report writes results in several formats. A run's results become text for a terminal,
// Markdown or an HTML page. A search for failing schedules becomes text, JSON, an HTML page or a
// Mermaid diagram.
//
// Load reads a run from run.json, so a report can be rewritten at any time. A run consists of
// cells. A cell is the result of one strategy under one fault.
//
// Start reading at compose for text, at runPage for a run's page, and at Explored for a search.
// columns.go, details.go and points.go define the table columns.
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

// File is the name of the file in which a run is stored.
const File = "run.json"

// Load reads a run from a result folder or from a run.json file.
func Load(dir string) (*experiment.Run, error) {
	path := filepath.Join(dir, File)
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		path = dir
	}
	b, err := infile.Read(path, infile.Record)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s has no %s: name a folder that a run has written with -out", dir, File)
	case err != nil:
		return nil, err
	}
	run := new(experiment.Run)
	if err := json.Unmarshal(b, run); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if run.Schema != experiment.Schema {
		return nil, fmt.Errorf("%s has the format version %d, but this version of loadgen reads only %d: use the loadgen that wrote the file", path, run.Schema, experiment.Schema)
	}
	if run.ID == "" && run.Config.Scenario == "" {
		return nil, fmt.Errorf("%s has no id and no scenario, so it is not the result of a run: name a folder that loadgen run has written", path)
	}
	if err := run.Contradiction(); err != nil {
		return nil, fmt.Errorf("%s contradicts itself: %w", path, err)
	}
	return run, nil
}

// JSON writes the run in the format of run.json.
func JSON(w io.Writer, run *experiment.Run) error { return encode(w, run) }

// encode writes v as indented JSON with a newline at the end.
func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // do not escape <, > and &, because people also read the JSON
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
