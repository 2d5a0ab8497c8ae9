package experiment

import (
	"bufio"
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

// journal writes a run's raw records to the result folder. The events of all instances go to
// events.jsonl, and each test's responses go to a separate file.
type journal struct {
	dir string

	mu   sync.Mutex
	file *os.File
}

func (j *journal) path() string { return filepath.Join(j.dir, "events.jsonl") }

// ownName is the instance name in events that this program records itself.
const ownName = "loadgen"

// open creates events.jsonl. For a resumed run, it appends to the existing file. If the last line of
// that file is incomplete, open removes it first.
func (j *journal) open(resumed bool) (err error) {
	mode := os.O_CREATE | os.O_RDWR | os.O_APPEND
	if !resumed {
		mode |= os.O_TRUNC
	}
	if j.file, err = os.OpenFile(j.path(), mode, 0o644); err == nil {
		var end int64 // where the last complete line ends
		if end, err = history.End(j.file); err == nil {
			err = j.file.Truncate(end)
		}
	}
	if err != nil {
		return fmt.Errorf("experiment: %w", err)
	}
	return nil
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// keep appends one test's recorded events to events.jsonl.
func (j *journal) keep(strategy string, fault catalog.Fault, events *fleet.Events) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	own, err := history.Create(j.path(), ownName) // close the file right after this event, because two writers must not append at the same time
	if err != nil {
		return err
	}
	own.Record(history.Event{Kind: history.Info, Op: history.Cell, Strategy: strategy, Note: string(fault)})
	return errors.Join(own.Close(), events.Keep(j.file))
}

// suffix returns the suffix for the names of a repetition's files, such as "-2". It is empty for
// the first run.
func (w *worker) suffix() string {
	if w.repetition <= 1 {
		return ""
	}
	return fmt.Sprintf("-%d", w.repetition)
}

// answers creates the file for a test's raw responses. It returns functions that add a response and
// close the file.
func (j *journal) answers(c *Cell, suffix string) (add vegeta.Encoder, closeFile func() error, err error) {
	f, err := os.Create(filepath.Join(j.dir, AnswersFile(c, suffix)))
	if err != nil {
		return nil, nil, fmt.Errorf("experiment: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	return vegeta.NewEncoder(w), func() error { return errors.Join(w.Flush(), f.Close()) }, nil
}

// AnswersFile returns the name of the file with a test's raw responses.
func AnswersFile(c *Cell, suffix string) string {
	return fmt.Sprintf("%s-%s%s.vegeta.bin", url.PathEscape(c.Strategy), c.Fault, suffix)
}
