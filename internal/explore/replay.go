package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/schedule"
)

// replays is how often a failure is executed again before it is believed.
const replays = 20

var errDiffers = errors.New("not deterministic")

// confirm executes each failure again, to be sure of it and to see it step by step.
func confirm(r Result, set sim.Setting, findings map[string]search.Finding, w worker) (Result, error) {
	for _, property := range append([]string{catalog.Survives}, Properties...) {
		f, ok := findings[property]
		if !ok {
			continue
		}
		failure, err := reproduce(set, f, w)
		switch {
		case errors.Is(err, errDiffers):
			r.Verdict, r.Complete, r.Reason = catalog.Unknown, false, err.Error()
		case err != nil:
			return r, err
		default:
			r.Failures = append(r.Failures, failure)
		}
	}
	return r, nil
}

// reproduce replays a failure, but for one that took its process down.
func reproduce(set sim.Setting, f search.Finding, w worker) (Failure, error) {
	sched := set.Schedule()
	sched.Property, sched.Steps = f.Property, f.Steps
	sched.Mode = modeOf(f.Property, set, f.Steps)
	failure := Failure{Property: f.Property, Mode: sched.Mode, Why: f.Why, Schedule: sched, Stack: f.Stack}
	if f.Property == catalog.Survives {
		return failure, nil
	}
	for i := range replays {
		replayed, err := w.replay(f.Steps)
		if err != nil {
			return failure, err
		}
		if !slices.ContainsFunc(replayed.Broken, func(v search.Violation) bool { return v.Property == f.Property && v.Step == f.Step }) {
			return failure, fmt.Errorf("%w: replay %d of what broke %s did not break it", errDiffers, i+1, f.Property)
		}
		failure.Moments = replayed.Moments
	}
	mark(failure.Moments, f.Step)
	return failure, nil
}

// mark says from which moment on the property is broken.
func mark(moments []Moment, step int) {
	for i := range moments {
		moments[i].Broken = moments[i].Made >= step
	}
}

func replayConfig(sched schedule.Schedule, strategy string) (Config, error) {
	cfg := Config{
		Actors: len(sched.Actors), TTL: sched.TTL, Work: sched.Work, Wait: sched.Wait, OnLost: grab.OnLost(sched.OnLost),
	}
	if sched.Guard != "" && strategy == sched.Strategy {
		guard, err := order.ParseGuard(sched.Guard)
		if err != nil {
			return cfg, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		cfg.Guard = guard
	}
	for _, a := range sched.Actors {
		if a.Instance > sim.Instances {
			return cfg, fmt.Errorf("%w: %s is on instance %d of %d", ErrConfig, a.Name, a.Instance, sim.Instances)
		}
	}
	return cfg.withDefaults()
}

// Replay executes one schedule, with its own strategy or, if that is not "", with
// another. Its own should break again what the schedule says; one schedule that
// breaks nothing makes no strategy safe.
func Replay(ctx context.Context, bubble Bubble, sched schedule.Schedule, strategy string) (Result, error) {
	if strategy == "" {
		strategy = sched.Strategy
	}
	if p, _, ok := catalog.FindProperty(sched.Property); ok {
		sched.Property = p.Name
	}
	cfg, err := replayConfig(sched, strategy)
	if err != nil {
		return Result{}, err
	}
	set, err := newSetting(cfg, strategy)
	if err != nil {
		return Result{}, err
	}
	set.Actors = sched.Actors
	cluster, err := sim.New(bubble, set)
	if err != nil {
		return Result{}, err
	}
	defer cluster.Close()
	began := time.Now()
	moments, broken, err := cluster.Replay(sched.Steps)
	if err != nil {
		return Result{}, err
	}
	r := Result{
		Strategy: strategy, Guard: set.Guard, Reason: "one schedule was executed, and no other",
		Schedules: 1, Actors: sched.Actors, Moments: moments,
	}
	if i := slices.IndexFunc(broken, func(v search.Violation) bool { return v.Property == sched.Property }); i > 0 {
		broken[0], broken[i] = broken[i], broken[0] // what is looked for comes first
	}
	for _, v := range broken {
		f := Failure{Property: v.Property, Mode: modeOf(v.Property, set, sched.Steps), Why: v.Why, Schedule: sched}
		f.Schedule.Strategy, f.Schedule.Guard, f.Schedule.Property, f.Schedule.Mode = strategy, string(set.Guard), f.Property, f.Mode
		f.Moments = append(f.Moments, moments...)
		mark(f.Moments, v.Step)
		r.Failures = append(r.Failures, f)
	}
	r.Verdict = verdictOf(func(p string) bool {
		return slices.ContainsFunc(broken, func(v search.Violation) bool { return v.Property == p })
	})
	if r.Verdict == catalog.Safe {
		r.Verdict = catalog.Unknown
	}
	if strategy == sched.Strategy && sched.Property != "" {
		r.Expected = verdictOf(func(p string) bool { return p == sched.Property })
	}
	r.Elapsed = time.Since(began)
	return r, ctx.Err()
}
