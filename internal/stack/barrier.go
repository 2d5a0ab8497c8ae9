package stack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// barrier holds a child back until the reaper knows its process id: the child
// reads one byte before it becomes the program that it is meant to be. If the
// pipe closes instead, because this process has died, the child ends.
type barrier struct {
	goRead, goWrite         *os.File
	failedRead, failedWrite *os.File
}

func newBarrier() (*barrier, error) {
	var b barrier
	var err error
	if b.goRead, b.goWrite, err = os.Pipe(); err != nil {
		return nil, err
	}
	if b.failedRead, b.failedWrite, err = os.Pipe(); err != nil {
		return nil, errors.Join(err, b.goRead.Close(), b.goWrite.Close())
	}
	return &b, nil
}

// The child's ends become these file descriptors.
const (
	goFD = 3 + iota
	failedFD
)

func (b *barrier) childEnds() []*os.File { return []*os.File{b.goRead, b.failedWrite} }

// lift lets the child go on. It returns once the child has become the program,
// or the error for which it cannot.
func (b *barrier) lift() error {
	if _, err := b.goWrite.Write([]byte{'\n'}); err != nil {
		return err
	}
	b.failedWrite.Close()
	why, err := io.ReadAll(b.failedRead)
	if err == nil && len(why) > 0 {
		err = errors.New(string(why))
	}
	return err
}

func (b *barrier) close() {
	for _, f := range []*os.File{b.goRead, b.goWrite, b.failedRead, b.failedWrite} {
		f.Close()
	}
}

// passBarrier is the child's side. It returns only if it cannot become the program.
func passBarrier(argv []string) error {
	failed := os.NewFile(failedFD, "failed")
	syscall.CloseOnExec(failedFD)
	goAhead := os.NewFile(goFD, "go")
	if _, err := io.ReadFull(goAhead, make([]byte, 1)); err != nil {
		return fmt.Errorf("stack: abandoned at the barrier: %w", err)
	}
	goAhead.Close()
	err := syscall.Exec(argv[0], argv, os.Environ())
	fmt.Fprintf(failed, "%s: %v", argv[0], err)
	return err
}
