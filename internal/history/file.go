package history

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// File records events as JSON lines. An event is in the file, as far as the
// operating system knows, when Record returns: a process that is killed loses
// none. That costs one write(2) per event, about half a microsecond; what is
// saved by mapping the file would not pay for its zero-filled tail.
type File struct {
	instance    string
	incarnation int
	clock       func() time.Duration

	mu   sync.Mutex
	file *os.File
	seq  uint64
	buf  []byte
	err  error // the first failure
}

// Create opens the event file of an instance, and appends to what an earlier
// incarnation of it has left there.
func Create(path, instance string) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	last, err := mend(f)
	if err != nil {
		return nil, fmt.Errorf("history: %w", errors.Join(err, f.Close()))
	}
	return &File{instance: instance, incarnation: last + 1, clock: Clock(), file: f}, nil
}

// Record appends e. An event that cannot be written leaves a gap in Seq, and
// its error to Close.
func (f *File) Record(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	e.Seq, e.T, e.Instance, e.Incarnation = f.seq, f.clock(), f.instance, f.incarnation
	f.buf = append(e.AppendJSON(f.buf[:0]), '\n')
	n, err := unix.Write(int(f.file.Fd()), f.buf) // what os.File would add to it is a sixth
	if err == nil && n < len(f.buf) {
		err = io.ErrShortWrite
	}
	if err == nil {
		return
	}
	if n > 0 {
		f.file.Write([]byte{'\n'}) // so that it tears no other line
	}
	if f.err == nil {
		f.err = fmt.Errorf("history: event %d is lost: %w", f.seq, err)
	}
}

// Close closes the file, and returns the first error that any event met.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.err, f.file.Close())
}

// mend ends a line that was torn, and returns the number of the incarnation
// that wrote last; 0: none has.
func mend(f *os.File) (incarnation int, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return 0, err
	}
	tail := make([]byte, min(size, 2*maxLine))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return 0, err
	}
	if tail[len(tail)-1] != '\n' {
		if _, err := f.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	return lastIncarnation(tail), nil
}
