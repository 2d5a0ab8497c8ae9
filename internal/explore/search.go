package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/schedule"
)

// search is one strategy's. It goes through the schedules by price: first those
// that cost nothing, then those with one preemption, or one fault, and so on. A
// schedule is given by the steps in which it departs from those before it; from
// there on it goes on with whatever costs nothing. Each point on its way at
// which something else could have come next gives another schedule.
type search struct {
	cfg    Config
	set    setting
	limits *limits

	steps  []schedule.Step // by number
	number map[schedule.Step]uint16
	levels []*level // by price, the cheapest first
	seen   map[sum]visit
	found  map[string]*finding
	result Result
	began  time.Time
}

// level is all that has one price.
type level struct {
	cost  cost
	queue []job
	run   int
}

// job is a schedule to be played: the first so many steps of one that was, and
// another step.
type job struct {
	base []uint16
	n    int
	then uint16
	root bool
}

func (j job) steps() int {
	if j.root {
		return 0
	}
	return j.n + 1
}

// visit is at what prices a state has been looked at, and after how many steps
// at the least.
type visit struct {
	prices uint32 // a bit for each price that need not look again
	steps  uint16
}

// finding is the shortest failure of a property so far.
type finding struct {
	violation
	level int
	steps []schedule.Step
}

func newSearch(cfg Config, name string) (*search, error) {
	set, err := newSetting(cfg, name)
	if err != nil {
		return nil, err
	}
	s := &search{
		cfg: cfg, set: set,
		limits: &limits{preemptions: int8(cfg.Preemptions), faults: int8(cfg.FaultCount), kinds: map[string]bool{}, reduce: !cfg.NoReduce},
		number: map[schedule.Step]uint16{},
		seen:   map[sum]visit{},
		found:  map[string]*finding{},
	}
	for _, kind := range cfg.Faults {
		s.limits.kinds[kind] = true
	}
	for total := range cfg.Preemptions + cfg.FaultCount + 1 {
		for faults := range min(total, cfg.FaultCount) + 1 {
			if total-faults <= cfg.Preemptions {
				s.levels = append(s.levels, &level{cost: cost{int8(total - faults), int8(faults)}})
			}
		}
	}
	s.result = Result{Strategy: name, Guard: set.guard, Expected: Expected(set.strategy, set.guard, kinds(cfg))}
	return s, nil
}

// batch is how many schedules are played between two looks at what they came
// to: the same for any number of workers, so that the result is the same.
const batch = 256

func (s *search) run(ctx context.Context, bubble Bubble, progress Watch) (Result, error) {
	s.began = time.Now()
	st, err := newStage(s.set.strategy.Needs, instances)
	defer st.shut()
	if err != nil {
		return Result{}, err
	}
	bubble(func() { err = st.learn(s.set) })
	if err != nil {
		return Result{}, err
	}
	if st.borrowed && len(s.set.actors) > 2 {
		s.set.actors[1].As = s.set.actors[0].Name // who tries twice brings the same token
	}
	if s.cfg.Seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(s.cfg.Seconds*float64(time.Second)))
		defer cancel()
	}
	s.levels[0].queue = []job{{root: true}}
	for i, l := range s.levels {
		for len(l.queue) > 0 && ctx.Err() == nil {
			jobs := l.queue[:min(batch, len(l.queue))]
			l.queue = l.queue[len(jobs):]
			for _, j := range jobs {
				if s.pointless(j) {
					continue
				}
				var p *played
				bubble(func() { p, err = st.play(s.set, s.limits, s.given(j), l.cost, s.known) })
				if err != nil {
					return Result{}, err
				}
				s.learn(i, j, p)
			}
			if progress != nil {
				progress(s.soFar(ctx))
			}
		}
		if s.cfg.First && len(s.found) > 0 {
			break
		}
	}
	return s.conclude(ctx, st, bubble)
}

// pointless says whether a schedule cannot be the one that is looked for.
func (s *search) pointless(j job) bool {
	if !s.cfg.First || len(s.found) == 0 {
		return false
	}
	return !slices.ContainsFunc(s.cfg.Properties, func(p string) bool {
		f, ok := s.found[p]
		return ok && j.steps() < f.step
	})
}

func (s *search) given(j job) []schedule.Step {
	if j.root {
		return nil
	}
	steps := make([]schedule.Step, 0, j.n+1)
	for _, n := range j.base[:j.n] {
		steps = append(steps, s.steps[n])
	}
	return append(steps, s.steps[j.then])
}

// known says whether a state need not be looked at again: it was, for no more,
// and after no more steps.
func (s *search) known(state sum, c cost, steps int) bool {
	v, ok := s.seen[state]
	return !s.cfg.NoMerge && ok && v.prices&bit(c) != 0 && steps >= int(v.steps)
}

func bit(c cost) uint32 { return 1 << (int(c.preemptions)*(MaxFaultCount+1) + int(c.faults)) }

// visit marks a state. It is false if the state was known.
func (s *search) visit(state sum, c cost, steps int) bool {
	if s.known(state, c, steps) {
		return false
	}
	v, ok := s.seen[state]
	if !ok {
		v.steps = uint16(steps)
	}
	v.steps = min(v.steps, uint16(steps))
	for p := c.preemptions; p <= MaxPreemptions; p++ {
		for f := c.faults; f <= MaxFaultCount; f++ {
			v.prices |= bit(cost{p, f})
		}
	}
	s.seen[state] = v
	return true
}

// learn takes in what a schedule came to.
func (s *search) learn(at int, j job, p *played) {
	l := s.levels[at]
	if p.wrong >= 0 && p.wrong < j.steps() {
		// What looked like a move was none: nothing was due.
		return
	}
	l.run++
	if p.cut {
		s.result.Reason = fmt.Sprintf("a schedule did not end within %d steps", maxSteps)
	}
	base := make([]uint16, len(p.steps))
	for i, step := range p.steps {
		base[i] = s.numberOf(step)
	}
	for i, pt := range p.points {
		n := j.steps() + i
		if !s.visit(pt.state, l.cost, n) {
			break
		}
		for _, m := range pt.moves {
			if n < len(p.steps) && m.Step == p.steps[n] {
				continue // gone already
			}
			next := s.levelOf(l.cost.plus(m.cost))
			next.queue = append(next.queue, job{base: base, n: n, then: s.numberOf(m.Step)})
		}
	}
	for _, v := range p.broken {
		s.judge(at, v, p.steps)
	}
}

// judge keeps the shortest failure of the cheapest level.
func (s *search) judge(at int, v violation, steps []schedule.Step) {
	if !slices.Contains(s.cfg.Properties, v.property) {
		return
	}
	f, ok := s.found[v.property]
	if ok && (f.level < at || f.step <= v.step) {
		return
	}
	s.found[v.property] = &finding{v, at, slices.Clone(steps[:v.step])}
}

func (s *search) numberOf(step schedule.Step) uint16 {
	n, ok := s.number[step]
	if !ok {
		n = uint16(len(s.steps))
		s.steps = append(s.steps, step)
		s.number[step] = n
	}
	return n
}

func (s *search) levelOf(c cost) *level {
	for _, l := range s.levels {
		if l.cost == c {
			return l
		}
	}
	panic("explore: a move beyond the bounds") // moves offers none
}

// soFar is the result as it stands.
func (s *search) soFar(ctx context.Context) Result {
	r := s.result
	r.Levels, r.Schedules, r.States = nil, 0, len(s.seen)
	r.Elapsed = time.Since(s.began)
	r.Complete = r.Reason == ""
	for _, l := range s.levels {
		r.Levels = append(r.Levels, Level{int(l.cost.preemptions), int(l.cost.faults), l.run, len(l.queue)})
		r.Schedules += l.run
		r.Complete = r.Complete && len(l.queue) == 0
	}
	if !r.Complete && r.Reason == "" && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.Reason = "the time was over"
	}
	r.Verdict = s.verdict(r)
	return r
}

func (s *search) verdict(r Result) lock.Verdict {
	v := verdictOf(func(p string) bool { return s.found[p] != nil })
	if v == lock.Safe && !r.Complete {
		return lock.Unknown
	}
	return v
}

// verdictOf is what the broken properties come to: stuck, if nothing worse.
func verdictOf(broken func(property string) bool) lock.Verdict {
	for _, p := range Properties {
		if p != Stuck && broken(p) {
			return lock.Unsafe
		}
	}
	if broken(Stuck) {
		return lock.Stuck
	}
	return lock.Safe
}

// conclude plays each failure again, for its story, and to be sure of it.
func (s *search) conclude(ctx context.Context, st *stage, bubble Bubble) (Result, error) {
	r := s.soFar(ctx)
	for _, p := range Properties {
		f, ok := s.found[p]
		if !ok {
			continue
		}
		failure, err := s.tell(f, st, bubble)
		if err != nil {
			return r, err
		}
		r.Failures = append(r.Failures, failure)
	}
	return r, nil
}
