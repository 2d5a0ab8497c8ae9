package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"grablab/internal/experiment"
	"grablab/internal/report"

	"github.com/google/renameio/v2"
)

// folder is where a run is written down.
type folder struct {
	path string // absolute
	made bool   // by us, so that it may go again
	link string // points at it once there is something to see; "": none does
	keep bool   // what an earlier run has left is this run's

	begun bool // by begin: what was there is replaced
}

const resultsDir = "results"

// newFolder makes the result folder: out, or one under results/ named after
// the time and the scenario.
func newFolder(out, scenario string, now time.Time) (*folder, error) {
	if out != "" {
		return namedFolder(out)
	}
	root, err := namedFolder(resultsDir)
	if err != nil {
		return nil, err
	}
	id := now.UTC().Format("20060102T150405Z") + "-" + scenario
	path := filepath.Join(root.path, id)
	err = os.Mkdir(path, 0o755)
	for n := 2; errors.Is(err, fs.ErrExist); n++ { // two runs may begin within one second
		path = filepath.Join(root.path, fmt.Sprintf("%s-%d", id, n))
		err = os.Mkdir(path, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("result folder: %w", err)
	}
	return &folder{path: path, made: true, link: filepath.Join(root.path, "latest")}, nil
}

// namedFolder makes or takes the folder.
func namedFolder(out string) (*folder, error) {
	path, err := filepath.Abs(out)
	if err != nil {
		return nil, fmt.Errorf("result folder: %w", err)
	}
	_, err = os.Stat(path)
	f := &folder{path: path, made: errors.Is(err, fs.ErrNotExist)}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("result folder: %w", err)
	}
	return f, f.writable()
}

// begin makes room for the results of a run that is sure to begin: it removes
// what an earlier one has left in the folder, if one has.
func (f *folder) begin() error {
	f.begun = true
	if f.keep {
		return nil
	}
	if _, err := os.Stat(filepath.Join(f.path, report.File)); err != nil {
		return nil
	}
	for _, pattern := range []string{"*.vegeta.bin", "*.picture.html", report.File, markdownFile, htmlFile} {
		names, err := fs.Glob(os.DirFS(f.path), pattern)
		for _, name := range names {
			err = errors.Join(err, os.Remove(filepath.Join(f.path, name)))
		}
		if err != nil {
			return fmt.Errorf("result folder: %w", err)
		}
	}
	return nil
}

// writable tries it, before anything is started whose results could not be kept.
func (f *folder) writable() error {
	probe, err := os.CreateTemp(f.path, ".probe-*")
	if err != nil {
		return fmt.Errorf("result folder: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

const (
	markdownFile = "report.md"
	htmlFile     = "report.html"
)

// save writes run.json and the reports drawn from it, each whole or not at all.
func (f *folder) save(run *experiment.Run) error {
	err := writeFiles(f, []format[*experiment.Run]{{report.File, report.JSON}, {markdownFile, report.Markdown}, {htmlFile, report.HTML}}, run)
	if err != nil {
		return err
	}
	if f.link == "" {
		return nil
	}
	if err := renameio.Symlink(filepath.Base(f.path), f.link); err != nil {
		return fmt.Errorf("result folder: %w", err)
	}
	return nil
}

// writeFiles writes a result in several formats, each file whole or not at all.
func writeFiles[T any](f *folder, files []format[T], result T) error {
	for _, file := range files {
		var b bytes.Buffer
		if err := file.render(&b, result); err != nil {
			return err
		}
		if err := renameio.WriteFile(filepath.Join(f.path, file.name), b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("result folder: %w", err)
		}
	}
	return nil
}

// discard removes the folder of a run that came to nothing.
func (f *folder) discard() error {
	if !f.made {
		return nil
	}
	return os.RemoveAll(f.path)
}
