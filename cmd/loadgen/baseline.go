package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
	"grablab/internal/testbed/target"
)

// readBaseline reads the earlier result that the -baseline flag names: a result folder, a run.json
// or a file of verdicts.
func (s *settings) readBaseline() error {
	if s.baselinePath == "" {
		return nil
	}
	info, err := os.Stat(s.baselinePath)
	if err == nil && (info.IsDir() || filepath.Base(s.baselinePath) == report.File) {
		var run *experiment.Run
		if run, err = report.Load(s.baselinePath); err == nil {
			s.baseline = report.BaselineOf(run)
		}
	} else if err == nil {
		var verdicts []target.Expectation
		if verdicts, err = target.ReadExpectations(s.baselinePath); err == nil {
			s.baseline = report.NewBaseline(verdicts)
		}
	}
	if err != nil {
		return fmt.Errorf("-baseline: %w", withoutPrefix(err, report.ErrNoRun))
	}
	return nil
}

// checkBaseline prints every verdict that is worse than in the baseline. It returns exitAssert if
// there is one.
func (s *settings) checkBaseline(cases []report.Case, stderr io.Writer) (err error) {
	if s.baseline == nil {
		return nil
	}
	for _, c := range cases {
		if c.Cell != nil && (c.Result == report.Failed || c.Result == report.Unknown) {
			fmt.Fprintf(stderr, "this test has a worse verdict than in the baseline: %s: %s\n", c.Name, c.Why)
			err = exitAssert
		}
	}
	if names := s.baseline.NotRun(cases); len(names) > 0 {
		fmt.Fprintf(stderr, "this test is in the baseline, but was not run: %s\n", strings.Join(names, ", "))
	}
	return err
}

func parseBaseline(args []string) ([]string, error) {
	line, err := flags.Parse(nil, args)
	switch {
	case err != nil:
		return nil, err
	case len(line.Args) == 0:
		return nil, flags.Usage("baseline: no result folder was given: name one, as in loadgen baseline results/latest")
	default:
		return line.Args, nil
	}
}

func writeBaseline(paths []string, _ context.Context, stdout, _ io.Writer) error {
	var runs []*experiment.Run
	for _, path := range paths {
		run, err := report.Load(path)
		if err != nil {
			return flags.Usage("%w", withoutPrefix(err, report.ErrNoRun))
		}
		runs = append(runs, run)
	}
	return report.WriteBaseline(stdout, runs)
}
