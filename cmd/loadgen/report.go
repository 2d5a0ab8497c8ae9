package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
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
	dirs, _, err := readArgs("report", []option{{name: "format", value: one(&format, oneOf(names...))}}, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, "Usage: loadgen report [-format NAME] DIR…\n\nRenders result folders again.\n\n  -format NAME  %s (default %s)\n",
			strings.Join(names, ", "), names[0])
		return exitDone
	case err != nil:
		return complain(stderr, err)
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
