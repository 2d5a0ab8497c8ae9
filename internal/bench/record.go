package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"grablab/internal/history"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// record is the raw side of the result folder: every event of the instances,
// and every answer as vegeta encodes it.
type record struct {
	dir    string
	events *os.File
	taken  map[string]int64  // bytes of each event file
	seen   map[string]uint64 // last sequence number of each instance
}

func newRecord(dir string) (*record, error) {
	f, err := os.Create(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return &record{dir: dir, events: f, taken: map[string]int64{}, seen: map[string]uint64{}}, nil
}

func (r *record) close() error { return r.events.Close() }

// answers opens the file of one cell's raw results.
func (r *record) answers(c *Cell) (*answerFile, error) {
	f, err := os.Create(filepath.Join(r.dir, fmt.Sprintf("%s-%s.vegeta.bin", c.Strategy, c.Fault)))
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

// takeOver copies what an instance has written to its event file since the
// last time, and hands every event to each. Its error says that some were lost.
func (r *record) takeOver(path string, each func(history.Event)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(r.taken[path], io.SeekStart); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	copied := &countingWriter{w: r.events}
	var lost error
	for e, err := range history.Decode(io.TeeReader(f, copied)) {
		if err != nil {
			lost = err
			continue
		}
		r.seen[e.Instance] = e.Seq
		each(e)
	}
	r.taken[path] += copied.n
	return errors.Join(lost, copied.err)
}

type countingWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.err = errors.Join(c.err, err)
	return n, err
}
