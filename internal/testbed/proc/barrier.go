package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// Barrier holds a child process back until Lift is called, and then lets it become its real
// program. If this process dies before that, the child exits.
type Barrier struct {
	goRead, goWrite         *os.File
	failedRead, failedWrite *os.File
}

// NewBarrier returns a Barrier for one child.
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

// Command returns a command that starts self with the argument command. The new process must call
// [PassBarrier] to become the program at path after Lift.
func (b *Barrier) Command(self, command, path string, args []string) *exec.Cmd {
	cmd := exec.Command(self, append([]string{command, path}, args...)...)
	cmd.ExtraFiles = []*os.File{b.goRead, b.failedWrite}
	return cmd
}

// Lift lets the child become its real program. It returns an error if the child cannot start that
// program.
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

// Close closes the pipes.
func (b *Barrier) Close() {
	for _, f := range []*os.File{b.goRead, b.goWrite, b.failedRead, b.failedWrite} {
		f.Close()
	}
}

// PassBarrier waits for Lift and then replaces this process with the program in argv. It returns
// only if it fails.
func PassBarrier(argv []string) error {
	files := Passed(2)
	goAhead, failed := files[0], files[1]
	if _, err := io.ReadFull(goAhead, make([]byte, 1)); err != nil {
		return fmt.Errorf("proc: the parent process ended before this process could start: %w", err)
	}
	goAhead.Close()
	err := syscall.Exec(argv[0], argv, os.Environ())
	fmt.Fprintf(failed, "%s: %v", argv[0], err)
	return err
}
