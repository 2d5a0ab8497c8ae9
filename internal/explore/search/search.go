// Package search tries schedules in order of cost. For each property, it keeps the shortest
// schedule that breaks the property.
//
// A schedule's cost is its number of preemptions and faults. Workers execute the schedules (see
// package sim), so this package knows nothing about locks, servers or time.
//
// The search is breadth-first by Cost. This is preemption bounding, as in CHESS (Musuvathi and
// Qadeer, PLDI 2007). An execution ends when it reaches a state that was visited before at the same
// or a lower cost. Start reading at Search.Run, round and learn.
package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"

	"golang.org/x/sync/errgroup"
)

// Config sets the limits and options of a search.
type Config struct {
	Bounds     Cost
	Properties []string // the properties to check; the search always checks catalog.Survives too
	NoMerge    bool     // explore a state on every visit instead of only on the first
	Schedules  int      // the maximum number of schedules to execute; 0 means no limit

	// Kind assigns a failure to a group. If it is not nil, the search keeps the shortest failure
	// per combination of group and property.
	Kind func(Violation, []schedule.Step) string
}

// Search is a search for failures. Run may be called only once.
type Search struct {
	cfg     Config
	visited Visited
	steps   stepTable
	levels  []*level // sorted by cost
	at      int      // the current level's index
	news    Visited  // states visited since the last update of the workers
	found   map[failure]Finding
	run     int

	// These fields record reasons why the search may be incomplete.
	cut     bool // whether an execution was stopped after MaxSteps steps
	ended   bool // whether an execution ended its process
	hung    bool
	dropped bool // whether jobs were skipped because they could not lead to a shorter failure
}

// failure is the key of a Finding. The search keeps one Finding per key.
type failure struct{ property, kind string }

// level holds all schedules with the same cost.
type level struct {
	cost  Cost
	queue queue
	run   int
}

// Level counts the schedules with a certain number of preemptions and faults.
type Level struct {
	Preemptions int `json:"preemptions"`
	Faults      int `json:"faults"`
	Run         int `json:"schedules"` // the number of executed schedules
	Waiting     int `json:"waiting"`   // the number of queued schedules
}

// Finding is the shortest known failure of one property. With Config.Kind, it is the shortest one of its
// group.
type Finding struct {
	Violation
	Steps    []schedule.Step
	Kind     string
	Shortest bool // whether no schedule with the same or a lower cost breaks the property in fewer steps
	level    int
}

// Summary describes the progress and the findings of a search.
type Summary struct {
	Levels    []Level
	Schedules int
	States    int
	Complete  bool      // whether every schedule within the limits was executed
	Reason    string    // why the search is incomplete; empty if it is complete or still running
	Findings  []Finding // in the order of Config.Properties, the shortest first
}

// TimeOver is the Reason of a search that timed out. The result of a timed-out search may differ
// between runs.
const TimeOver = "the search ran out of time"

// New creates a search. It stores the visited states in the map visited, which it may share with a
// worker in this process.
func New(cfg Config, visited Visited) *Search {
	s := &Search{cfg: cfg, visited: visited, news: Visited{}, steps: stepTable{ids: map[schedule.Step]stepID{}}, found: map[failure]Finding{}}
	for total := range cfg.Bounds.Preemptions + cfg.Bounds.Faults + 1 {
		for faults := range min(total, cfg.Bounds.Faults) + 1 {
			if c := (Cost{total - faults, faults}); c.Within(cfg.Bounds) {
				s.levels = append(s.levels, &level{cost: c})
			}
		}
	}
	return s
}

// Run searches until it has executed every schedule within its limits, or until ctx ends. If
// progress is not nil, Run calls it after each batch.
func (s *Search) Run(ctx context.Context, workers []Worker, progress func(Summary)) (Summary, error) {
	s.levels[0].queue.push(job{})
	for i, l := range s.levels {
		s.at = i
		for len(l.queue.jobs) > 0 && ctx.Err() == nil && !s.hung && s.room() > 0 {
			if err := s.round(ctx, workers); err != nil {
				return Summary{}, err
			}
			if progress != nil {
				progress(s.summary(ctx))
			}
		}
	}
	return s.summary(ctx), nil
}

// room returns how many more schedules may be executed. If there is no limit, it returns the batch
// size.
func (s *Search) room() int {
	if s.cfg.Schedules == 0 {
		return batch
	}
	return max(0, s.cfg.Schedules-s.run)
}

// batch is the number of schedules that the search executes before it processes their traces. It is
// fixed, so that the number of workers does not change the result.
const batch = 256

// round executes the next batch of schedules and processes the traces in order. After a hang, it
// puts the remaining schedules back into the queue.
func (s *Search) round(ctx context.Context, workers []Worker) error {
	l := s.levels[s.at]
	jobs := l.queue.take(min(batch, s.room()))
	taken := len(jobs)
	jobs = slices.DeleteFunc(jobs, s.isPointless)
	s.dropped = s.dropped || len(jobs) < taken
	traces, err := s.executeAll(ctx, jobs, l.cost, workers)
	if err != nil {
		return err
	}
	for i, j := range jobs {
		if traces[i] == nil || s.hung {
			l.queue.push(j)
			continue
		}
		s.learn(j, traces[i])
	}
	return nil
}

// executeAll lets the workers execute all jobs in parallel. It stops early if a lock hangs, because
// a hung worker cannot continue.
func (s *Search) executeAll(ctx context.Context, jobs []job, c Cost, workers []Worker) ([]*Trace, error) {
	news := s.news
	s.news = Visited{}
	traces := make([]*Trace, len(jobs))
	var next atomic.Int64
	var hung atomic.Bool // once set, no worker gets another job
	share := func(w Worker) (err error) {
		w.Update(news)
		for err == nil && ctx.Err() == nil && !hung.Load() {
			i := int(next.Add(1)) - 1
			if i >= len(jobs) {
				break
			}
			if traces[i], err = w.Execute(Task{s.given(jobs[i]), c}); err == nil && traces[i].Hung {
				hung.Store(true)
			}
		}
		return err
	}
	if len(workers) == 1 { // a single worker may be bound to this goroutine, as in a test
		return traces, share(workers[0])
	}
	var group errgroup.Group
	for _, w := range workers {
		group.Go(func() error { return share(w) })
	}
	return traces, group.Wait()
}

// isPointless reports whether the search can skip a job, because the job cannot lead to a shorter
// failure.
func (s *Search) isPointless(j job) bool {
	if s.cfg.Kind != nil {
		return false
	}
	mayImprove := func(property string) bool {
		f, found := s.found[failure{property, ""}]
		return !found || f.level == s.at && j.steps() < f.Step
	}
	return !mayImprove(catalog.Survives) || !slices.ContainsFunc(s.cfg.Properties, mayImprove)
}

func (s *Search) given(j job) []schedule.Step {
	if j.base == nil {
		return nil
	}
	return catalog.Map(append((*j.base)[:j.n:j.n], j.then), func(id stepID) schedule.Step { return s.steps.steps[id] })
}

// visit marks a state as visited. It returns false if the search need not explore the state again.
func (s *Search) visit(state Fingerprint, c Cost, steps int) bool {
	if !s.cfg.NoMerge && s.visited.Covers(state, c, steps) {
		return false
	}
	s.visited.Add(state, c, steps)
	s.news[state] = s.visited[state]
	return true
}

// learn records the violations in the trace of a job. It then queues the schedules that branch off
// from this trace.
func (s *Search) learn(j job, t *Trace) {
	l := s.levels[s.at]
	if t.Impossible >= 0 && t.Impossible < j.steps() {
		// The job's last step lets a timer fire, but no timer was due.
		return
	}
	l.run++
	s.run++
	s.cut, s.hung = s.cut || t.Cut, s.hung || t.Hung
	base := s.steps.prefix(t.Steps)
	for i, p := range t.Points {
		n := j.steps() + i
		if !s.visit(p.State, l.cost, n) {
			break
		}
		for _, tr := range p.Transitions {
			if n < len(t.Steps) && tr.Step == t.Steps[n] {
				continue // this execution has already made this step
			}
			next := s.levelOf(l.cost.Plus(tr.Cost))
			next.queue.push(job{&base, uint16(n), s.steps.id(tr.Step)})
		}
	}
	for _, v := range t.Broken {
		s.keepViolation(v, t)
	}
}

// keepViolation records a violation, unless the search already knows a shorter or cheaper violation
// of the same kind.
func (s *Search) keepViolation(v Violation, t *Trace) {
	s.ended = s.ended || v.Property == catalog.Survives
	if v.Property != catalog.Survives && !slices.Contains(s.cfg.Properties, v.Property) {
		return
	}
	steps := slices.Clone(t.Steps[:v.Step])
	of := failure{property: v.Property}
	if s.cfg.Kind != nil {
		of.kind = s.cfg.Kind(v, steps)
	}
	f, ok := s.found[of]
	if ok && (f.level < s.at || f.Step <= v.Step) {
		return
	}
	s.found[of] = Finding{Violation: v, Steps: steps, Kind: of.kind, level: s.at}
}

func (s *Search) levelOf(c Cost) *level {
	i := slices.IndexFunc(s.levels, func(l *level) bool { return l.cost == c })
	return s.levels[i] // it exists, because workers stay within the limits
}

// summary returns the current state of the search, and the reason why the search is incomplete.
func (s *Search) summary(ctx context.Context) Summary {
	r := Summary{States: len(s.visited), Complete: true, Findings: s.findings()}
	for _, l := range s.levels {
		r.Levels = append(r.Levels, Level{int(l.cost.Preemptions), int(l.cost.Faults), l.run, len(l.queue.jobs)})
		r.Schedules += l.run
		r.Complete = r.Complete && len(l.queue.jobs) == 0
	}
	switch {
	case s.hung:
		r.Complete, r.Reason = false, "the lock hung in one schedule, so the search stopped there"
	case s.ended:
		r.Complete, r.Reason = false, "the lock ended the search process in one schedule, so the search stopped there"
	case s.cut:
		r.Complete, r.Reason = false, fmt.Sprintf("a schedule did not end within %d steps: let the lock pause longer between attempts, or choose a shorter -wait", MaxSteps)
	case !r.Complete && errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.Reason = TimeOver
	case !r.Complete && s.room() == 0:
		r.Reason = fmt.Sprintf("the limit of %d schedules was reached", s.run)
	case s.dropped:
		r.Complete, r.Reason = false, "all requested failures were found, and no shorter schedule is left"
	}
	return r
}

// findings returns the findings sorted by property, and within a property, the cheapest and
// shortest first.
func (s *Search) findings() []Finding {
	var all []Finding
	for _, f := range s.found {
		f.Shortest = f.level < s.at || !s.levels[f.level].queue.shorter(f.Step)
		all = append(all, f)
	}
	rank := func(f Finding) int { return slices.Index(s.cfg.Properties, f.Property) } // -1 for Survives, which comes first
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(rank(a)-rank(b), a.level-b.level, a.Step-b.Step, strings.Compare(a.Kind, b.Kind))
	})
	return all
}
