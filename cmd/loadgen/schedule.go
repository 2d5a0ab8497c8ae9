package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/replay"
	"grablab/internal/schedule"
	"grablab/internal/stack"
)

// besideSchedule are the flags that leave a schedule as it is.
var besideSchedule = []string{"schedule", "stack", "strategies", "quiet"}

// checkSchedule finds flags that a schedule leaves no room for.
func (s *settings) checkSchedule() error {
	if s.schedule == "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.given)) {
		if !slices.Contains(besideSchedule, name) {
			return fmt.Errorf("-%s cannot stand with -schedule, whose file says what happens", name)
		}
	}
	switch {
	case s.Stack.Kind != stack.Local:
		return errors.New("-schedule goes with -stack local, whose servers it can strike")
	case s.given["strategies"] && len(s.Strategies) > 1:
		return errors.New("-schedule takes one of -strategies at a time")
	}
	return nil
}

// runSchedule forces a schedule on real servers, and says whether its property
// was violated there. It writes no result folder.
func (s *settings) runSchedule(ctx context.Context, stdout, stderr io.Writer) int {
	cfg, err := s.forceConfig()
	if err != nil {
		return complain(stderr, fmt.Errorf("%w: -schedule: %w", errUsage, err))
	}
	if cfg.Exe, err = os.Executable(); err != nil {
		return complain(stderr, err)
	}
	cfg.Out, cfg.Log = stdout, stderr
	if s.quiet {
		cfg.Out, cfg.Log = io.Discard, io.Discard
	}
	fmt.Fprintf(stdout, "%s on real servers, with %s\n\n", s.schedule, cfg.Strategy.Name)
	forced, err := replay.Run(ctx, cfg)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "interrupted: nothing is claimed of the schedule")
		return exitInterrupted
	case err != nil:
		return complain(stderr, err)
	}
	return concludeSchedule(stdout, cfg, forced)
}

// forceConfig reads the file.
func (s *settings) forceConfig() (cfg replay.Config, err error) {
	text, err := os.ReadFile(s.schedule)
	if err != nil {
		return cfg, err
	}
	if cfg.Schedule, err = schedule.Parse(string(text)); err != nil {
		return cfg, fmt.Errorf("%s: %s", s.schedule, strings.TrimPrefix(err.Error(), schedule.ErrSyntax.Error()+": "))
	}
	cfg.Lines = schedule.StepLines(string(text))
	if s.given["strategies"] {
		cfg.Strategy = s.Strategies[0]
		return cfg, nil
	}
	cfg.Strategy, err = lock.Find(cfg.Schedule.Strategy)
	return cfg, err
}

// concludeSchedule tells what came of it. It exits with 0 if the strategy of the
// schedule violates the property, or another one keeps it.
func concludeSchedule(w io.Writer, cfg replay.Config, f replay.Result) int {
	own := cfg.Strategy.Name == cfg.Schedule.Strategy
	verb := "keeps"
	if f.Violated {
		verb = "violates"
	}
	fmt.Fprintf(w, "\n%s %s %s: %s\n", cfg.Strategy.Name, verb, cfg.Schedule.Property, f.Why)
	if f.LeftOut > 0 {
		fmt.Fprintf(w, "%d of %d steps were left out: %s does not come to them\n", f.LeftOut, len(cfg.Schedule.Steps), cfg.Strategy.Name)
	}
	i := slices.IndexFunc(check.Modes, func(m check.Mode) bool { return m.ID == cfg.Schedule.Mode })
	if own && f.Violated && i >= 0 {
		m := check.Modes[i]
		fmt.Fprintf(w, "%s: %s\ncure: %s (%s)\n", m.ID, m.Name, m.Cure, m.In)
	}
	if own != f.Violated {
		return exitAssert
	}
	return exitDone
}
