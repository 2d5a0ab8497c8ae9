package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/replay"
	"grablab/internal/testbed/infile"
)

// runSchedule makes real servers follow a schedule step by step, and prints each step as it happens. At
// the end, it prints whether the schedule violated the property that it was written to violate.
func (s *runSettings) runSchedule(ctx context.Context, stdout, stderr io.Writer) error {
	cfg, err := s.replayConfig()
	if err != nil {
		return flags.Usage("-schedule: %w", err)
	}
	if cfg.Exe, err = os.Executable(); err != nil {
		return err
	}
	cfg.Out, cfg.Log = stdout, stderr
	if s.quiet {
		cfg.Log = io.Discard
	}
	fmt.Fprintf(stdout, "%s on real servers, with %s\n\n", s.schedule, cfg.Strategy.Name)
	result, err := replay.Run(ctx, cfg)
	if err != nil {
		return orInterrupted(err, stderr, " before the schedule ended, so there is no result")
	}
	return concludeSchedule(stdout, cfg, result)
}

// readSchedule reads a schedule file, and returns the line of each step too. It replaces an old name of
// a property with the current name.
func readSchedule(file string) (s schedule.Schedule, lines []int, err error) {
	text, err := infile.Read(file, infile.Small)
	if err != nil {
		return s, nil, err
	}
	if s, err = schedule.Parse(string(text)); err != nil {
		return s, nil, fmt.Errorf("%s: %w", file, withoutPrefix(err, schedule.ErrSyntax))
	}
	property, ok := catalog.FindProperty(s.Property)
	switch {
	case ok:
		s.Property = property.Name
	case s.Property != "":
		known := catalog.Map(catalog.Properties, func(p catalog.Property) string { return p.Name })
		return s, nil, fmt.Errorf("%s: %w", file, flags.Unknown("property", s.Property, known))
	}
	if _, ok := catalog.FindMode(s.Mode); s.Mode != "" && !ok {
		known := catalog.Map(catalog.Modes, func(m catalog.Mode) string { return m.ID })
		return s, nil, fmt.Errorf("%s: %w", file, flags.Unknown("failure mode", s.Mode, known))
	}
	return s, schedule.StepLines(string(text)), nil
}

// replayConfig reads the schedule file and selects the strategy to replay it with.
func (s *runSettings) replayConfig() (cfg replay.Config, err error) {
	if cfg.Schedule, cfg.Lines, err = readSchedule(s.schedule); err != nil {
		return cfg, err
	}
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
