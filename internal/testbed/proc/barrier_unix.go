//go:build unix

package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Barrier holds a child back until it is lifted: the child reads one byte before it
// becomes the program that it is meant to be. If the pipe closes instead, because this
// process has died, the child ends.
type Barrier struct {
	goRead, goWrite         *os.File
	failedRead, failedWrite *os.File
}

// NewBarrier is a Barrier for one child.
func NewBarrier() (*Barrier, error) {
	var b Barrier
	var err error
	if b.goRead, b.goWrite, err = os.Pipe(); err != nil {
		return nil, err
	}
	if b.failedRead, b.failedWrite, err = os.Pipe(); err != nil {
		return nil, errors.Join(err, b.goRead.Close(), b.goWrite.Close())
	}
	return &b, nil
}

// Command is a child that becomes the program at path. Until then it is the program
// self, which takes command as the word to call [PassBarrier] with what follows it.
func (b *Barrier) Command(self, command, path string, args []string) (*exec.Cmd, error) {
	cmd := exec.Command(self, append([]string{command, path}, args...)...)
	return cmd, Pass(cmd, b.goRead, b.failedWrite)
}

// Lift lets the child go on. It returns once the child has become the program,
// or the error for which it cannot.
func (b *Barrier) Lift() error {
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

// Close closes its files.
func (b *Barrier) Close() {
	for _, f := range []*os.File{b.goRead, b.goWrite, b.failedRead, b.failedWrite} {
		f.Close()
	}
}

// PassBarrier is the child's side: argv is the program's path and its arguments. It
// returns only if it cannot become the program.
func PassBarrier(argv []string) error {
	files, err := Passed(2)
	if err != nil {
		return err
	}
	goAhead, failed := files[0], files[1]
	if _, err := io.ReadFull(goAhead, make([]byte, 1)); err != nil {
		return fmt.Errorf("proc: abandoned at the barrier: %w", err)
	}
	goAhead.Close()
	err = syscall.Exec(argv[0], argv, os.Environ())
	fmt.Fprintf(failed, "%s: %v", argv[0], err)
	return err
}
