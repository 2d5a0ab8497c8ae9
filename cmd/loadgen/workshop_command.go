package main

import (
	"context"
	"errors"
	"io"
	"slices"

	"grablab/internal/explore"
	"grablab/internal/flags"
	"grablab/internal/present/report"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/stack"
)

// doCommand runs a command of this program for an exercise, in this process.
func doCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	switch args[0] {
	case "explore":
		return doExplore(ctx, args[1:], stdout, stderr)
	case "run": // with -schedule
		return forceSchedule(ctx, args[1:], stdout, stderr)
	}
	// Without the name of a command, the arguments are flags of run.
	err = subcommand(parseRun, runHelp, (*settings).execute)(ctx, args, stdout, stderr)
	switch {
	case errors.Is(err, exitInterrupted):
		return o, context.Canceled
	case err != nil:
		return o, err
	}
	o.Run, err = report.Load(args[slices.Index(args, "-out")+1])
	return o, err
}

// forceSchedule forces a schedule on real servers, as run -schedule does.
func forceSchedule(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	s, err := parseRun(args)
	if err != nil {
		return o, err
	}
	cfg, forced, err := s.force(ctx, stdout, stderr)
	if err != nil {
		return o, err
	}
	concludeSchedule(stdout, cfg, forced)
	return workshop.Outcome{Forced: &forced}, nil
}

func doExplore(ctx context.Context, args []string, stdout, stderr io.Writer) (o workshop.Outcome, err error) {
	s, err := parseExplore(args)
	if err != nil {
		return o, err
	}
	o.Explored, err = s.explore(ctx, stderr)
	if err != nil {
		if s.file != "" && ctx.Err() == nil {
			why := withoutPrefix(withoutPrefix(err, flags.ErrUsage), explore.ErrConfig)
			return o, workshop.RefusedError{Why: why.Error()}
		}
		return o, err
	}
	if chosen, err := parseStrategies(s.Strategies[0], s.Added...); err == nil {
		o.Excludes = chosen[0].Excludes
	}
	if err := s.conclude(o.Explored, nil, stdout, stderr); err != nil && !errors.Is(err, exitAssert) {
		return o, err
	}
	return o, nil
}

// workshopOf returns a function that opens a workshop session for the web page.
func (s *labSettings) workshopOf() func(lang string) (*workshop.Session, error) {
	seed := newWorkshopSettings().seed // all sessions use the same seed until the progress is saved
	return func(lang string) (*workshop.Session, error) {
		w := newWorkshopSettings()
		w.lang, w.seed = lang, seed
		if s.kind == stack.Local {
			w.kind = stack.Local
		}
		session, err := w.session(io.Discard, io.Discard)
		if err != nil {
			return nil, err
		}
		do := session.Do
		session.Do = func(ctx context.Context, args []string, out io.Writer) (workshop.Outcome, error) {
			o, err := do(ctx, args, out)
			if errors.Is(err, flags.ErrUsage) { // the page shows the message as it is
				err = withoutPrefix(err, flags.ErrUsage)
			}
			return o, err
		}
		return session, nil
	}
}
