package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/present/compare"
	"grablab/internal/present/report"
)

// compareFormats is what a comparison can be rendered as, the default first.
var compareFormats = []format[*compare.Comparison]{
	{"text", report.ComparedText},
	{"markdown", report.ComparedMarkdown},
	{"json", report.ComparedJSON},
}

// compareCommand is loadgen compare OLD NEW….
func compareCommand(_ context.Context, args []string, stdout, stderr io.Writer) int {
	names := formatNames(compareFormats)
	format := names[0]
	paths, _, err := readArgs("compare", []option{{name: "format", value: one(&format, oneOf(names...))}}, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		compareHelp(stdout, names)
		return exitDone
	case err != nil:
		return complain(stderr, err)
	case len(paths) < 2:
		return complain(stderr, fmt.Errorf("%w: compare needs two results, the old one first, as in loadgen compare results/reference-rush-local results/latest", errUsage))
	}
	var all []*compare.Comparison
	for _, path := range paths[1:] {
		c, err := comparison(paths[0], path)
		if err != nil {
			return complain(stderr, fmt.Errorf("%w: %w", errUsage, err))
		}
		all = append(all, c)
	}
	code := exitDone
	for i, c := range all {
		if i > 0 && format != "json" {
			fmt.Fprintln(stdout)
		}
		if err := renderAs(stdout, compareFormats, format, c); err != nil {
			return complain(stderr, err)
		}
		if c.Worse() {
			code = exitAssert
		}
	}
	return code
}

func compareHelp(w io.Writer, formats []string) {
	fmt.Fprintf(w, `Usage: loadgen compare [-format NAME] OLD NEW…

Says what differs between two results of the same kind: result folders of run or of
bench, or their run.json and bench.json. Of runs, which verdicts changed, on the orders
and on the lock, and what became of latency and rate; of benchmarks, what became of
each lock's cost in each case. "Is it slower" is answered by benchstat's statistics:
it takes run -repeat, or the rounds of bench. Several NEW are each compared with OLD.

  -format NAME  %s (default %s)

Exit codes
  0    no verdict changed, and nothing is slower
  1    loadgen itself failed
  2    bad usage, or a result that cannot be read
  3    a verdict changed, or something is slower
`, strings.Join(formats, ", "), formats[0])
}

// comparison of two results, which must be of the same kind.
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
		return nil, fmt.Errorf("%s is of run and %s of bench: want two of the same", old, now)
	default:
		return nil, fmt.Errorf("%s is of bench and %s of run: want two of the same", old, now)
	}
}

// loadResult reads a folder, or a file of one, as what it is.
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
			return nil, nil, fmt.Errorf("%s has neither %s nor %s; a result folder has one", path, report.File, lockbench.File)
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

// holdsBench says whether a file is a benchmark's, and not a run's.
func holdsBench(path string) (bool, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil {
		return false, fmt.Errorf("%s is neither a %s nor a %s: %w", path, report.File, lockbench.File, err)
	}
	if keys["cells"] == nil && keys["rows"] == nil {
		return false, fmt.Errorf("%s is neither a %s, for it has no cells, nor a %s, for it has no rows", path, report.File, lockbench.File)
	}
	return keys["rows"] != nil, nil
}

// withoutPrefix is err without the text of a sentinel, which says nothing to a user.
func withoutPrefix(err, sentinel error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), sentinel.Error()+": "))
}
