package bench

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"grablab/internal/fault"
	"grablab/internal/grab/lock"
)

// CellName names a cell of the table.
type CellName struct {
	Strategy string
	Fault    lock.Fault
}

// String is strategy/fault.
func (n CellName) String() string { return n.Strategy + "/" + string(n.Fault) }

// Plan is the cells of a run in the order of its table: strategies down, faults
// across; of these the ones that Only names, if it names any.
func (cfg Config) Plan() []CellName {
	var plan []CellName
	for _, s := range cfg.Strategies {
		for _, f := range cfg.Faults {
			name := CellName{s.Name, f}
			if len(cfg.Only) == 0 || slices.Contains(cfg.Only, name) {
				plan = append(plan, name)
			}
		}
	}
	return plan
}

// spot is the place of a cell in the table.
type spot struct {
	CellName
	strategy lock.Strategy
	cell     *Cell // nil: it has not run
}

// spots of the run. A foreign service has one strategy, which we do not know.
func (cfg Config) spots(foreign bool) []*spot {
	if foreign {
		s := lock.Strategy{Name: Foreign, Title: "whatever the targets do", Excludes: lock.Nobody}
		return []*spot{{CellName: CellName{s.Name, lock.NoFault}, strategy: s}}
	}
	var spots []*spot
	for _, name := range cfg.Plan() {
		i := slices.IndexFunc(cfg.Strategies, func(s lock.Strategy) bool { return s.Name == name.Strategy })
		spots = append(spots, &spot{CellName: name, strategy: cfg.Strategies[i]})
	}
	return spots
}

// excuse is the cell of a spot that is not run, with the reason; nil: it is run.
func (cfg Config) excuse(s *spot) *Cell {
	if s.Fault == lock.NoFault {
		return nil
	}
	f, err := fault.Find(s.Fault)
	if err != nil {
		return cfg.notRun(s, lock.Unknown, err.Error())
	}
	if !f.Touches(s.strategy) {
		return cfg.notRun(s, lock.NA, fmt.Sprintf("%s touches nothing that %s uses", s.Fault, s.Strategy))
	}
	if why := f.Refused(cfg.Stack.Kind); why != "" {
		return cfg.notRun(s, lock.Unknown, "not run: "+why)
	}
	return nil
}

// notRun is a cell in which nothing was counted.
func (cfg Config) notRun(s *spot, v lock.Verdict, why string) *Cell {
	c := Cell{
		Strategy: s.Strategy, Fault: s.Fault, Verdict: v, Reason: why, Expected: cfg.expected(s.strategy, s.Fault),
		Guard: s.strategy.GuardedBy(cfg.Guard), OnLost: cfg.OnLost,
		CountedFrom: fromAnswers, Outcomes: noOutcomes(), Errors: map[string]int{}, ServedBy: map[string]int{},
	}
	if v == lock.NA {
		c.Expected = nil
	}
	return &c
}

// coordinators take long to start and want much memory: the first lane alone
// has them.
const coordinators = lock.ZooKeeper | lock.Etcd

// queue is the spots that several lanes are to fill. It is safe for concurrent use.
type queue struct {
	mu   sync.Mutex
	left []*spot
}

// newQueue puts those first that only the first lane can serve.
func newQueue(spots []*spot) *queue {
	rank := func(s *spot) int {
		if s.strategy.Needs&coordinators != 0 {
			return 0
		}
		return 1
	}
	left := slices.Clone(spots)
	slices.SortStableFunc(left, func(a, b *spot) int { return cmp.Compare(rank(a), rank(b)) })
	return &queue{left: left}
}

// take is the next spot for a lane with these servers; nil: there is none.
func (q *queue) take(serves lock.Backend) *spot {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.left, func(s *spot) bool { return s.strategy.Needs&^serves == 0 })
	if i < 0 {
		return nil
	}
	s := q.left[i]
	q.left = slices.Delete(q.left, i, i+1)
	return s
}
