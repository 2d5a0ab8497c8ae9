package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/trace"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// execute performs the run command. It runs all tests, or replays a single schedule if the -schedule flag is
// set. The merge command also calls it, to judge recorded shards without new load.
func (s *runSettings) execute(ctx context.Context, stdout, stderr io.Writer) error {
	if s.schedule != "" {
		return s.runSchedule(ctx, stdout, stderr)
	}
	s.printNote(stderr)
	s.Log, s.TTY = announce(s.Seed, s.format == "json", s.quiet, stdout, stderr)
	out, err := s.open()
	if err != nil {
		return err
	}
	defer out.close()
	warn := func(err error) { fmt.Fprintf(s.Log, "cannot send traces: %v\n", err) }
	if s.Trace, err = trace.Dial(ctx, s.OTLP, "loadgen", "", warn); err != nil {
		return err
	}
	defer s.Trace.Close()
	if s.Shard == nil { // test grabs by each shard would use up the orders that all shards share
		s.Inspected = s.checkPreflight
	}
	run, err := experiment.Execute(ctx, s.Config, out.save)
	return s.conclude(run, err, out, stdout, stderr)
}

// open creates the result folder of a new run, or opens the folder of the run to resume. The caller
// must close it.
func (s *runSettings) open() (*folder, error) {
	var out *folder
	var err error
	if s.Resume == nil {
		out, err = newFolder(s.Out, s.Scenario, time.Now())
	} else {
		out, err = takeFolder(s.Out)
	}
	if err != nil {
		return nil, err
	}
	s.Out, s.Begin = out.path, func() { out.begun = true }
	if s.Service != nil {
		s.Stack.Logs = out.path
	}
	if s.Exe, err = os.Executable(); err != nil {
		return nil, errors.Join(err, out.close())
	}
	return out, nil
}

// conclude prints the result of the run, and returns an error that sets the exit code.
func (s *runSettings) conclude(run *experiment.Run, err error, out *folder, stdout, stderr io.Writer) error {
	if !out.begun {
		return notBegun(s.refusal(err), "cell", out, stderr)
	}
	cases := report.Cases(run, s.baseline, s.asserts)
	if failed := errors.Join(printRun(stdout, run, s.format, out.path), tellCI(run, cases, s.junit, stderr)); failed != nil {
		return errors.Join(err, failed)
	}
	if err != nil {
		return orInterrupted(err, stderr, ": the results of %d of %d planned tests are kept; to continue, run: %s",
			len(catalog.Filter(run.Cells, func(c experiment.Cell) bool { return !c.Interrupted })), max(len(run.Cells), run.Planned), s.resumeCommand(relative(out.path)))
	}
	for _, ended := range run.Ended {
		fmt.Fprintf(stderr, "loadgen: %s\n", ended)
	}
	if !run.Measured() {
		return errors.New("nothing could be measured: see the reasons in the report above")
	}
	err = checkBaseline(s.baseline, cases, stderr)
	for _, a := range s.asserts {
		for _, miss := range a.Misses(run) {
			fmt.Fprintf(stderr, "this assertion does not hold: %s\n", miss)
			err = exitAssert
		}
	}
	return err
}

// printRun writes the result to w, as a table or as JSON. It names the result folder if that holds
// the result.
func printRun(w io.Writer, run *experiment.Run, format, folder string) error {
	if format == "json" {
		return report.JSON(w, run)
	}
	fmt.Fprintln(w)
	if err := report.Text(w, run); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, report.File)); err != nil {
		return nil // the file could not be written, and the caller reports that
	}
	_, err := fmt.Fprintf(w, "\nresults in %s\n", relative(folder))
	return err
}

// tellCI writes a JUnit file for CI systems, unless its name is empty. On GitHub Actions, it also
// writes a summary and annotations.
func tellCI(run *experiment.Run, cases []report.Case, junit string, stderr io.Writer) error {
	var errs []error
	if junit != "" {
		errs = append(errs, writeJUnit(junit, run, cases))
	}
	if path := os.Getenv("GITHUB_STEP_SUMMARY"); path != "" {
		errs = append(errs, appendSummary(path, run, cases))
	}
	if os.Getenv("GITHUB_ACTIONS") == "true" {
		errs = append(errs, report.Annotations(stderr, cases))
	}
	return errors.Join(errs...)
}

func writeJUnit(path string, run *experiment.Run, cases []report.Case) error {
	var b bytes.Buffer
	err := report.JUnit(&b, run, cases)
	if err == nil {
		err = replaceFile(path, b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("-junit: %w", err)
	}
	return nil
}

// appendSummary appends to the summary file, which may contain the output of earlier commands.
func appendSummary(path string, run *experiment.Run, cases []report.Case) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		err = errors.Join(report.StepSummary(f, run, cases), f.Close())
	}
	if err != nil {
		return fmt.Errorf("GITHUB_STEP_SUMMARY: %w", err)
	}
	return nil
}
