package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/compare"
	"grablab/internal/present/report"
	"grablab/internal/testbed/infile"
)

// compareFormats lists the output formats of compare. The first one is the default.
var compareFormats = []format[*compare.Comparison]{
	{"text", report.ComparedText},
	{"markdown", report.ComparedMarkdown},
	{"json", report.ComparedJSON},
}

func parseCompare(args []string) (showSettings, error) {
	s, err := parseShow(compareFormats, args)
	if err == nil && len(s.paths) < 2 {
		err = flags.Usage("compare: two results are needed: name the old one first, as in loadgen compare results/reference-rush-local results/latest")
	}
	return s, err
}

// compare prints the differences between each result and the first one. It returns exitAssert if a
// result is worse than the first.
func (s showSettings) compare(_ context.Context, stdout, _ io.Writer) error {
	var all []*compare.Comparison
	for _, path := range s.paths[1:] {
		c, err := comparison(s.paths[0], path)
		if err != nil {
			return flags.Usage("%w", err)
		}
		all = append(all, c)
	}
	var changed error
	for i, c := range all {
		if i > 0 && s.format != "json" {
			fmt.Fprintln(stdout)
		}
		if err := renderAs(stdout, compareFormats, s.format, c); err != nil {
			return err
		}
		if c.Worse() {
			changed = exitAssert
		}
	}
	return changed
}

// comparison compares two runs or two benchmarks. It returns an error if one result is a run and
// the other a benchmark.
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
// other.
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
	} else if isBench, err = holdsBench(path); err != nil {
		return nil, nil, err
	}
	if isBench {
		r, err := lockbench.Load(path)
		return nil, r, withoutPrefix(err, lockbench.ErrNoBench)
	}
	r, err := report.Load(path)
	return r, nil, withoutPrefix(err, report.ErrNoRun)
}

// holdsBench returns true if the file contains a benchmark, and false if it contains a run. It
// returns an error if the file contains neither.
func holdsBench(path string) (bool, error) {
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
