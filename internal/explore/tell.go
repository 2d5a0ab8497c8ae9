package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/schedule"
)

// replays is how often a failure is played again before it is believed.
const replays = 20

var errDiffers = errors.New("not deterministic")

// tell plays a failure again. One that took the process with it is told as far
// as it is known.
func (s *search) tell(f *finding, p player) (Failure, error) {
	sched := s.set.schedule()
	sched.Property, sched.Steps = f.Property, f.steps
	sched.Mode = modeOf(f.Property, s.set.strategy, f.steps)
	failure := Failure{Property: f.Property, Mode: sched.Mode, Why: f.Why, Schedule: sched, Stack: f.stack}
	if f.Property == Survives {
		return failure, nil
	}
	for i := range replays {
		story, err := p.replay(f.steps)
		if err != nil {
			return failure, err
		}
		if !slices.ContainsFunc(story.Broken, func(v violation) bool { return v.Property == f.Property && v.Step == f.Step }) {
			return failure, fmt.Errorf("%w: play %d of what broke %s did not break it", errDiffers, i+1, f.Property)
		}
		failure.Moments = story.Moments
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

// schedule has the setting, and no steps.
func (set setting) schedule() schedule.Schedule {
	return schedule.Schedule{
		Strategy: set.strategy.Name, Guard: string(set.guard), OnLost: string(set.onLost), Actors: set.actors,
		Nodes: nodeNames(set.strategy.Needs), TTL: set.ttl, Work: set.work, Wait: set.wait,
	}
}

// replay plays steps, leaving out what cannot be made, and then what costs
// nothing until everything has ended.
func (s *stage) replay(set setting, bubble Bubble, steps []schedule.Step) (moments []Moment, broken []violation, err error) {
	bubble(func() {
		w, problem := newWorld(s, set)
		defer w.stop()
		if err = problem; err != nil {
			return
		}
		w.telling = true
		for _, step := range steps {
			ok := w.step(step)
			moments = append(moments, w.moment(step, !ok))
		}
		for len(moments) < maxSteps {
			next, _ := w.moves(&limits{}, cost{})
			if len(next) == 0 {
				break
			}
			ok := w.step(next[0].Step)
			moments = append(moments, w.moment(next[0].Step, !ok))
			if !ok {
				break
			}
		}
		w.finish()
		broken = w.broken
	})
	return moments, broken, err
}

// moment is what there is to see after a step.
func (w *world) moment(s schedule.Step, skipped bool) Moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.did) // what happens in one instant happens in any order
	m := Moment{Step: s, At: w.elapsed().Round(time.Millisecond), Did: strings.Join(w.did, ""), Skipped: skipped, Made: w.steps}
	w.did = nil
	for _, n := range w.nodes {
		for line := range strings.Lines(string(n.contents())) {
			m.Store = append(m.Store, n.name+": "+strings.TrimSpace(line))
		}
	}
	m.Store = append(m.Store, "db: "+w.wonBy())
	for _, a := range w.actors {
		if a.granted && !a.leaving && !a.lostIt && !a.dead {
			m.Believes = append(m.Believes, a.name)
		}
		if a.granted && !a.leaving && (!w.leased() || w.leaseLeft(a) > 0) {
			m.Holds = append(m.Holds, a.name)
		}
	}
	return m
}

// wonBy says who is in the ledger.
func (w *world) wonBy() string {
	if ledger := w.ledger(); len(ledger) > 0 {
		return "won by " + strings.Join(w.winners(ledger), " and by ")
	}
	return "open"
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
		if a.Instance > instances {
			return cfg, fmt.Errorf("%w: %s is on instance %d of %d", ErrConfig, a.Name, a.Instance, instances)
		}
	}
	return cfg.withDefaults()
}

// Replay plays one schedule, with its own strategy or, if that is not "", with
// another. Its own should break again what the schedule says; one schedule that
// breaks nothing makes no strategy safe.
func Replay(ctx context.Context, bubble Bubble, sched schedule.Schedule, strategy string) (Result, error) {
	if strategy == "" {
		strategy = sched.Strategy
	}
	cfg, err := replayConfig(sched, strategy)
	if err != nil {
		return Result{}, err
	}
	set, err := newSetting(cfg, strategy)
	if err != nil {
		return Result{}, err
	}
	set.actors = sched.Actors
	st, err := newStage(set.strategy.Needs, instances)
	defer st.shut()
	if err != nil {
		return Result{}, err
	}
	bubble(func() { err = st.learn(set) })
	if err != nil {
		return Result{}, err
	}
	began := time.Now()
	moments, broken, err := st.replay(set, bubble, sched.Steps)
	if err != nil {
		return Result{}, err
	}
	r := Result{
		Strategy: strategy, Guard: set.guard, Reason: "one schedule was played, and no other",
		Schedules: 1, Actors: sched.Actors, Moments: moments,
	}
	if i := slices.IndexFunc(broken, func(v violation) bool { return v.Property == sched.Property }); i > 0 {
		broken[0], broken[i] = broken[i], broken[0] // what is looked for comes first
	}
	for _, v := range broken {
		f := Failure{Property: v.Property, Mode: modeOf(v.Property, set.strategy, sched.Steps), Why: v.Why, Schedule: sched}
		f.Schedule.Strategy, f.Schedule.Guard, f.Schedule.Property, f.Schedule.Mode = strategy, string(set.guard), f.Property, f.Mode
		f.Moments = append(f.Moments, moments...)
		mark(f.Moments, v.Step)
		r.Failures = append(r.Failures, f)
	}
	r.Verdict = verdictOf(func(p string) bool {
		return slices.ContainsFunc(broken, func(v violation) bool { return v.Property == p })
	})
	if r.Verdict == lock.Safe {
		r.Verdict = lock.Unknown
	}
	if strategy == sched.Strategy && sched.Property != "" {
		r.Expected = verdictOf(func(p string) bool { return p == sched.Property })
	}
	r.Elapsed = time.Since(began)
	return r, ctx.Err()
}
