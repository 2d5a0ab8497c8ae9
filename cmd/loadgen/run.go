package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"grablab/internal/bench"
	"grablab/internal/report"
	"grablab/internal/stack"

	"golang.org/x/term"
)

// runCommand is loadgen run: flags, folder, run, table, asserts.
func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseRun(args)
	if errors.Is(err, flag.ErrHelp) {
		runHelp(stdout)
		return exitDone
	}
	if err != nil {
		return complain(stderr, err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()

	if s.schedule != "" {
		return s.runSchedule(ctx, stdout, stderr)
	}
	s.sayTo(stdout, stderr)
	out, err := s.folder()
	if err != nil {
		return complain(stderr, err)
	}
	s.Out, s.Begin = out.path, out.begin
	if s.Exe, err = os.Executable(); err != nil {
		return complain(stderr, err)
	}
	run, err := bench.Execute(ctx, s.Config, out.save)
	return s.conclude(run, err, out, stdout, stderr)
}

// folder is where the run is written down.
func (s *settings) folder() (*folder, error) {
	if s.Resume == nil {
		return newFolder(s.Out, s.Scenario, time.Now())
	}
	f, err := namedFolder(s.Out)
	if err == nil {
		f.keep = true
	}
	return f, err
}

// untilSignal ends ctx at the first signal, so that what runs winds up; the
// second finds no handler, and ends the process at once.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	forget := context.AfterFunc(ctx, stop)
	return ctx, func() { forget(); stop() }
}

// sayTo prints the seed, and sets where progress goes.
func (s *settings) sayTo(stdout, stderr io.Writer) {
	s.Log = stderr
	if f, ok := stderr.(*os.File); ok {
		s.TTY = term.IsTerminal(int(f.Fd()))
	}
	if s.quiet {
		s.Log = io.Discard
	}
	first := stdout
	if s.format == "json" { // which must stand there alone
		first = s.Log
	}
	fmt.Fprintf(first, "seed %d\n", s.Seed)
}

// conclude prints what the run came to, and decides the exit code.
func (s *settings) conclude(run *bench.Run, err error, out *folder, stdout, stderr io.Writer) int {
	interrupted := errors.Is(err, context.Canceled)
	switch {
	case out.begun:
	case interrupted:
		fmt.Fprintln(stderr, "interrupted before the first cell: there is nothing to keep")
		if err := out.discard(); err != nil {
			return complain(stderr, err)
		}
		return exitInterrupted
	default:
		if errors.Is(err, stack.ErrRefused) {
			err = fmt.Errorf("%w: %w", errUsage, err)
		}
		return complain(stderr, errors.Join(err, out.discard()))
	}
	if err := s.print(run, out, stdout); err != nil {
		return complain(stderr, err)
	}
	switch {
	case interrupted:
		fmt.Fprintf(stderr, "interrupted: %d of %d cells are kept; -resume %s goes on\n",
			len(run.Cells), max(len(run.Cells), len(s.Plan())), relative(out.path))
		return exitInterrupted
	case err != nil:
		return complain(stderr, err)
	}
	code := exitDone
	for _, a := range s.asserts {
		for _, miss := range a.Misses(run) {
			fmt.Fprintf(stderr, "assert does not hold: %s\n", miss)
			code = exitAssert
		}
	}
	return code
}

func (s *settings) print(run *bench.Run, out *folder, stdout io.Writer) error {
	if s.format == "json" {
		return renderJSON(stdout, run)
	}
	fmt.Fprintln(stdout)
	if err := report.Text(stdout, run); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "\nresults in %s\n", relative(out.path))
	return err
}

// relative is the path as somebody in this folder would type it.
func relative(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if rest, ok := strings.CutPrefix(path, dir+string(filepath.Separator)); ok {
		return rest
	}
	return path
}
