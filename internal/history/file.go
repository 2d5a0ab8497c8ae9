package history

import (
	"bytes"
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
// none. On Linux it is copied into a mapping of the file, elsewhere, and where
// the file cannot be mapped, it is a write(2). On ext4 the copy costs 0.5 us an
// event, the write 0.9, 0.4 of either for the clock and the JSON. Until Close
// the file may end in NULs; Decode and End know them.
type File struct {
	instance    string
	incarnation int
	clock       func() time.Duration

	mu   sync.Mutex
	file *os.File
	tail tail
	seq  uint64
	buf  []byte
	err  error // the first failure
}

// Create opens the event file of an instance, and appends to what an earlier
// incarnation of it has left there. No two may record to one file at a time.
func Create(path, instance string) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	last, end, err := mend(f)
	if err != nil {
		return nil, fmt.Errorf("history: %w", errors.Join(err, f.Close()))
	}
	return &File{instance: instance, incarnation: last + 1, clock: Clock(), file: f, tail: openTail(f, end)}, nil
}

// Record appends e. An event that cannot be written leaves a gap in Seq, and
// its error to Close.
func (f *File) Record(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	e.Seq, e.T, e.Instance, e.Incarnation = f.seq, f.clock(), f.instance, f.incarnation
	f.buf = append(e.AppendJSON(f.buf[:0]), '\n')
	if err := f.tail.append(f.buf); err != nil && f.err == nil {
		f.err = fmt.Errorf("history: event %d is lost: %w", f.seq, err)
	}
}

// Close closes the file, and returns the first error that any event met.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.tail.close()
	if err != nil {
		err = fmt.Errorf("history: %w", err)
	}
	// Else a child forked a moment ago would hold the lock until it execs.
	_ = unix.Flock(int(f.file.Fd()), unix.LOCK_UN)
	return errors.Join(f.err, err, f.file.Close())
}

// write appends the line by write(2).
func write(f *os.File, line []byte) error {
	n, err := unix.Write(int(f.Fd()), line) // what os.File would add to it is a sixth
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	if err != nil && n > 0 {
		f.Write([]byte{'\n'}) // so that it tears no other line
	}
	return err
}

// mend takes the file for its own, cuts what was only reserved and ends a line
// that was torn. It returns the number of the incarnation that wrote last, 0 if
// none has, and where to append.
func mend(f *os.File) (incarnation int, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	if info.Mode().IsRegular() { // of a device there may be many
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) { // not every file system has locks
			return 0, 0, fmt.Errorf("another records to %s: %w", f.Name(), err)
		}
	}
	if end, err = End(f); err != nil {
		return 0, 0, err
	}
	if end < info.Size() {
		if err := f.Truncate(end); err != nil {
			return 0, 0, err
		}
	}
	tail, err := before(f, end)
	if err != nil || end == 0 {
		return 0, end, err
	}
	if tail[len(tail)-1] != '\n' {
		if _, err := f.Write([]byte{'\n'}); err != nil {
			return 0, 0, err
		}
		end++
	}
	return lastIncarnation(tail), end, nil
}

// End is where the events of a file end that somebody may be recording to, or
// was killed at: what comes then is NULs, or a line that is not yet recorded.
func End(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	for end > 0 {
		tail, err := before(f, end)
		if err != nil {
			return 0, err
		}
		text := bytes.TrimRight(tail, nul)
		if len(text) < len(tail) {
			end -= int64(len(tail) - len(text))
			continue // from there the whole of the last line is in sight
		}
		line := text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:]
		begun := bytes.TrimLeft(line, nul)
		if !unfinished(len(begun) < len(line), begun) {
			break
		}
		end -= int64(len(line))
	}
	return end, nil
}

// before reads what stands before end, more than a line of it.
func before(f *os.File, end int64) ([]byte, error) {
	tail := make([]byte, min(end, 2*maxLine))
	if _, err := f.ReadAt(tail, end-int64(len(tail))); err != nil {
		return nil, err
	}
	return tail, nil
}
