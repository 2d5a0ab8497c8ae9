package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/compare"
	"grablab/internal/present/report"
	"grablab/internal/testbed/target"
)

// runFormats lists the output formats of a run, with the default first.
var runFormats = []format[*experiment.Run]{
	{"text", report.Text},
	{"markdown", report.Markdown},
	{"html", report.HTML},
	{"json", report.JSON},
}

// showSettings holds the arguments of the commands that print saved results or explain names.
type showSettings struct {
	names  []string // names to explain, or paths of results
	format string
}

// flags returns the -format flag. It returns nothing for a command that has only one format.
func (s *showSettings) flags(formats []string) []flags.Flag {
	if formats == nil {
		return nil
	}
	return []flags.Flag{formatFlag(&s.format, formats)}
}

// parseShow returns a parser for the -format flag and a list of names. If there are fewer names
// than least, the parser returns an error with the text in missing.
func parseShow(formats []string, least int, missing string) func([]string) (showSettings, error) {
	return func(args []string) (s showSettings, err error) {
		line, err := flags.Parse(s.flags(formats), args)
		switch {
		case err != nil:
			return s, err
		case len(line.Args) < least:
			return s, flags.Usage("%s", missing)
		}
		s.names = line.Args
		return s, nil
	}
}

var parseReport = parseShow(formatNames(runFormats), 1, "report: no result folder was given: name one, as in loadgen report results/latest")

// report prints the saved result of each run, separated by empty lines.
func (s showSettings) report(_ context.Context, stdout, _ io.Writer) error {
	runs, err := s.runs()
	if err != nil {
		return err
	}
	return renderAll(stdout, runFormats, s.format, runs)
}

// runs loads the run in each result folder.
func (s showSettings) runs() (runs []*experiment.Run, err error) {
	for _, dir := range s.names {
		run, err := report.Load(dir)
		if err != nil {
			return nil, flags.Usage("%w", err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// compareFormats lists the output formats of the compare command, with the default first.
var compareFormats = []format[*compare.Comparison]{
	{"text", report.ComparedText},
	{"markdown", report.ComparedMarkdown},
	{"json", report.ComparedJSON},
}

var parseCompare = parseShow(formatNames(compareFormats), 2, "compare: two runs are needed: name the old one first, as in loadgen compare results/reference-rush-local results/latest")

// compare prints how each run differs from the first one, and returns exitAssert if any of them is
// worse.
func (s showSettings) compare(_ context.Context, stdout, _ io.Writer) error {
	runs, err := s.runs()
	if err != nil {
		return err
	}
	var all []*compare.Comparison
	for i, run := range runs[1:] {
		all = append(all, compare.Runs(s.names[0], runs[0], s.names[i+1], run))
	}
	if err := renderAll(stdout, compareFormats, s.format, all); err != nil {
		return err
	}
	if slices.ContainsFunc(all, (*compare.Comparison).Worse) {
		return exitAssert
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readBaseline reads the result that the -baseline flag names, if it is set.
func (s *runSettings) readBaseline() (err error) {
	if s.baselinePath == "" {
		return nil
	}
	if s.baseline, err = loadBaseline(s.baselinePath); err != nil {
		return fmt.Errorf("-baseline: %w", err)
	}
	return nil
}

// loadBaseline reads an earlier result: a result folder, a run.json or a file of verdicts.
func loadBaseline(path string) (report.Baseline, error) {
	run, runErr := report.Load(path)
	if runErr == nil {
		return report.BaselineOf(run), nil
	}
	verdicts, err := target.ReadExpectations(path)
	switch {
	case err == nil:
		return report.NewBaseline(verdicts), nil
	case isFolder(path) || filepath.Ext(path) == ".json":
		return nil, runErr
	default:
		return nil, err
	}
}

// checkBaseline prints every test that is worse than in the baseline or, if the baseline does not have
// it, not as expected. It returns exitAssert if there is any. Without a baseline, it returns nil.
func checkBaseline(before report.Baseline, cases []report.Case, stderr io.Writer) (err error) {
	if before == nil {
		return nil
	}
	for _, c := range cases {
		if c.Cell != nil && (c.Result == report.Failed || c.Result == report.Unknown) {
			fmt.Fprintf(stderr, "this test is worse than the baseline allows: %s: %s\n", c.Name, c.Why)
			err = exitAssert
		}
	}
	if names := before.NotRun(cases); len(names) > 0 {
		fmt.Fprintf(stderr, "in the baseline, but not run: %s\n", strings.Join(names, ", "))
	}
	return err
}

var parseBaseline = parseShow(nil, 1, "baseline: no result folder was given: name one, as in loadgen baseline results/latest")

// baseline prints the verdicts of all results in the format that run -baseline reads.
func (s showSettings) baseline(_ context.Context, stdout, _ io.Writer) error {
	runs, err := s.runs()
	if err != nil {
		return err
	}
	return report.WriteBaseline(stdout, runs)
}
