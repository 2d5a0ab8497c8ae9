package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/report"

	"github.com/gofrs/flock"
)

// folder is where a run is written down.
type folder struct {
	path string       // absolute
	made bool         // by us, so that it may go again
	link string       // points at it once there is something to see; "": none does
	lock *flock.Flock // for as long as this process writes in it

	begun bool // by begin
}

const resultsDir = "results"

// newFolder makes the result folder: out, or one under results/ named after
// the time and the scenario.
func newFolder(out, scenario string, now time.Time) (*folder, error) {
	if out != "" {
		return namedFolder(out)
	}
	root, _, err := makeFolder(resultsDir)
	if err != nil {
		return nil, err
	}
	id := now.UTC().Format("20060102T150405Z") + "-" + scenario
	path := filepath.Join(root, id)
	err = os.Mkdir(path, 0o755)
	for n := 2; errors.Is(err, fs.ErrExist); n++ { // two runs may begin within one second
		path = filepath.Join(root, fmt.Sprintf("%s-%d", id, n))
		err = os.Mkdir(path, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("result folder: %w", err)
	}
	f := &folder{path: path, made: true, link: filepath.Join(root, "latest")}
	return f, f.claim()
}

// namedFolder makes or takes a folder that has no results yet.
func namedFolder(out string) (*folder, error) {
	f, err := takeFolder(out)
	if err != nil {
		return nil, err
	}
	for _, pattern := range []string{report.File, lockbench.File, "events.jsonl", "*.vegeta.bin"} {
		if names, _ := fs.Glob(os.DirFS(f.path), pattern); len(names) > 0 { // it fails for a bad pattern alone
			advice := "name an empty folder with -out, or remove it"
			if pattern == report.File { // without it, there is nothing to go on with
				advice += ", or go on with that run by loadgen run -resume"
			}
			err := flags.Usage("%s has the results of another run: %s", out, advice)
			return nil, errors.Join(err, f.release())
		}
	}
	return f, nil
}

// takeFolder makes or takes the folder, whatever it has.
func takeFolder(out string) (*folder, error) {
	path, made, err := makeFolder(out)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, made: made}
	return f, f.claim()
}

// makeFolder makes the folder, if there is none.
func makeFolder(out string) (path string, made bool, err error) {
	if path, err = filepath.Abs(out); err == nil {
		_, statErr := os.Stat(path)
		made = errors.Is(statErr, fs.ErrNotExist)
		err = os.MkdirAll(path, 0o755)
	}
	if err != nil {
		return "", false, fmt.Errorf("result folder: %w", err)
	}
	return path, made, nil
}

// lockName is the file in a result folder by which the process that writes there keeps
// others out. It says who that is.
const lockName = ".loadgen.lock"

// claim locks the folder, which also shows, before anything is started, that it can be
// written.
func (f *folder) claim() error {
	for {
		name := filepath.Join(f.path, lockName)
		lock := flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDWR))
		free, err := lock.TryLock()
		if err != nil {
			return fmt.Errorf("result folder: %w", err)
		}
		if !free {
			owner, _ := os.ReadFile(name) // empty: it has just begun
			return fmt.Errorf("result folder: %s is in use by %s", f.path, cmp.Or(strings.TrimSpace(string(owner)), "another run"))
		}
		f.lock = lock
		if current, err := f.isCurrent(name); err != nil || !current { // its owner has removed it meanwhile
			if err := errors.Join(err, lock.Close()); err != nil {
				return fmt.Errorf("result folder: %w", err)
			}
			continue
		}
		owner := fmt.Sprintf("process %d since %s\n", os.Getpid(), time.Now().Format(time.DateTime))
		_ = os.WriteFile(name, []byte(owner), 0o644) // some systems let nobody write what is locked
		return nil
	}
}

// isCurrent says whether the lock file that is locked is the one that others find.
func (f *folder) isCurrent(name string) (bool, error) {
	found, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	locked, lockErr := f.lock.Stat()
	return os.SameFile(found, locked), errors.Join(err, lockErr)
}

// release lets others write in the folder. A second call does nothing.
func (f *folder) release() error {
	if f.lock == nil {
		return nil
	}
	defer func() { f.lock = nil }()
	return removeLocked(filepath.Join(f.path, lockName), f.lock)
}

// begin is called when the run is sure to begin.
func (f *folder) begin() { f.begun = true }

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
	if err := replaceLink(filepath.Base(f.path), f.link); err != nil {
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
		if err := replaceFile(filepath.Join(f.path, file.name), b.Bytes()); err != nil {
			return fmt.Errorf("result folder: %w", err)
		}
	}
	return nil
}

// discard removes the folder of a run that came to nothing, if the run made it.
func (f *folder) discard() error {
	if !f.made {
		return f.release()
	}
	defer func() { f.lock = nil }()
	return removeLocked(f.path, f.lock)
}
