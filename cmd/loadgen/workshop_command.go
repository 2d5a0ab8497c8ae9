package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"grablab/internal/explore"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/present/report"
	"grablab/internal/present/workshop"
)

// doCommand runs a command of this program for an exercise. It runs in this process.
func doCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	switch args[0] {
	case "explore":
		return doExplore(ctx, args[1:], stdout, stderr)
	case "run": // with -schedule
		return forceSchedule(ctx, args[1:], stdout, stderr)
	}
	// Without the name of a command, the arguments are flags of run.
	switch err := subcommand(parseRun, runHelp, (*settings).execute)(ctx, args, stdout, stderr); {
	case errors.Is(err, exitInterrupted):
		return o, context.Canceled
	case err != nil:
		return o, err
	}
	out := slices.Index(args, "-out")
	if out < 0 {
		return o, fmt.Errorf("workshop: %q has no -out", args)
	}
	o.Run, err = report.Load(args[out+1])
	return o, err
}

// forceSchedule forces a schedule on real servers, as run -schedule does.
func forceSchedule(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	s, err := parseRun(args)
	if err != nil {
		return o, err
	}
	cfg, forced, err := s.force(ctx, stdout, stderr)
	if err == nil {
		o.Forced = &forced
		concludeSchedule(stdout, cfg, forced)
	}
	return o, err
}

func doExplore(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	s, err := parseExplore(args)
	if err != nil {
		return o, err
	}
	defer func(strategies []lock.Strategy) { lock.Strategies = strategies }(lock.Strategies) // restore the strategies, because -file adds some
	o.Explored, err = s.explore(ctx, stderr)
	if err != nil {
		if s.file != "" && ctx.Err() == nil {
			why := withoutPrefix(withoutPrefix(err, flags.ErrUsage), explore.ErrConfig)
			return o, workshop.RefusedError{Why: why.Error()}
		}
		return o, err
	}
	if st, err := lock.Find(s.Strategies[0]); err == nil {
		o.Excludes = st.Excludes
	}
	if err := s.conclude(o.Explored, nil, stdout, stderr); err != nil && !errors.Is(err, exitAssert) {
		return o, err
	}
	return o, nil
}
