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
	"time"

	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/stack"

	"golang.org/x/term"
)

// runCommand is loadgen run: flags, folder, run, table, asserts.
func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return invoke(ctx, args, stdout, stderr, parseRun, runHelp, (*settings).execute)
}

// invoke reads the settings of a command, or prints its help, and executes it until a signal comes.
func invoke[S any](ctx context.Context, args []string, stdout, stderr io.Writer, parse func([]string) (S, error), help func(io.Writer),
	execute func(S, context.Context, io.Writer, io.Writer) int,
) int {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		help(stdout)
		return exitDone
	}
	if err != nil {
		return complain(stderr, err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	return execute(s, ctx, stdout, stderr)
}

func (s *settings) execute(ctx context.Context, stdout, stderr io.Writer) int {
	if s.schedule != "" {
		return s.runSchedule(ctx, stdout, stderr)
	}
	s.notes.print(stderr)
	s.Log, s.TTY = announce(s.Seed, s.format == "json", s.quiet, stdout, stderr)
	out, err := s.open()
	if err != nil {
		return complain(stderr, err)
	}
	defer out.release()
	run, err := experiment.Execute(ctx, s.Config, out.save)
	return s.conclude(run, err, out, stdout, stderr)
}

// open makes ready where the run is written down, which is to be released.
func (s *settings) open() (*folder, error) {
	out, err := s.folder()
	if err != nil {
		return nil, err
	}
	if s.Out, s.Begin = out.path, out.begin; s.Service != nil {
		s.Stack.Logs = out.path
	}
	if s.Exe, err = os.Executable(); err != nil {
		return nil, errors.Join(err, out.release())
	}
	return out, nil
}

// folder is where the run is written down.
func (s *settings) folder() (*folder, error) {
	if s.Resume == nil {
		return newFolder(s.Out, s.Scenario, time.Now())
	}
	return takeFolder(s.Out) // the finished cells are part of this run
}

// untilSignal ends ctx at the first signal, so that what runs winds up; the
// second finds no handler, and ends the process at once.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, stop := signal.NotifyContext(ctx, instance.EndSignals()...)
	forget := context.AfterFunc(ctx, stop)
	return ctx, func() { forget(); stop() }
}

// announce prints the seed first, and returns where progress goes and whether
// that is a terminal. What a program reads must stand on standard output alone.
func announce(seed uint64, forPrograms, quiet bool, stdout, stderr io.Writer) (log io.Writer, tty bool) {
	f, ok := stderr.(*os.File)
	log, tty = stderr, ok && term.IsTerminal(int(f.Fd()))
	if quiet {
		log, tty = io.Discard, false
	}
	if forPrograms {
		stdout = log
	}
	fmt.Fprintf(stdout, "seed %d\n", seed)
	return log, tty
}

// notBegun removes the folder of what ended before its first unit, which is "cell"
// or "round", and returns the exit code.
func notBegun(err error, unit string, out *folder, stderr io.Writer) int {
	switch failed := out.discard(); {
	case errors.Is(err, context.Canceled) && failed == nil:
		fmt.Fprintf(stderr, "interrupted before the first %s: there is nothing to keep\n", unit)
		return exitInterrupted
	case errors.Is(err, context.Canceled):
		return complain(stderr, failed)
	case errors.Is(err, stack.ErrRefused), errors.Is(err, fleet.ErrRefused), errors.Is(err, ledger.ErrQuery):
		err = fmt.Errorf("%w: %w", errUsage, err)
		fallthrough
	default:
		return complain(stderr, errors.Join(err, failed))
	}
}

// conclude prints what the run came to, and decides the exit code.
func (s *settings) conclude(run *experiment.Run, err error, out *folder, stdout, stderr io.Writer) int {
	if !out.begun {
		return notBegun(err, "cell", out, stderr)
	}
	if err := s.print(run, out, stdout); err != nil {
		return complain(stderr, err)
	}
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(stderr, "interrupted: %d of %d cells are kept; -resume %s goes on\n",
			len(run.Cells), max(len(run.Cells), len(s.Plan())), relative(out.path))
		return exitInterrupted
	case err != nil:
		return complain(stderr, err)
	}
	code := exitDone
	for _, ended := range run.Ended {
		fmt.Fprintf(stderr, "loadgen: %s\n", ended)
	}
	if !run.Measured() {
		return complain(stderr, errors.New("no cell could be measured"))
	}
	for _, a := range s.asserts {
		for _, miss := range a.Misses(run) {
			fmt.Fprintf(stderr, "assert does not hold: %s\n", miss)
			code = exitAssert
		}
	}
	return code
}

func (s *settings) print(run *experiment.Run, out *folder, stdout io.Writer) error {
	if s.format == "json" {
		return report.JSON(stdout, run)
	}
	fmt.Fprintln(stdout)
	if err := report.Text(stdout, run); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(out.path, report.File)); err != nil {
		return nil // it could not be written, as is said next
	}
	_, err := fmt.Fprintf(stdout, "\nresults in %s\n", relative(out.path))
	return err
}

// relative shortens a path that lies in the working directory.
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
