package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/shard"
	"grablab/internal/testbed/target"

	"github.com/peterbourgon/ff/v3"
)

// parseRun parses the flags of the run command. It returns a flags.HelpError for -h, and an error
// that wraps flags.ErrUsage for invalid flags.
func parseRun(args []string) (*settings, error) {
	if share := shard.FromEnv(os.Getenv); share != "" {
		args = append([]string{"-shard=" + share}, args...)
	}
	s, err := parseWithScenario(args)
	if err != nil {
		return nil, err
	}
	if s.given("shard") {
		s.Shard = &s.shard
	}
	if s.resume != "" {
		if s, err = s.resumedSettings(); err != nil {
			return nil, flags.Usage("%w", err)
		}
	}
	if !s.given("seed") {
		s.Seed = uint64(rand.Uint32())
		s.Args = append(s.Args, fmt.Sprintf("-seed=%d", s.Seed))
	}
	if err := s.validate(); err != nil {
		return nil, flags.Usage("%w", err)
	}
	return s, nil
}

// parseWithScenario parses the flags twice: first to find the scenario, and then again to override
// the defaults of that scenario.
func parseWithScenario(args []string) (*settings, error) {
	s := defaults(experiment.Scenarios[0].Name)
	if err := s.parse(args); err != nil {
		return nil, err
	}
	s = defaults(s.Scenario)
	return s, s.parse(args)
}

// parse reads the target file, if there is one, and then the command line, which overrides the
// file.
func (s *settings) parse(args []string) (err error) {
	s.line, err = flags.ParseFlags(s.flags(), args, ff.WithConfigFileVia(&s.targetFile), ff.WithConfigFileParser(s.readTargetFile))
	if err != nil {
		return err
	}
	s.line.Places = s.places
	for _, arg := range s.line.Flags {
		name := flagOf(arg)
		delete(s.places, name)
		if slices.Contains(unrecordedFlags, name) {
			s.unrecordedArgs = append(s.unrecordedArgs, arg)
		} else {
			s.Args = append(s.Args, arg)
		}
	}
	// Send most requests for an order at once. If all drivers arrived one by one, a slow service or a
	// low -rate would hide races.
	s.Together = s.TestsService() && s.Rate > 0
	return nil
}

// unrecordedFlags names the flags that run.json omits, because they are secret or do not affect the
// results. The user may change them when a run is resumed.
var unrecordedFlags = append([]string{"out", "resume", "format", "assert", "baseline", "budget-total", "junit", "quiet", "schedule"}, flags.Secrets...)

// readTargetFile calls set for each setting in the target file. The function set ignores settings
// that are also on the command line, because the command line takes precedence.
func (s *settings) readTargetFile(_ io.Reader, set func(name, value string) error) error {
	lines, err := target.ReadFile(s.targetFile)
	if err != nil {
		return fmt.Errorf("-target-file: %w", err)
	}
	for _, l := range lines {
		place := fmt.Sprintf("-target-file: %s:%d:%d", s.targetFile, l.Line, l.Column)
		if err := set(l.Key, l.Value); err != nil {
			return fmt.Errorf("%s: %s: %w", place, l.Key, cmp.Or(errors.Unwrap(err), err))
		}
		if s.places[l.Key] == "" {
			s.places[l.Key] = place
		}
	}
	return nil
}
