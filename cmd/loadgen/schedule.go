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

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/replay"
	"grablab/internal/testbed/stack"
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
			return fmt.Errorf("-%s cannot be combined with -schedule, whose file says what happens", name)
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
	cfg, forced, err := s.force(ctx, stdout, stderr)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "interrupted: nothing is claimed of the schedule")
		return exitInterrupted
	case err != nil:
		return complain(stderr, err)
	}
	return concludeSchedule(stdout, cfg, forced)
}

// force is the replay, whose steps are printed as they happen.
func (s *settings) force(ctx context.Context, stdout, stderr io.Writer) (cfg replay.Config, forced replay.Result, err error) {
	if cfg, err = s.replayConfig(); err != nil {
		return cfg, forced, fmt.Errorf("%w: -schedule: %w", errUsage, err)
	}
	if cfg.Exe, err = os.Executable(); err != nil {
		return cfg, forced, err
	}
	s.notes.print(stderr)
	cfg.Out, cfg.Log = stdout, stderr
	if s.quiet {
		cfg.Log = io.Discard
	}
	fmt.Fprintf(stdout, "%s on real servers, with %s\n\n", s.schedule, cfg.Strategy.Name)
	forced, err = replay.Run(ctx, cfg)
	return cfg, forced, err
}

// parseSchedule reads the text of a file. Its property gets its present name, and
// an old one is noted.
func parseSchedule(file string, text []byte, notes *notes) (s schedule.Schedule, err error) {
	if s, err = schedule.Parse(string(text)); err != nil {
		return s, fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), schedule.ErrSyntax.Error()+": "))
	}
	property, note, ok := catalog.FindProperty(s.Property)
	switch {
	case ok:
		s.Property = property.Name
		notes.add(note)
	case s.Property != "":
		known := namesOf(catalog.Properties, func(p catalog.Property) string { return p.Name })
		return s, fmt.Errorf("%s: %w", file, noSuch("property", s.Property, known))
	}
	if _, ok := catalog.FindMode(s.Mode); s.Mode != "" && !ok {
		return s, fmt.Errorf("%s: %w", file, noSuch("failure mode", s.Mode, namesOf(catalog.Modes, func(m catalog.Mode) string { return m.ID })))
	}
	return s, nil
}

// replayConfig reads the file.
func (s *settings) replayConfig() (cfg replay.Config, err error) {
	text, err := os.ReadFile(s.schedule)
	if err != nil {
		return cfg, err
	}
	if cfg, err = configOf(s.schedule, text, &s.notes); err != nil {
		return cfg, err
	}
	if s.given["strategies"] {
		cfg.Strategy = s.Strategies[0]
		return cfg, nil
	}
	cfg.Strategy, err = lock.Find(cfg.Schedule.Strategy)
	return cfg, err
}

// configOf is a replay of the text of a file, without a strategy.
func configOf(file string, text []byte, notes *notes) (cfg replay.Config, err error) {
	cfg.Schedule, err = parseSchedule(file, text, notes)
	cfg.Lines = schedule.StepLines(string(text))
	return cfg, err
}

// concludeSchedule prints what came of it. It exits with 0 if the strategy of the
// schedule violates the property, or another one keeps it.
func concludeSchedule(w io.Writer, cfg replay.Config, f replay.Result) int {
	says, asFound := conclusion(cfg, f)
	fmt.Fprintf(w, "\n%s\n", strings.Join(says, "\n"))
	if !asFound {
		return exitAssert
	}
	return exitDone
}

// conclusion is what came of it in sentences, and whether that is as the schedule wants it.
func conclusion(cfg replay.Config, f replay.Result) (says []string, asFound bool) {
	own := cfg.Strategy.Name == cfg.Schedule.Strategy
	verb := "keeps"
	if f.Violated {
		verb = "violates"
	}
	says = append(says, fmt.Sprintf("%s %s %s: %s", cfg.Strategy.Name, verb, cfg.Schedule.Property, f.Why))
	if f.LeftOut > 0 {
		says = append(says, fmt.Sprintf("%d of %d steps were left out: %s does not come to them", f.LeftOut, len(cfg.Schedule.Steps), cfg.Strategy.Name))
	}
	if mode, ok := catalog.FindMode(cfg.Schedule.Mode); ok && own && f.Violated {
		says = append(says, fmt.Sprintf("%s: %s", mode.ID, mode.Name), fmt.Sprintf("cure: %s (%s)", mode.Cure, mode.In))
	}
	return says, own == f.Violated
}
