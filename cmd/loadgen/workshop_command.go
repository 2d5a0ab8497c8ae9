package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"grablab/internal/explore"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/present/report"
	"grablab/internal/present/workshop"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
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

// stepCommand is the name of a hidden command that the lab runs for each step of an exercise.
const stepCommand = "workshop-step"

// stepResult contains the result of a command. The child process writes it to a file for its parent.
type stepResult struct {
	Outcome workshop.Outcome
	Problem string // why the command failed; empty if it succeeded
	Refused bool   // whether the command failed because the user's lock was rejected
}

// workshopOf returns a function that opens a workshop session for the web page. The session runs
// commands in child processes, so that a faulty lock cannot crash the lab.
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
		session.Do = doInChild
		return session, nil
	}
}

// cleanUpTime limits how long a command may take to clean up after it was told to stop.
const cleanUpTime = 30 * time.Second

// doInChild runs a command of this program in a child process. The child stops when its standard
// input closes, which happens when ctx ends or this process dies.
func doInChild(ctx context.Context, args []string, stdout io.Writer) (o workshop.Outcome, err error) {
	exe, err := os.Executable()
	if err != nil {
		return o, err
	}
	file, err := os.CreateTemp("", "loadgen-step-")
	if err != nil {
		return o, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	cmd := exec.CommandContext(ctx, exe, append([]string{stepCommand, file.Name()}, args...)...)
	cmd.Stdout = stdout
	proc.NewProcessGroup(cmd) // Ctrl-C must reach only the lab, which then stops the child itself
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return o, err
	}
	cmd.Cancel, cmd.WaitDelay = stdin.Close, cleanUpTime
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return o, ctx.Err()
	case err != nil:
		return o, fmt.Errorf("the process of this step failed: %w", err)
	}
	var result stepResult
	if err := json.NewDecoder(file).Decode(&result); err != nil {
		return o, err
	}
	switch {
	case result.Refused:
		return o, workshop.RefusedError{Why: result.Problem}
	case result.Problem != "":
		return o, errors.New(result.Problem)
	}
	return result.Outcome, nil
}

// stepMain runs the command in args[1:] and writes its result to the file args[0].
func stepMain(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) < 2 {
		return flags.Usage("%s is for a lab", stepCommand)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	go func() { // standard input ends when the lab closes it or dies
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var result stepResult
	var err error
	if result.Outcome, err = doCommand(ctx, args[1:], stdout, stderr); err != nil {
		result.Problem = withoutPrefix(err, flags.ErrUsage).Error()
		_, result.Refused = errors.AsType[workshop.RefusedError](err)
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], text, 0o600)
}
