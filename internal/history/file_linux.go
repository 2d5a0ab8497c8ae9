package history

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// chunk is how much of a file is reserved and mapped at a time. 64 KiB would cost
// an event 0.3 us more; 256 KiB and 4 MiB differ by less than the noise.
const chunk = 1 << 20

// tail is the end of a file, which lines are appended to by copying them into a
// mapping of it. Space is reserved before it is mapped, so that a full disk is
// an error of the call and no SIGBUS.
type tail struct {
	file   *os.File
	plain  bool   // it cannot be mapped
	window []byte // maps the file from base on; none: nothing is mapped
	base   int64
	end    int64 // of the last line
}

// openTail appends to f from end on, which is its size.
func openTail(f *os.File, end int64) tail {
	t := tail{file: f, end: end}
	if t.plain = refused(t.reserve()); t.plain { // what else there is, the first event meets again
		_ = f.Truncate(end) // it may have been reserved all the same
	}
	return t
}

// refused says that the file, or its file system, does not do such things.
func refused(err error) bool {
	for _, e := range []error{errors.ErrUnsupported, unix.EINVAL, unix.ENODEV, unix.ESPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// append appends the line. After an error the next line tries to reserve anew.
func (t *tail) append(line []byte) error {
	if t.plain {
		return write(t.file, line)
	}
	if int(t.end-t.base)+len(line) > len(t.window) {
		if err := t.reserve(); err != nil {
			return err
		}
	}
	if err := put(t.window[t.end-t.base:], line); err != nil {
		return errors.Join(err, t.release())
	}
	t.end += int64(len(line))
	return nil
}

// reserve moves the window on to the page in which the last line ends.
func (t *tail) reserve() error {
	if err := t.release(); err != nil {
		return err
	}
	fd, base := int(t.file.Fd()), t.end-t.end%int64(os.Getpagesize())
	err := unix.Fallocate(fd, 0, base, chunk)
	for err == unix.EINTR { // Go's scheduler sends signals
		err = unix.Fallocate(fd, 0, base, chunk)
	}
	if err != nil {
		return os.NewSyscallError("fallocate", err)
	}
	window, err := unix.Mmap(fd, base, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	t.window, t.base = window, base
	return nil
}

// release unmaps what is mapped.
func (t *tail) release() error {
	window := t.window
	if t.window = nil; window == nil {
		return nil
	}
	return os.NewSyscallError("munmap", unix.Munmap(window))
}

// close gives back what was reserved for nothing.
func (t *tail) close() error {
	if t.plain {
		return nil
	}
	if err := t.release(); err != nil {
		return err
	}
	info, err := t.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < t.end {
		return fmt.Errorf("somebody has cut %s at %d of %d bytes", t.file.Name(), info.Size(), t.end)
	}
	return t.file.Truncate(t.end)
}

var errFault = errors.New("its page cannot be written")

// put copies the line, its first byte last: a process may be killed or stopped
// between, at a page that is not there yet, and then there is no line. What
// makes the page fail for good (a bad disk, a file that somebody has cut) panics
// instead of ending the process; to ask for that and to recover costs 15 ns.
func put(to, line []byte) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // a fault, says package debug
			err = errFault
		default:
			panic(r)
		}
	}()
	copy(to[1:], line[1:])
	to[0] = line[0]
	return nil
}
