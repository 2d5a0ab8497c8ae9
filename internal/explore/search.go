package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/schedule"

	"golang.org/x/sync/errgroup"
)

// search is one strategy's. It goes through the schedules by price: first those
// that cost nothing, then those with one preemption, or one fault, and so on. A
// schedule is given by the steps in which it departs from those before it; from
// there on it goes on with whatever costs nothing. Each point on its way at
// which something else could have come next gives another schedule.
type search struct {
	cfg Config
	set setting

	steps  []schedule.Step // by number
	number map[schedule.Step]uint16
	levels []*level // by price, the cheapest first
	seen   sightings
	news   []sighting // since the players were told
	found  map[string]*finding
	result Result
	began  time.Time
}

// level is all that has one price.
type level struct {
	cost  cost
	queue queue
	run   int
}

// job is a schedule to be played: the first so many steps of one that was, and
// another step. There are ten times as many of them as states, so they are small.
type job struct {
	base  *trail // nil: no step is given
	n     uint16
	then  uint16
	least uint16 // the number of the first step that can break something
}

// trail is a schedule that was played, by the numbers of its steps.
type trail []uint16

func (j job) steps() int {
	if j.base == nil {
		return 0
	}
	return int(j.n) + 1
}

// queue is first in, first out. It never moves what it has, and keeps nothing
// of what it has given.
type queue struct {
	chunks [][]job
	taken  int // of the first chunk
	len    int
}

const chunk = 4096

func (q *queue) push(j job) {
	if last := len(q.chunks) - 1; last < 0 || len(q.chunks[last]) == chunk {
		q.chunks = append(q.chunks, make([]job, 0, chunk))
	}
	last := &q.chunks[len(q.chunks)-1]
	*last = append(*last, j)
	q.len++
}

// take returns the first, n of them at the most.
func (q *queue) take(n int) []job {
	var jobs []job
	for len(jobs) < n && q.len > 0 {
		first := q.chunks[0][q.taken:]
		first = first[:min(n-len(jobs), len(first))]
		jobs = append(jobs, first...)
		q.len -= len(first)
		if q.taken += len(first); q.taken == len(q.chunks[0]) {
			q.chunks, q.taken = q.chunks[1:], 0
		}
	}
	return jobs
}

// finding is the shortest failure of a property so far.
type finding struct {
	violation
	level int
	steps []schedule.Step
	stack string
}

func newSearch(cfg Config, name string) (*search, error) {
	set, err := newSetting(cfg, name)
	if err != nil {
		return nil, err
	}
	s := &search{
		cfg: cfg, set: set,
		number: map[schedule.Step]uint16{},
		seen:   sightings{},
		found:  map[string]*finding{},
	}
	for total := range cfg.Preemptions + cfg.FaultCount + 1 {
		for faults := range min(total, cfg.FaultCount) + 1 {
			if total-faults <= cfg.Preemptions {
				s.levels = append(s.levels, &level{cost: cost{int8(total - faults), int8(faults)}})
			}
		}
	}
	s.result = Result{Strategy: name, Guard: set.guard, Expected: claimed(cfg, set)}
	return s, nil
}

// batch is how many schedules are played between two looks at what they came
// to: the same for any number of workers, so that the result is the same.
const batch = 256

func (s *search) run(ctx context.Context, bubble Bubble, progress Watch) (Result, error) {
	s.began = time.Now()
	players, err := s.open(bubble)
	defer shut(players)
	if err != nil {
		return Result{}, err
	}
	if s.cfg.Seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(s.cfg.Seconds*float64(time.Second)))
		defer cancel()
	}
	s.levels[0].queue.push(job{})
	for i, l := range s.levels {
		for l.queue.len > 0 && ctx.Err() == nil {
			if err := s.round(i, players); err != nil {
				return Result{}, err
			}
			if progress != nil {
				progress(s.soFar(ctx))
			}
		}
		if s.cfg.First && len(s.found) > 0 {
			break
		}
	}
	return s.conclude(ctx, players[0])
}

// open makes the players: children, or one in this process.
func (s *search) open(bubble Bubble) ([]player, error) {
	if len(s.cfg.Command) == 0 {
		l, err := openLocal(bubble, s.cfg, s.set, s.seen)
		if err != nil {
			return nil, err
		}
		s.set = l.set
		return []player{l}, nil
	}
	var players []player
	for range s.cfg.Workers {
		c, err := openChild(s.cfg.Command, opening{s.cfg, s.set.strategy.Name}, s.seen)
		players = append(players, c)
		if err != nil {
			return players, err
		}
		if c.twice && s.cfg.Actors > 2 {
			s.set = s.set.withDoubleTap()
		}
	}
	return players, nil
}

func shut(players []player) {
	for _, p := range players {
		_ = p.close() // nothing is expected of it any more
	}
}

// round plays the next schedules of a level, and takes in what they came to in
// their order, whoever has played them.
func (s *search) round(at int, players []player) error {
	l := s.levels[at]
	jobs := slices.DeleteFunc(l.queue.take(batch), s.pointless)
	results, err := s.playAll(jobs, l.cost, players)
	if err != nil {
		return err
	}
	for i, j := range jobs {
		s.learn(at, j, results[i])
	}
	return nil
}

// portion is how many schedules a player is given at once.
const portion = 8

// playAll shares the jobs out among the players.
func (s *search) playAll(jobs []job, c cost, players []player) ([]*played, error) {
	tasks := make([]task, len(jobs))
	for i, j := range jobs {
		tasks[i] = task{s.given(j), c}
	}
	news := s.news
	s.news = nil
	results := make([]*played, len(tasks))
	var next atomic.Int64
	share := func(p player) error {
		if err := p.know(news); err != nil {
			return err
		}
		for {
			from := int(next.Add(portion)) - portion
			if from >= len(tasks) {
				return nil
			}
			mine := tasks[from:min(from+portion, len(tasks))]
			if err := p.play(mine, func(i int, r *played) { results[from+i] = r }); err != nil {
				return err
			}
		}
	}
	if len(players) == 1 {
		return results, share(players[0])
	}
	var group errgroup.Group
	for _, p := range players {
		group.Go(func() error { return share(p) })
	}
	return results, group.Wait()
}

// pointless says whether a schedule cannot be the one that is looked for.
func (s *search) pointless(j job) bool {
	if !s.cfg.First || len(s.found) == 0 {
		return false
	}
	return !slices.ContainsFunc(s.cfg.Properties, func(p string) bool {
		f, ok := s.found[p]
		return ok && int(j.least) < f.Step
	})
}

func (s *search) given(j job) []schedule.Step {
	if j.base == nil {
		return nil
	}
	steps := make([]schedule.Step, 0, j.steps())
	for _, n := range (*j.base)[:j.n] {
		steps = append(steps, s.steps[n])
	}
	return append(steps, s.steps[j.then])
}

// visit marks a state. It is false if the state need not be looked at again.
func (s *search) visit(state sum, c cost, steps int) bool {
	if !s.cfg.NoMerge && s.seen.known(state, c, steps) {
		return false
	}
	s.news = append(s.news, s.seen.add(state, c, steps))
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
	base := make(trail, len(p.steps))
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
			next.queue.push(job{&base, uint16(n), s.numberOf(m.Step), uint16(n + pt.toGo)})
		}
	}
	for _, v := range p.broken {
		s.judge(at, v, p.steps, p.stack)
	}
}

// judge keeps the shortest failure of the cheapest level.
func (s *search) judge(at int, v violation, steps []schedule.Step, stack string) {
	if v.Property != Survives && !slices.Contains(s.cfg.Properties, v.Property) {
		return
	}
	f, ok := s.found[v.Property]
	if ok && (f.level < at || f.Step <= v.Step) {
		return
	}
	s.found[v.Property] = &finding{v, at, slices.Clone(steps[:v.Step]), stack}
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
		r.Levels = append(r.Levels, Level{int(l.cost.preemptions), int(l.cost.faults), l.run, l.queue.len})
		r.Schedules += l.run
		r.Complete = r.Complete && l.queue.len == 0
	}
	if !r.Complete && r.Reason == "" && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.Reason = "the time was over"
	}
	r.Verdict = s.verdict(r)
	return r
}

func (s *search) verdict(r Result) lock.Verdict {
	v := verdictOf(func(p string) bool { return s.found[p] != nil })
	if v == lock.Safe && s.found[Survives] != nil {
		return lock.Unsafe
	}
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
func (s *search) conclude(ctx context.Context, p player) (Result, error) {
	r := s.soFar(ctx)
	for _, property := range append([]string{Survives}, Properties...) {
		f, ok := s.found[property]
		if !ok {
			continue
		}
		failure, err := s.tell(f, p)
		switch {
		case errors.Is(err, errDiffers):
			delete(s.found, property)
			r = s.soFar(ctx)
			r.Verdict, r.Complete, r.Reason = lock.Unknown, false, err.Error()
		case err != nil:
			return r, err
		default:
			r.Failures = append(r.Failures, failure)
		}
	}
	return r, nil
}
