package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/compare"
	"grablab/internal/present/report"
	"grablab/internal/testbed/infile"
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
			return nil, flags.Usage("%w", withoutPrefix(err, report.ErrNoRun))
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

var parseCompare = parseShow(formatNames(compareFormats), 2, "compare: two results are needed: name the old one first, as in loadgen compare results/reference-rush-local results/latest")

// compare prints how each result differs from the first one, and returns exitAssert if any of them
// is worse.
func (s showSettings) compare(_ context.Context, stdout, _ io.Writer) error {
	var all []*compare.Comparison
	for _, path := range s.names[1:] {
		c, err := comparison(s.names[0], path)
		if err != nil {
			return flags.Usage("%w", err)
		}
		all = append(all, c)
	}
	if err := renderAll(stdout, compareFormats, s.format, all); err != nil {
		return err
	}
	if slices.ContainsFunc(all, (*compare.Comparison).Worse) {
		return exitAssert
	}
	return nil
}

// comparison compares two runs or two benchmarks. It returns an error for a mixed pair, because a
// run and a benchmark measure different things.
func comparison(old, now string) (*compare.Comparison, error) {
	oldRun, oldBench, err := loadResult(old)
	if err != nil {
		return nil, err
	}
	newRun, newBench, err := loadResult(now)
	switch {
	case err != nil:
		return nil, err
	case oldRun != nil && newRun != nil:
		return compare.Runs(old, oldRun, now, newRun), nil
	case oldBench != nil && newBench != nil:
		return compare.Benches(old, oldBench, now, newBench), nil
	case oldRun != nil:
		return nil, fmt.Errorf("%s is a run and %s is a benchmark: compare two results of the same kind", old, now)
	default:
		return nil, fmt.Errorf("%s is a benchmark and %s is a run: compare two results of the same kind", old, now)
	}
}

// loadResult reads a result folder or file. It returns either a run or a benchmark, and nil for the
// other one.
func loadResult(path string) (*experiment.Run, *lockbench.Result, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	isBench := false
	if info.IsDir() {
		_, runErr := os.Stat(filepath.Join(path, report.File))
		_, benchErr := os.Stat(filepath.Join(path, lockbench.File))
		if runErr != nil && benchErr != nil {
			return nil, nil, fmt.Errorf("%s has neither %s nor %s: name a result folder", path, report.File, lockbench.File)
		}
		isBench = runErr != nil
	} else if isBench, err = isBenchFile(path); err != nil {
		return nil, nil, err
	}
	if isBench {
		r, err := lockbench.Load(path)
		return nil, r, withoutPrefix(err, lockbench.ErrNoBench)
	}
	r, err := report.Load(path)
	return r, nil, withoutPrefix(err, report.ErrNoRun)
}

// isBenchFile returns true if the file contains a benchmark, and false if it contains a run. It
// returns an error if the file contains neither.
func isBenchFile(path string) (bool, error) {
	b, err := infile.Read(path, infile.Record)
	if err != nil {
		return false, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil {
		return false, fmt.Errorf("%s cannot be read as %s or %s: %w", path, report.File, lockbench.File, err)
	}
	if keys["cells"] == nil && keys["rows"] == nil {
		return false, fmt.Errorf("%s contains no results: name a %s or a %s", path, report.File, lockbench.File)
	}
	return keys["rows"] != nil, nil
}

// readBaseline reads the result that the -baseline flag names, if it is set.
func (s *settings) readBaseline() (err error) {
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
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if _, err := isBenchFile(path); err == nil || info.IsDir() { // a result; any other file contains verdicts
		run, err := report.Load(path)
		if err != nil {
			return nil, withoutPrefix(err, report.ErrNoRun)
		}
		return report.BaselineOf(run), nil
	}
	verdicts, err := target.ReadExpectations(path)
	if err != nil {
		return nil, err
	}
	return report.NewBaseline(verdicts), nil
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
