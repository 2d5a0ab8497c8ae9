package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"grablab/internal/experiment"
	"grablab/internal/report"
)

// runFormats is what a run can be rendered as, the default first.
var runFormats = []format[*experiment.Run]{
	{"text", report.Text},
	{"markdown", report.Markdown},
	{"html", report.HTML},
	{"json", report.JSON},
}

// reportCommand is loadgen report DIR….
func reportCommand(_ context.Context, args []string, stdout, stderr io.Writer) int {
	names := formatNames(runFormats)
	format := names[0]
	fs := flag.NewFlagSet("loadgen report", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Var(one(&format, oneOf(names...)), "format", "")
	dirs, err := interspersed(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, "Usage: loadgen report [-format NAME] DIR…\n\nRenders result folders again.\n\n  -format NAME  %s (default %s)\n",
			strings.Join(names, ", "), names[0])
		return exitDone
	case err != nil:
		return complain(stderr, fmt.Errorf("%w: %s", errUsage, flagError(err, fs)))
	case len(dirs) == 0:
		return complain(stderr, fmt.Errorf("%w: report needs a result folder, as in loadgen report results/latest", errUsage))
	}
	for i, dir := range dirs {
		run, err := report.Load(dir)
		if err != nil {
			return complain(stderr, fmt.Errorf("%w: %w", errUsage, withoutPrefix(err, report.ErrNoRun)))
		}
		if i > 0 && format != "json" {
			fmt.Fprintln(stdout)
		}
		if err := renderAs(stdout, runFormats, format, run); err != nil {
			return complain(stderr, err)
		}
	}
	return exitDone
}

// interspersed parses flags also between and after the other arguments, which
// it returns.
func interspersed(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		rest = append(rest, fs.Arg(0))
		args = fs.Args()[1:]
	}
}
