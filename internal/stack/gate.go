package stack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// gate holds a child back until it is known to the keeper: the child reads one
// byte before it becomes the program that it is meant to be. If the gate closes
// instead, for whatever reason, the child ends.
type gate struct {
	goRead, goWrite         *os.File
	failedRead, failedWrite *os.File
}

func newGate() (*gate, error) {
	var g gate
	var err error
	if g.goRead, g.goWrite, err = os.Pipe(); err != nil {
		return nil, err
	}
	if g.failedRead, g.failedWrite, err = os.Pipe(); err != nil {
		return nil, errors.Join(err, g.goRead.Close(), g.goWrite.Close())
	}
	return &g, nil
}

// The child's ends become these file descriptors.
const (
	goFD = 3 + iota
	failedFD
)

func (g *gate) childEnds() []*os.File { return []*os.File{g.goRead, g.failedWrite} }

// open lets the child go, and returns once it runs the program or has failed to.
func (g *gate) open() error {
	if _, err := g.goWrite.Write([]byte{'\n'}); err != nil {
		return err
	}
	g.failedWrite.Close()
	why, err := io.ReadAll(g.failedRead)
	if err == nil && len(why) > 0 {
		err = errors.New(string(why))
	}
	return err
}

func (g *gate) close() {
	for _, f := range []*os.File{g.goRead, g.goWrite, g.failedRead, g.failedWrite} {
		f.Close()
	}
}

// passGate is the child's side. It returns only if it cannot become the program.
func passGate(argv []string) error {
	failed := os.NewFile(failedFD, "failed")
	syscall.CloseOnExec(failedFD)
	goAhead := os.NewFile(goFD, "go")
	if _, err := io.ReadFull(goAhead, make([]byte, 1)); err != nil {
		return fmt.Errorf("stack: abandoned at the gate: %w", err)
	}
	goAhead.Close()
	err := syscall.Exec(argv[0], argv, os.Environ())
	fmt.Fprintf(failed, "%s: %v", argv[0], err)
	return err
}
