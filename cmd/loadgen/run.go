package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/trace"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/replay"
	"grablab/internal/present/lab"
	"grablab/internal/present/report"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/infile"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/stack"
	"grablab/migrations"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// execute performs the run command. It runs all tests, or replays a single schedule if the -schedule flag is
// set. The merge command also calls it, to judge recorded shards without new load.
func (s *settings) execute(ctx context.Context, stdout, stderr io.Writer) error {
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
func (s *settings) open() (*folder, error) {
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
	s.Out, s.Begin = out.path, out.begin
	if s.Service != nil {
		s.Stack.Logs = out.path
	}
	if s.Exe, err = os.Executable(); err != nil {
		return nil, errors.Join(err, out.close())
	}
	return out, nil
}

// untilSignal returns a context that ends at the first signal, or when no one reads the output any
// more. The command can then clean up. A second signal ends the process immediately.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, stop := signal.NotifyContext(ctx, instance.EndSignals()...)
	forget := context.AfterFunc(ctx, stop)
	ctx, end := context.WithCancel(ctx)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE) // otherwise, a write to a closed pipe would end the process at once
	go func() {
		for {
			select {
			case <-pipe: // a connection that a server has closed causes this signal too
				if isClosed(os.Stdout) || isClosed(os.Stderr) {
					end()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { signal.Stop(pipe); end(); forget(); stop() }
}

// isClosed reports whether the other end of a pipe is closed.
func isClosed(f *os.File) bool {
	state := []unix.PollFd{{Fd: int32(f.Fd())}}
	_, err := unix.Poll(state, 0)
	return err == nil && state[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// announce prints the random seed, so that the user can repeat the run. It returns the writer for
// progress messages, and whether that writer is a terminal.
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

// notBegun cleans up after a command that failed or was interrupted before its first measurement. It
// removes the result folder, and returns an error that sets the exit code. unit names what is measured,
// such as "round".
func notBegun(err error, unit string, out *folder, stderr io.Writer) error {
	if failed := out.close(); failed != nil {
		return errors.Join(asUsageError(err), failed)
	}
	return orInterrupted(asUsageError(err), stderr, " before the first %s ended, so there are no results", unit)
}

// asUsageError turns errors that the user can fix, such as a wrong -ledger-query, into usage errors.
// It returns other errors unchanged.
func asUsageError(err error) error {
	for _, sentinel := range []error{stack.ErrRefused, fleet.ErrRefused, ledger.ErrQuery, migrations.ErrForeign, infile.ErrTooLarge, lab.ErrAddr} {
		if errors.Is(err, sentinel) {
			return flags.Usage("%w", err)
		}
	}
	return err
}

// conclude prints the result of the run, and returns an error that sets the exit code.
func (s *settings) conclude(run *experiment.Run, err error, out *folder, stdout, stderr io.Writer) error {
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

// relative returns path relative to the working directory, if it is below that directory.
func relative(path string) string {
	dir, err := os.Getwd()
	if rest, ok := strings.CutPrefix(path, dir+string(filepath.Separator)); ok && err == nil {
		return rest
	}
	return path
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

// runSchedule replays a schedule on real servers. It prints whether the schedule violated the
// property that it was written to violate.
func (s *settings) runSchedule(ctx context.Context, stdout, stderr io.Writer) error {
	cfg, forced, err := s.force(ctx, stdout, stderr)
	if err != nil {
		return orInterrupted(err, stderr, " before the schedule ended, so there is no result")
	}
	return concludeSchedule(stdout, cfg, forced)
}

// force makes real servers follow the schedule step by step, and prints each step as it happens.
func (s *settings) force(ctx context.Context, stdout, stderr io.Writer) (cfg replay.Config, forced replay.Result, err error) {
	if cfg, err = s.replayConfig(); err != nil {
		return cfg, forced, flags.Usage("-schedule: %w", err)
	}
	if cfg.Exe, err = os.Executable(); err != nil {
		return cfg, forced, err
	}
	cfg.Out, cfg.Log = stdout, stderr
	if s.quiet {
		cfg.Log = io.Discard
	}
	fmt.Fprintf(stdout, "%s on real servers, with %s\n\n", s.schedule, cfg.Strategy.Name)
	forced, err = replay.Run(ctx, cfg)
	return cfg, forced, err
}

// parseSchedule parses a schedule file. It replaces an old name of a property with the current name.
func parseSchedule(file string, text []byte) (s schedule.Schedule, err error) {
	if s, err = schedule.Parse(string(text)); err != nil {
		return s, fmt.Errorf("%s: %w", file, withoutPrefix(err, schedule.ErrSyntax))
	}
	property, ok := catalog.FindProperty(s.Property)
	switch {
	case ok:
		s.Property = property.Name
	case s.Property != "":
		known := catalog.Map(catalog.Properties, func(p catalog.Property) string { return p.Name })
		return s, fmt.Errorf("%s: %w", file, flags.Unknown("property", s.Property, known))
	}
	if _, ok := catalog.FindMode(s.Mode); s.Mode != "" && !ok {
		known := catalog.Map(catalog.Modes, func(m catalog.Mode) string { return m.ID })
		return s, fmt.Errorf("%s: %w", file, flags.Unknown("failure mode", s.Mode, known))
	}
	return s, nil
}

// replayConfig reads the schedule file and selects the strategy to replay it with.
func (s *settings) replayConfig() (cfg replay.Config, err error) {
	text, err := infile.Read(s.schedule, infile.Small)
	if err != nil {
		return cfg, err
	}
	if cfg.Schedule, err = parseSchedule(s.schedule, text); err != nil {
		return cfg, err
	}
	cfg.Lines = schedule.StepLines(string(text))
	if s.given("strategies") {
		cfg.Strategy = s.Strategies[0]
		return cfg, nil
	}
	cfg.Strategy, err = lock.Find(cfg.Schedule.Strategy)
	return cfg, err
}

// concludeSchedule prints the result of a replay. It returns exitAssert if the schedule file
// predicts another result.
func concludeSchedule(w io.Writer, cfg replay.Config, f replay.Result) error {
	sameStrategy := cfg.Strategy.Name == cfg.Schedule.Strategy
	verb := "keeps"
	if f.Violated {
		verb = "violates"
	}
	fmt.Fprintf(w, "\n%s %s %s: %s\n", cfg.Strategy.Name, verb, cfg.Schedule.Property, f.Why)
	if f.LeftOut > 0 {
		fmt.Fprintf(w, "%d of %d steps were skipped, because %s does not reach them\n", f.LeftOut, len(cfg.Schedule.Steps), cfg.Strategy.Name)
	}
	if mode, ok := catalog.FindMode(cfg.Schedule.Mode); ok && sameStrategy && f.Violated {
		fmt.Fprintf(w, "%s: %s\ncure: %s (%s)\n", mode.ID, mode.Name, mode.Cure, mode.In)
	}
	if sameStrategy != f.Violated {
		return exitAssert
	}
	return nil
}
