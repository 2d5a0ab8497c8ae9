package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"grablab/internal/explore"
	"grablab/internal/explore/bubble"
	"grablab/internal/flags"
	"grablab/internal/measure/status"
	"grablab/internal/present/report"
	"grablab/internal/testbed/infile"
)

func (s *exploreSettings) execute(ctx context.Context, stdout, stderr io.Writer) error {
	results, err := s.explore(ctx, stderr)
	if results == nil && err != nil {
		return notSearched(err, stderr)
	}
	return s.conclude(results, err, stdout, stderr)
}

// explore searches for schedules in which a lock fails. If -replay is set, it replays one schedule
// instead. If no schedule could run, it returns an error and no results.
func (s *exploreSettings) explore(ctx context.Context, stderr io.Writer) ([]explore.Result, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.Command = []string{exe, exploreWorkerCommand}
	if err := s.readReplay(); err != nil {
		return nil, err
	}
	if s.file != "" {
		own, err := buildOwn(ctx, s.file)
		if err != nil {
			return nil, err
		}
		defer own.remove()
		s.Command = []string{own.exe}
		if s.names == nil {
			s.names = own.names
		}
	}
	if err := s.choose(); err != nil {
		return nil, err
	}
	s.notes.print(stderr)
	s.Workers = runtime.GOMAXPROCS(0)
	if s.replay != "" {
		return s.replayAll(ctx)
	}
	if s.bounded {
		return explore.Search(ctx, nil, s.Config, s.progress(stderr))
	}
	return explore.SearchPortfolio(ctx, nil, s.Config, s.progress(stderr))
}

// notSearched tells the user why no schedule could run, and returns an error that sets the exit
// code.
func notSearched(err error, stderr io.Writer) error {
	if stack := explore.StackOf(err); stack != "" {
		fmt.Fprintf(stderr, "%s\n\n", stack)
	}
	if errors.Is(err, explore.ErrConfig) {
		return flags.Usage("%w", withoutPrefix(err, explore.ErrConfig))
	}
	return orInterrupted(err, stderr, " before the first schedule")
}

// conclude saves the failing schedules, prints the results, and returns an error that sets the exit
// code.
func (s *exploreSettings) conclude(results []explore.Result, err error, stdout, stderr io.Writer) error {
	interrupted := errors.Is(err, context.Canceled)
	if err != nil && !interrupted {
		return notSearched(err, stderr)
	}
	var unsaved error
	if s.replay == "" {
		unsaved = s.save(results)
	}
	if err := errors.Join(s.render(stdout, results), unsaved); err != nil {
		return err
	}
	if s.format == "mermaid" && !slices.ContainsFunc(results, func(r explore.Result) bool { return len(r.Failures) > 0 }) {
		fmt.Fprintln(stderr, "no failure was found, so there is no diagram")
	}
	if !interrupted && slices.ContainsFunc(results, explore.Result.IsUnexpected) {
		return exitAssert
	}
	return orInterrupted(err, stderr, ": these are the results so far")
}

// save writes the schedule of each failure to a file.
func (s *exploreSettings) save(results []explore.Result) error {
	for _, r := range results {
		for _, f := range r.Failures {
			if err := s.write(f); err != nil {
				return err
			}
		}
		if err := s.save(r.Parts); err != nil {
			return err
		}
	}
	return nil
}

// write saves the schedule of a failure atomically, so that readers never see a half-written file.
func (s *exploreSettings) write(f explore.Failure) error {
	if err := replaceFile(s.fileOf(f), []byte(f.Schedule.String())); err != nil {
		return fmt.Errorf("schedules: %w", err)
	}
	return nil
}

// fileOf returns the path for the schedule of a failure. It adds a number to the name if several
// searches find different schedules for the same failure.
func (s *exploreSettings) fileOf(f explore.Failure) string {
	name := f.Schedule.Strategy + "-" + f.Property
	if f.Kind != "" {
		name += "-" + strings.NewReplacer(", ", "-", " ", "-").Replace(f.Kind)
	}
	if s.schedules == nil {
		s.schedules = map[string]string{}
	}
	text, numbered := f.Schedule.String(), name
	for n := 2; s.schedules[numbered] != "" && s.schedules[numbered] != text; n++ {
		numbered = fmt.Sprintf("%s-%d", name, n)
	}
	s.schedules[numbered] = text
	return filepath.Join(s.out, numbered+".txt")
}

func (s *exploreSettings) render(w io.Writer, results []explore.Result) error {
	e := report.Exploration{Config: s.Config, Results: results, Timing: !s.noTiming, Replay: s.replayWith}
	if !s.bounded && s.replay == "" {
		e.Parts = explore.Portfolio(s.Config)
	}
	return renderAs(w, exploreFormats, s.format, e)
}

func (s *exploreSettings) replayWith(f explore.Failure) string {
	return exploreCommandOf(s.file) + " -replay " + report.Quote(cmp.Or(s.replay, s.fileOf(f)))
}

// exploreCommandOf returns the beginning of an explore command for the locks in file, or for our own
// locks if file is empty.
func exploreCommandOf(file string) string {
	command := program() + " explore"
	if file != "" {
		command += " -file " + report.Quote(file)
	}
	return command
}

// readReplay reads the schedule file that the -replay flag names. It does nothing if the flag is
// not set.
func (s *exploreSettings) readReplay() error {
	if s.replay == "" {
		return nil
	}
	text, err := infile.Read(s.replay, infile.Small)
	if err != nil {
		return flags.Usage("-replay: %w", err)
	}
	if s.course, err = parseSchedule(s.replay, text, &s.notes); err != nil {
		return flags.Usage("%w", err)
	}
	if s.names == nil {
		s.names = []string{s.course.Strategy}
	}
	return nil
}

func (s *exploreSettings) replayAll(ctx context.Context) (results []explore.Result, err error) {
	for _, name := range s.Strategies {
		r, err := explore.ReplayBy(ctx, nil, s.Command, s.course, name)
		if err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}

// firstDiagram draws a diagram of the first failure. It writes nothing if there is no failure.
func firstDiagram(w io.Writer, e report.Exploration) error {
	for _, r := range e.Results {
		if len(r.Failures) > 0 {
			return report.Mermaid(w, r.Failures[0])
		}
	}
	return nil
}

// progress returns a function that prints a search's progress, at most once per progressEvery. The
// function also saves a failing schedule as soon as the search can no longer find a shorter one.
func (s *exploreSettings) progress(w io.Writer) explore.Watch {
	if s.quiet {
		w = io.Discard
	}
	line := status.Line{W: w, Every: progressEvery}
	reported := map[string]bool{}
	return func(r explore.Result) {
		for _, f := range r.Failures {
			path := s.fileOf(f)
			if reported[path] || s.write(f) != nil { // conclude tries to write the file again
				continue
			}
			reported[path] = true
			line.Say("%s %s in %d steps. The schedule is in %s", r.Strategy, report.Breaks(f.Property), len(f.Schedule.Steps), path)
		}
		name := r.Strategy
		if r.Part != "" {
			name += ", " + r.Part
		}
		line.Step("%s: searched %d schedules and %d states in %s, %s so far", name, r.Schedules, r.States, r.Elapsed.Round(time.Second), r.Verdict)
	}
}

const progressEvery = 5 * time.Second

// exploreWorkerCommand is the name of a hidden command. The explore command runs it in child
// processes, which execute the schedules.
const exploreWorkerCommand = "explore-worker"

func exploreWorkerMain(_ context.Context, _ []string, _, stderr io.Writer) error {
	return exitCode(bubble.Main(func(bubble explore.Bubble) int { return conclude(explore.Work(bubble), stderr) }))
}
