package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"grablab/internal/explore"
	"grablab/internal/report"

	"github.com/google/renameio/v2"
)

// exploreCommand is loadgen explore: flags, search, table, failures, schedules.
func exploreCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return exploreWith(ctx, false, args, stdout, stderr)
}

// exploreOwnCommand is the same in a program that has the strategies of -file.
func exploreOwnCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return exploreWith(ctx, true, args, stdout, stderr)
}

func exploreWith(ctx context.Context, built bool, args []string, stdout, stderr io.Writer) int {
	s, err := parseExplore(args)
	if errors.Is(err, flag.ErrHelp) {
		exploreHelp(stdout)
		return exitDone
	}
	if err != nil {
		return complain(stderr, err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if s.file != "" && !built {
		return exploreOwn(ctx, s.file, args, stdout, stderr)
	}
	if err := s.prepare(); err != nil {
		return complain(stderr, err)
	}
	s.notes.print(stderr)
	if s.replay != "" {
		return inTest(func(bubble explore.Bubble) int { return s.replayAll(ctx, bubble, stdout, stderr) })
	}
	exe, err := os.Executable()
	if err != nil {
		return complain(stderr, err)
	}
	s.Command, s.Workers = []string{exe, exploreWorkerCommand}, runtime.GOMAXPROCS(0)
	results, err := explore.Search(ctx, nil, s.Config, s.progress(stderr))
	return s.conclude(results, err, stdout, stderr)
}

// conclude writes the schedules, prints what there is, and decides the exit code.
func (s *exploreSettings) conclude(results []explore.Result, err error, stdout, stderr io.Writer) int {
	interrupted := errors.Is(err, context.Canceled)
	if err != nil && !interrupted {
		if errors.Is(err, explore.ErrConfig) {
			err = fmt.Errorf("%w: %s", errUsage, strings.TrimPrefix(err.Error(), explore.ErrConfig.Error()+": "))
		}
		return complain(stderr, err)
	}
	if s.replay == "" {
		if err := s.save(results); err != nil {
			return complain(stderr, err)
		}
	}
	if err := s.render(stdout, results); err != nil {
		return complain(stderr, err)
	}
	switch {
	case interrupted:
		fmt.Fprintln(stderr, "interrupted: this is what was searched until then")
		return exitInterrupted
	case slices.ContainsFunc(results, func(r explore.Result) bool { return r.Expected != "" && r.Expected != r.Verdict }):
		return exitAssert
	}
	return exitDone
}

// save writes the schedule of every failure, whole or not at all.
func (s *exploreSettings) save(results []explore.Result) error {
	for _, r := range results {
		for _, f := range r.Failures {
			path := s.fileOf(f)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return fmt.Errorf("schedules: %w", err)
			}
			if err := renameio.WriteFile(path, []byte(f.Schedule.String()), 0o644); err != nil {
				return fmt.Errorf("schedules: %w", err)
			}
		}
	}
	return nil
}

func (s *exploreSettings) fileOf(f explore.Failure) string {
	return filepath.Join(s.out, f.Schedule.Strategy+"-"+f.Property+".txt")
}

func (s *exploreSettings) render(w io.Writer, results []explore.Result) error {
	return renderAs(w, exploreFormats, s.format, report.Exploration{Config: s.Config, Results: results, Timing: !s.noTiming, Replay: s.replayWith})
}

// replayWith is the command that shows a failure again.
func (s *exploreSettings) replayWith(f explore.Failure) string {
	command := program() + " explore"
	if s.file != "" {
		command += " -file " + s.file
	}
	if s.replay != "" {
		return command + " -replay " + s.replay
	}
	return command + " -replay " + s.fileOf(f)
}

// prepare reads the schedule to be replayed, and finds the strategies.
func (s *exploreSettings) prepare() error {
	if s.replay == "" {
		return s.choose()
	}
	text, err := os.ReadFile(s.replay)
	if err != nil {
		return fmt.Errorf("%w: -replay: %w", errUsage, err)
	}
	if s.course, err = parseSchedule(s.replay, text, &s.notes); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if s.names == nil {
		s.names = []string{s.course.Strategy}
	}
	return s.choose()
}

// replayAll runs one schedule with its own strategy, or with others.
func (s *exploreSettings) replayAll(ctx context.Context, bubble explore.Bubble, stdout, stderr io.Writer) int {
	var results []explore.Result
	for _, name := range s.Strategies {
		r, err := explore.Replay(ctx, bubble, s.course, name)
		if err != nil {
			return s.conclude(results, err, stdout, stderr)
		}
		results = append(results, r)
	}
	return s.conclude(results, nil, stdout, stderr)
}

// firstDiagram draws the shortest failure, if there is one.
func firstDiagram(w io.Writer, e report.Exploration) error {
	for _, r := range e.Results {
		if len(r.Failures) > 0 {
			return report.Mermaid(w, r.Failures[0])
		}
	}
	return nil
}

// progress says on w, now and then, how far the search is.
func (s *exploreSettings) progress(w io.Writer) explore.Watch {
	if s.quiet {
		w = io.Discard
	}
	var last time.Time
	return func(r explore.Result) {
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		fmt.Fprintf(w, "%s: %d schedules, %d states in %s, %s so far\n", r.Strategy, r.Schedules, r.States, r.Elapsed.Round(time.Second), r.Verdict)
	}
}

const progressEvery = 5 * time.Second
