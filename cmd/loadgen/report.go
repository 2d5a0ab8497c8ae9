package main

import (
	"context"
	"fmt"
	"io"

	"grablab/internal/flags"
	"grablab/internal/measure/experiment"
	"grablab/internal/present/report"
)

// runFormats lists the output formats of a run. The first one is the default.
var runFormats = []format[*experiment.Run]{
	{"text", report.Text},
	{"markdown", report.Markdown},
	{"html", report.HTML},
	{"json", report.JSON},
}

// showSettings holds the arguments of the report and compare commands.
type showSettings struct {
	paths  []string
	format string
}

// showFlags returns the flag of the report and compare commands.
func showFlags[T any](formats []format[T]) func() []flags.Flag {
	return func() []flags.Flag { return []flags.Flag{formatFlag(new(string), formats)} }
}

// parseShow parses the -format flag and the paths of results.
func parseShow[T any](formats []format[T], args []string) (s showSettings, err error) {
	line, err := flags.Parse([]flags.Flag{formatFlag(&s.format, formats)}, args)
	if err == nil {
		s.paths = line.Args
	}
	return s, err
}

func parseReport(args []string) (showSettings, error) {
	s, err := parseShow(runFormats, args)
	if err == nil && len(s.paths) == 0 {
		err = flags.Usage("report: no result folder was given: name one, as in loadgen report results/latest")
	}
	return s, err
}

// report prints each run, separated by empty lines.
func (s showSettings) report(_ context.Context, stdout, _ io.Writer) error {
	for i, dir := range s.paths {
		run, err := report.Load(dir)
		if err != nil {
			return flags.Usage("%w", withoutPrefix(err, report.ErrNoRun))
		}
		if i > 0 && s.format != "json" {
			fmt.Fprintln(stdout)
		}
		if err := renderAs(stdout, runFormats, s.format, run); err != nil {
			return err
		}
	}
	return nil
}
