package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// File writes each event as one line of JSON with a single write(2). If the process is killed, only
// the last line can therefore be incomplete.
type File struct {
	instance    string
	incarnation int // how many times the instance has started, including this time

	mu    sync.Mutex
	file  *os.File
	seq   uint64
	event Event         // the event that Record writes; a field, so that encoding it allocates no memory
	line  bytes.Buffer  // the line of that event
	lines *json.Encoder // writes to line
	torn  bool          // whether the file ends with an incomplete line
	err   error         // the first write error
}

// Create creates the event file of an instance. If the file already exists, Create opens it and keeps
// its events.
func Create(path, instance string) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	last, err := mend(f)
	if err != nil {
		return nil, fmt.Errorf("history: %w", errors.Join(err, f.Close()))
	}
	events := &File{instance: instance, incarnation: last + 1, file: f}
	events.lines = json.NewEncoder(&events.line)
	return events, nil
}

// Record appends e to the file. If the write fails, the event is missing from the file, and Close
// returns the error.
func (f *File) Record(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	e.Seq, e.T, e.Instance, e.Incarnation = f.seq, Clock(), f.instance, f.incarnation
	e.Note = e.Note[:min(len(e.Note), maxNote)]
	f.line.Reset()
	if f.torn {
		f.line.WriteByte('\n')
	}
	f.event = e
	_ = f.lines.Encode(&f.event) // cannot fail for an event
	n, err := f.file.Write(f.line.Bytes())
	if err == nil {
		f.torn = false
		return
	}
	f.torn = f.torn || n > 0
	if f.err == nil {
		f.err = fmt.Errorf("history: cannot write event %d, so the record is incomplete: %w", f.seq, err)
	}
}

// Close closes the file, and returns Record's first error.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.err, f.file.Close())
}

// mend ends an incomplete last line with a newline, so that the next event begins a new line. It
// returns the instance's last incarnation, or 0 if the file has no events.
func mend(f *os.File) (incarnation int, err error) {
	tail, _, err := readTail(f)
	if err != nil || len(tail) == 0 {
		return 0, err
	}
	if tail[len(tail)-1] != '\n' {
		if _, err := f.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	return lastIncarnation(tail), nil
}

// End returns the position after the last complete line. A resumed run truncates the file there,
// because a process may have been killed in the middle of a line.
func End(f *os.File) (int64, error) {
	tail, size, err := readTail(f)
	unfinished := len(tail) - (bytes.LastIndexByte(tail, '\n') + 1)
	return size - int64(unfinished), err
}

// readTail reads the end of a file, with at least one complete line if there is one.
func readTail(f *os.File) (tail []byte, size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	tail = make([]byte, min(info.Size(), 2*maxLine))
	if _, err = f.ReadAt(tail, info.Size()-int64(len(tail))); err == io.EOF {
		err = nil // the file is empty or a device
	}
	return tail, info.Size(), err
}
