package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/report"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// format is a named way to write a result of type T.
type format[T any] struct {
	name   string
	render func(io.Writer, T) error
}

func formatNames[T any](formats []format[T]) []string {
	return catalog.Map(formats, func(f format[T]) string { return f.name })
}

// formatFlag returns a -format flag that accepts these names. The first name is the default.
func formatFlag(name *string, names []string) flags.Flag {
	*name = names[0]
	return flags.New("format", "NAME", "format of standard output: "+flags.Join(names), flags.One(name, flags.OneOf(names...)))
}

// renderAs writes x in the named format, or in the first format if name is empty.
func renderAs[T any](w io.Writer, formats []format[T], name string, x T) error {
	return formats[max(slices.Index(formatNames(formats), name), 0)].render(w, x)
}

// renderAll writes all elements in the named format. It separates them with empty lines, except in
// JSON.
func renderAll[T any](w io.Writer, formats []format[T], name string, all []T) error {
	for i, x := range all {
		if i > 0 && name != "json" {
			fmt.Fprintln(w)
		}
		if err := renderAs(w, formats, name, x); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile writes a file atomically, and creates its folder if necessary.
func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o644)
}

// folder is the result folder of a run. A lock file ensures that only one process at a time writes
// to it.
type folder struct {
	path string
	made bool         // whether this process created the folder, so that close may remove it
	link string       // symbolic link that save updates to point to the folder; empty for none
	lock *flock.Flock // locked while this process writes to the folder; nil once released

	begun bool // whether the run has started, so that the folder must be kept
}

const resultsDir = "results"

// newFolder creates and locks the result folder. If out is empty, the folder's name consists of the
// time and the scenario.
func newFolder(out, scenario string, now time.Time) (*folder, error) {
	if out != "" {
		return namedFolder(out)
	}
	id := filepath.Join(resultsDir, now.UTC().Format("20060102T150405Z")+"-"+scenario)
	path := id
	for n := 2; isFolder(path); n++ { // another run may have started in the same second
		path = fmt.Sprintf("%s-%d", id, n)
	}
	f, err := takeFolder(path)
	if err == nil {
		f.link = filepath.Join(filepath.Dir(f.path), "latest")
	}
	return f, err
}

// namedFolder opens the folder that the user named with -out, and creates it if necessary. It
// returns an error if the folder already contains results.
func namedFolder(out string) (*folder, error) {
	f, err := takeFolder(out)
	if err != nil {
		return nil, err
	}
	for _, pattern := range []string{report.File, lockbench.File, "events.jsonl", "*.vegeta.bin"} {
		if names, _ := fs.Glob(os.DirFS(f.path), pattern); len(names) > 0 { // Glob fails only for a malformed pattern
			advice := "name an empty folder with -out, or remove this one"
			if pattern == report.File { // -resume needs run.json
				advice += ", or continue that run with loadgen run -resume"
			}
			err := flags.Usage("%s has the results of another run: %s", out, advice)
			return nil, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// takeFolder locks the folder for this process, and creates it if necessary. Unlike namedFolder, it
// accepts a folder with results. If it cannot create the folder, the error wraps flags.ErrUsage. It also
// returns an error if another process uses the folder, or if the folder is not writable.
func takeFolder(out string) (*folder, error) {
	path, err := filepath.Abs(out)
	f := &folder{path: path, made: !isFolder(path)}
	if err == nil {
		err = os.MkdirAll(path, 0o755)
	}
	if err != nil {
		return nil, flags.Usage("result folder: %w: name another folder with -out", err)
	}
	name := filepath.Join(path, lockName)
	f.lock = flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDWR))
	switch free, err := f.lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("result folder: %w", err)
	case !free:
		owner, _ := os.ReadFile(name) // empty if the owner has not written its id yet
		return nil, fmt.Errorf("result folder: %s is in use by %s: wait until it has ended, or use another folder", path, cmp.Or(strings.TrimSpace(string(owner)), "another run"))
	}
	owner := fmt.Sprintf("process %d since %s\n", os.Getpid(), time.Now().Format(time.DateTime))
	_ = os.WriteFile(name, []byte(owner), 0o644) // some systems forbid writing to a locked file
	return f, nil
}

// lockName is the name of the lock file in a result folder. The file contains the process id of the
// owner.
const lockName = ".loadgen.lock"

// close unlocks the folder, and removes it if it is new and the run has not started. A second call
// does nothing.
func (f *folder) close() error {
	if f.lock == nil {
		return nil
	}
	defer func() { f.lock = nil }()
	unneeded := filepath.Join(f.path, lockName)
	if f.made && !f.begun {
		unneeded = f.path
	}
	// Unlock last. Otherwise, another process could lock the folder first, and this process would
	// then delete its files.
	return errors.Join(os.RemoveAll(unneeded), f.lock.Close())
}

const (
	markdownFile = "report.md"
	htmlFile     = "report.html"
)

// save writes run.json and the reports atomically, and updates the link to the latest result.
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

// writeFiles writes a result in several formats, and replaces each file atomically.
func writeFiles[T any](f *folder, files []format[T], result T) error {
	for _, file := range files {
		var b bytes.Buffer
		if err := file.render(&b, result); err != nil {
			return err
		}
		if err := replaceFile(filepath.Join(f.path, file.name), b.Bytes()); err != nil {
			return fmt.Errorf("result folder: %w", err)
		}
	}
	return nil
}
