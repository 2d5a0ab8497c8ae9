package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"grablab/internal/grab/lock"
	"grablab/internal/history"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// journal is events.jsonl: what the instances of all lanes have recorded. The
// events of a cell stand together, after one of our own that names it.
type journal struct {
	dir string

	mu   sync.Mutex
	file *os.File
}

func (j *journal) path() string { return filepath.Join(j.dir, "events.jsonl") }

// ownName is the instance of our own events.
const ownName = "loadgen"

// open begins the file, or goes on with what an earlier part of the run has left.
func (j *journal) open(goOn bool) (err error) {
	mode := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if !goOn {
		mode |= os.O_TRUNC
	}
	if j.file, err = os.OpenFile(j.path(), mode, 0o644); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

// close also ends a journal that was never opened.
func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// record is the raw side of a lane's cells: every event of the instances, and
// every answer as vegeta encodes it.
type record struct {
	journal *journal
	read    map[string]int64  // bytes of each event file
	kept    map[string]int64  // of those, in the journal
	seen    map[string]uint64 // last sequence number of each instance
}

func newRecord(j *journal) *record {
	return &record{journal: j, read: map[string]int64{}, kept: map[string]int64{}, seen: map[string]uint64{}}
}

// answers opens the file of one cell's raw results.
func (r *record) answers(c *Cell) (*answerFile, error) {
	f, err := os.Create(filepath.Join(r.journal.dir, fmt.Sprintf("%s-%s.vegeta.bin", c.Strategy, c.Fault)))
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
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

// takeOver reads what an instance has written to its event file since the last
// time, and hands every event to each. Its error says that some were lost.
func (r *record) takeOver(path string, each func(history.Event)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer f.Close()
	from := r.read[path]
	end, err := history.End(f)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	r.read[path] = end
	var lost error
	for e, err := range history.Decode(io.NewSectionReader(f, from, end-from)) {
		if err != nil {
			lost = err
			continue
		}
		r.seen[e.Instance] = e.Seq
		each(e)
	}
	return lost
}

// again hands every event of the cell so far to each once more.
func (r *record) again(each func(history.Event)) error {
	for _, path := range slices.Sorted(maps.Keys(r.read)) {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		for e, err := range history.Decode(io.NewSectionReader(f, r.kept[path], r.read[path]-r.kept[path])) {
			if err == nil { // what is lost has been told before
				each(e)
			}
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	return nil
}

// keep appends to the journal what was taken over since the last cell.
func (r *record) keep(strategy string, fault lock.Fault) error {
	j := r.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	own, err := history.Create(j.path(), ownName) // for this one: nobody else may append meanwhile
	if err != nil {
		return err
	}
	own.Record(history.Event{Kind: history.Info, Op: history.Cell, Strategy: strategy, Note: string(fault)})
	errs := []error{own.Close()}
	for _, path := range slices.Sorted(maps.Keys(r.read)) {
		errs = append(errs, j.copy(path, r.kept[path], r.read[path]))
		r.kept[path] = r.read[path]
	}
	return errors.Join(errs...)
}

// copy appends the bytes between from and to of the file. j.mu is held.
func (j *journal) copy(path string, from, to int64) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(j.file, io.NewSectionReader(f, from, to-from)); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}
