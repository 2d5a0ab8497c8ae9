package experiment

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/testbed/fleet"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// journal is the raw side of a run's cells in its folder: events.jsonl, what the
// instances of all workers have recorded, and every answer as vegeta encodes it.
// The events of a cell stand together, after one of our own that names it.
type journal struct {
	dir string

	mu   sync.Mutex
	file *os.File
}

func (j *journal) path() string { return filepath.Join(j.dir, "events.jsonl") }

// ownName is the instance of our own events.
const ownName = "loadgen"

// open begins the file, or goes on with what an earlier part of the run has left. cut is
// how many bytes of half a line were cut off that.
func (j *journal) open(resumed bool) (cut int64, err error) {
	mode := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if !resumed {
		mode |= os.O_TRUNC
	}
	if j.file, err = os.OpenFile(j.path(), mode, 0o644); err == nil {
		cut, err = cutHalfLine(j.path())
	}
	if err != nil {
		return cut, fmt.Errorf("experiment: %w", err)
	}
	return cut, nil
}

// cutHalfLine ends a file behind its last whole line.
func cutHalfLine(path string) (cut int64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if whole == len(text) {
		return 0, nil
	}
	return int64(len(text) - whole), os.Truncate(path, int64(whole))
}

// close also ends a journal that was never opened.
func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// keep appends the events of a cell.
func (j *journal) keep(strategy string, fault catalog.Fault, events *fleet.Events) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	own, err := history.Create(j.path(), ownName) // for this one event: nothing else may append meanwhile
	if err != nil {
		return err
	}
	own.Record(history.Event{Kind: history.Info, Op: history.Cell, Strategy: strategy, Note: string(fault)})
	return errors.Join(own.Close(), events.Keep(j.file))
}

// suffix of the names of a cell's files, by the repetition: "-2".
func (w *worker) suffix() string {
	if w.repetition <= 1 {
		return ""
	}
	return fmt.Sprintf("-%d", w.repetition)
}

// answers opens the file of one cell's raw results.
func (j *journal) answers(c *Cell, suffix string) (*answerFile, error) {
	f, err := os.Create(filepath.Join(j.dir, fmt.Sprintf("%s-%s%s.vegeta.bin", url.PathEscape(c.Strategy), c.Fault, suffix)))
	if err != nil {
		return nil, fmt.Errorf("experiment: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	return &answerFile{f, w, vegeta.NewEncoder(w)}, nil
}

type answerFile struct {
	f      *os.File
	w      *bufio.Writer
	Encode vegeta.Encoder
}

func (a *answerFile) Close() error { return errors.Join(a.w.Flush(), a.f.Close()) }
