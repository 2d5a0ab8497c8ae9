package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/explore/sim"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// replays is how many times a search must reproduce a failure before it reports the failure.
const replays = 20

var errDiffers = errors.New("not deterministic")

// confirmer replays each failure several times, to make sure that the failure is reproducible.
type confirmer struct {
	set    sim.Setting
	worker worker
	known  map[findingID]Failure
}

type findingID struct{ property, kind string }

// failures replays the failures that the search has found, and returns them. If settled is true, it
// skips failures for which the search may still find a shorter schedule. If a failure is not
// reproducible, it returns an error.
func (c *confirmer) failures(s search.Summary, settled bool) (failures []Failure, err error) {
	for _, f := range s.Findings {
		if settled && !f.Shortest {
			continue
		}
		id := findingID{f.Property, f.Kind}
		got, ok := c.known[id]
		if !ok {
			var differs error
			if got, differs = reproduce(c.set, f, c.worker); differs != nil {
				err = cmp.Or(err, differs)
				continue
			}
			c.known[id] = got
		}
		failures = append(failures, got)
	}
	return failures, err
}

// kindOf names the faults in a schedule, such as "a lease ends, crash". The search groups failures
// by this name.
func kindOf(steps []schedule.Step) string {
	var kinds []string
	for _, s := range steps {
		if s.Kind == schedule.LeaseEnd {
			kinds = append(kinds, "a lease ends")
		} else if f := s.Kind.Fault(); f != "" {
			kinds = append(kinds, string(f))
		}
	}
	slices.Sort(kinds)
	return strings.Join(slices.Compact(kinds), ", ")
}

// reproduce confirms a failure by running its schedule several times. It does not repeat a schedule
// that crashed or hung its process.
func reproduce(set sim.Setting, f search.Finding, w worker) (Failure, error) {
	sched := set.Schedule()
	sched.Property, sched.Steps = f.Property, f.Steps
	failure := Failure{Property: f.Property, Why: f.Why, Schedule: sched, Stack: f.Stack, Kind: f.Kind, Shortest: f.Shortest}
	if f.Property == catalog.Survives {
		failure.Moments = momentsOf(f.Steps)
		mark(failure.Moments, f.Step)
		return failure, nil
	}
	for i := range replays {
		record, err := w.replay(f.Steps)
		if err != nil {
			return failure, err
		}
		at := slices.IndexFunc(record.Broken, func(v search.Violation) bool { return v.Property == f.Property && v.Step == f.Step })
		if at < 0 {
			return failure, fmt.Errorf("%w: a schedule broke %s, but its replay %d did not: remove everything from the lock that differs between runs, such as random numbers or the order of a map", errDiffers, f.Property, i+1)
		}
		failure.Moments = record.Moments
		failure.Mode = modeOf(set, record.Broken[at])
		failure.Schedule.Mode = failure.Mode
	}
	mark(failure.Moments, f.Step)
	return failure, nil
}

// modeOf returns the failure mode that explains a violation, such as "F11", or "" if no known mode
// fits.
func modeOf(set sim.Setting, v search.Violation) string {
	mode, _ := catalog.ModeOf(v.Property, v.Facts, set.Strategy.Breaks)
	return mode.ID
}

// mark sets Broken to true for each moment from the given step on, and to false for earlier
// moments.
func mark(moments []Moment, step int) {
	for i := range moments {
		moments[i].Broken = moments[i].Made >= step
	}
}

// replayConfig returns the settings that a schedule needs. It keeps the schedule's guard only for
// the strategy that the schedule names.
func replayConfig(sched schedule.Schedule, strategy string) (Config, error) {
	cfg := Config{
		Actors: len(sched.Actors), TTL: sched.TTL, Work: sched.Work, Wait: sched.Wait, OnLost: grab.OnLost(sched.OnLost), Stock: sched.Stock,
	}
	if sched.Guard != "" && strategy == sched.Strategy {
		guard, err := order.ParseGuard(sched.Guard)
		if err != nil {
			return cfg, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		cfg.Guard = guard
	}
	for _, n := range sched.Nodes {
		if strings.HasPrefix(n, "redlock-") {
			cfg.Nodes++
		}
	}
	for _, a := range sched.Actors {
		if a.Instance > sim.Instances {
			return cfg, fmt.Errorf("%w: actor %s is on instance %d, but there are only %d instances: use another instance", ErrConfig, a.Name, a.Instance, sim.Instances)
		}
	}
	return cfg.withDefaults()
}

// ReplayBy executes one schedule. If strategy is empty, it uses the strategy that the schedule names.
// It looks for the strategy in the registry and in added. The schedule runs in a child process, because
// the strategy may crash its process; if command is nil, it runs in bubble instead. A replay without a
// failure does not prove that the strategy is safe.
func ReplayBy(ctx context.Context, bubble Bubble, command []string, sched schedule.Schedule, strategy string, added ...lock.Strategy) (Result, error) {
	strategy = cmp.Or(strategy, sched.Strategy)
	if p, ok := catalog.FindProperty(sched.Property); ok {
		sched.Property = p.Name
	}
	cfg, err := replayConfig(sched, strategy)
	if err != nil {
		return Result{}, err
	}
	cfg.Added = added
	set, err := newSetting(cfg, strategy)
	if err != nil {
		return Result{}, err
	}
	began := time.Now()
	if sched.Property == sim.MistakeProperty { // the guard may have caused this, as in SearchPortfolio
		if cfg.Mistake, err = checkGuard(ctx, set.Guard); err != nil {
			return Result{}, err
		}
		set.Mistake = cfg.Mistake
	}
	cfg.Command, cfg.Workers, set.Actors = command, 1, sched.Actors
	workers, err := startWorkers(bubble, cfg, set, sched.Actors, search.Visited{})
	defer closeAll(workers)
	var went sim.Record
	if err == nil {
		went, err = workers[0].replay(sched.Steps)
	}
	if ended, ok := errors.AsType[*EndedError](err); ok {
		went, err = ended.record(sched.Steps), nil
	}
	if err != nil {
		return Result{}, err
	}
	r := replayResult(set, sched, strategy, went)
	r.Elapsed = time.Since(began)
	return r, ctx.Err()
}

func (e *EndedError) record(steps []schedule.Step) sim.Record {
	return sim.Record{Moments: momentsOf(steps), Broken: []search.Violation{{Property: catalog.Survives, Step: len(steps), Why: e.How, Stack: e.Stack}}}
}

// replayResult returns the result of one replayed schedule. Its verdict is never safe, because
// other schedules may fail.
func replayResult(set sim.Setting, sched schedule.Schedule, strategy string, went sim.Record) Result {
	r := Result{
		Strategy: strategy, Guard: set.Guard, Reason: "only this schedule was executed", Replay: true,
		Schedules: 1, Actors: sched.Actors, Moments: went.Moments,
	}
	broken := went.Broken
	if i := slices.IndexFunc(broken, func(v search.Violation) bool { return v.Property == sched.Property }); i > 0 {
		broken[0], broken[i] = broken[i], broken[0] // put the property that the schedule names first
	}
	for _, v := range broken {
		f := Failure{Property: v.Property, Mode: modeOf(set, v), Why: v.Why, Schedule: sched, Stack: v.Stack}
		f.Schedule.Strategy, f.Schedule.Guard, f.Schedule.Property, f.Schedule.Mode = strategy, string(set.Guard), f.Property, f.Mode
		f.Moments = slices.Clone(went.Moments)
		mark(f.Moments, v.Step)
		r.Failures = append(r.Failures, f)
	}
	r.Verdict = verdictOf(catalog.Map(broken, func(v search.Violation) string { return v.Property }))
	if r.Verdict == catalog.Safe {
		r.Verdict = catalog.Unknown
	}
	if strategy == sched.Strategy && sched.Property != "" {
		r.Expected = verdictOf([]string{sched.Property})
	}
	return r
}
