package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
)

// CellName names one test by its strategy and its fault.
type CellName struct {
	Strategy string
	Fault    catalog.Fault
}

// String formats the name as strategy/fault.
func (n CellName) String() string { return n.Strategy + "/" + string(n.Fault) }

// Name returns the name of the test that had this result.
func (c Cell) Name() CellName { return CellName{c.Strategy, c.Fault} }

// Plan returns the names of all tests of a run, one strategy after another.
func (cfg Config) Plan() []CellName {
	return catalog.Map(cfg.specs(nil), func(s *cellSpec) CellName { return s.CellName })
}

// cellSpec describes a test of the run. It stores the result when the test has run.
type cellSpec struct {
	CellName
	strategy lock.Strategy
	cell     *Cell // nil until the test has run
}

// specs lists the tests of the run. at is nil until the run has connected to a running service,
// because the service's strategies are unknown before that.
func (cfg Config) specs(at *fleet.Fleet) []*cellSpec {
	faults := cfg.Faults
	if len(faults) == 0 {
		faults = []catalog.Fault{catalog.NoFault}
	}
	var specs []*cellSpec
	for _, s := range cfg.strategies(at) {
		for _, f := range faults {
			name := CellName{s.Name, f}
			if len(cfg.Only) == 0 || slices.Contains(cfg.Only, name) {
				specs = append(specs, &cellSpec{CellName: name, strategy: s})
			}
		}
	}
	return specs
}

// withControl adds the strategy without a lock to a search for the highest rate, because the search
// compares all other strategies with it.
func (cfg Config) withControl(strategies []lock.Strategy) []lock.Strategy {
	has := slices.ContainsFunc(strategies, func(s lock.Strategy) bool { return s.Name == lockless })
	if cfg.Scenario != "peak" || has || len(cfg.Only) > 0 {
		return strategies
	}
	s, _ := lock.Find(lockless) // a strategy with this name always exists
	return append([]lock.Strategy{s}, strategies...)
}

// excuse returns a result for a test that cannot run, with a verdict such as n/a and the reason. It
// returns nil if the test can run.
func (cfg Config) excuse(s *cellSpec) *Cell {
	if why := s.strategy.GuardedBy(cfg.Guard).RefusesUnits(cfg.units()); s.strategy.New != nil && why != "" {
		return cfg.notRun(s, catalog.NA, why)
	}
	if s.Fault == catalog.NoFault {
		return nil
	}
	f, _ := fault.Find(s.Fault) // always found, because unknown faults were refused earlier
	if why := cfg.subject().excuse(f); why != "" {
		return cfg.notRun(s, catalog.NA, why)
	}
	if !f.Touches(s.strategy) {
		return cfg.notRun(s, catalog.NA, untouched(s.Fault, s.Strategy)+cfg.rowRelease(f))
	}
	if why := f.Refused(cfg.Stack.Kind, cfg.Stack.RunsRedis()); why != "" {
		return cfg.notRun(s, catalog.Unknown, "not run: "+why)
	}
	return nil
}

func (cfg Config) notRun(s *cellSpec, v catalog.Verdict, why string) *Cell {
	c := cfg.newCell(s.strategy, s.Fault)
	c.skip(v, why)
	return &c
}

// skip records why a test was not run. If the fault cannot affect the strategy, no verdict is expected either.
func (c *Cell) skip(v catalog.Verdict, why string) {
	if c.Verdict, c.Reason = v, why; v == catalog.NA {
		c.Expected, c.ExpectedExclusive = nil, nil
	}
}

func untouched(f catalog.Fault, strategy string) string {
	return fmt.Sprintf("%s touches nothing that %s uses", f, strategy)
}

func (cfg Config) newCell(s lock.Strategy, f catalog.Fault) Cell {
	c := Cell{
		Strategy: s.Name, Fault: f,
		CountedFrom: fromAnswers, Outcomes: noOutcomes(), Errors: map[string]int{}, ServedBy: map[string]int{},
	}
	c.Expected, c.ExpectedExclusive = cfg.expected(s, f)
	if cfg.TestsService() { // overlapping holders cannot be observed in the user's service
		c.ExpectedExclusive = nil
	}
	if cfg.Expect != nil {
		c.Expected, c.ExpectedExclusive = cfg.wanted(s.Name, f), nil
	}
	if s.New != nil {
		c.Guard, c.OnLost = s.GuardedBy(cfg.Guard), cfg.OnLost
	}
	return c
}

// coordinators are servers that only the first worker starts, because they are slow to start and
// need much memory.
const coordinators = lock.ZooKeeper | lock.Etcd

// queue contains the tests that still have to run. It is safe for concurrent use.
type queue struct {
	mu   sync.Mutex
	left []*cellSpec
}

// newQueue returns a queue that begins with the tests that only the first worker can run.
func newQueue(specs []*cellSpec) *queue {
	onlyFirst := func(s *cellSpec) bool { return s.strategy.Needs&coordinators != 0 }
	rest := slices.DeleteFunc(slices.Clone(specs), onlyFirst)
	return &queue{left: append(catalog.Filter(specs, onlyFirst), rest...)}
}

// take removes and returns the next test that can run on the given servers. It returns nil if there
// is none.
func (q *queue) take(serves lock.Backend) *cellSpec {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.left, func(s *cellSpec) bool { return s.strategy.Needs&^serves == 0 })
	if i < 0 {
		return nil
	}
	s := q.left[i]
	q.left = slices.Delete(q.left, i, i+1)
	return s
}

// These errors say why a test ended early.
var (
	errBudget      = errors.New("experiment: the test took longer than -budget allows")
	errBudgetTotal = errors.New("experiment: the run took longer than -budget-total allows")
)

// bounded tests a strategy under a fault. It stops early if the budget for this test or for the
// whole run runs out.
func (w *worker) bounded(ctx context.Context, s *cellSpec) Cell {
	f, _ := fault.Find(s.Fault)
	end, why := w.cfg.endOfTest(time.Now())
	ctx, cancel := context.WithDeadlineCause(ctx, end, why)
	defer cancel()
	c := w.inject(ctx, s.strategy, f)
	w.cfg.noteEnd(&c, context.Cause(ctx))
	return c
}

// endOfTest returns when a test that begins now must end, and which budget ends it.
func (cfg Config) endOfTest(now time.Time) (end time.Time, why error) {
	end = now.Add(cfg.Budget)
	if cfg.BudgetTotal > 0 && cfg.deadline.Before(end) {
		return cfg.deadline, errBudgetTotal
	}
	return end, errBudget
}

// noteEnd records that a budget has ended a test early, if that is the cause. A failure that the test had already
// found still counts.
func (cfg Config) noteEnd(c *Cell, cause error) {
	c.Interrupted = errors.Is(cause, errBudgetTotal)
	switch {
	case c.Verdict != catalog.Unknown:
	case c.Interrupted:
		c.Reason = cfg.budgetOver("ended early")
	case errors.Is(cause, errBudget):
		c.Reason = fmt.Sprintf("the test took longer than its budget of %v: raise -budget%s", cfg.Budget, afterBudget(c.Reason))
	}
}

// afterBudget returns what a reason says apart from the end of the budget, as the continuation of a sentence.
func afterBudget(reason string) string {
	if rest, ended := strings.CutPrefix(reason, "interrupted: "+errBudget.Error()); ended {
		return rest
	}
	return "; " + strings.Replace(reason, ": "+errBudget.Error(), "", 1)
}

// budgetOver returns a message such as "ended early, because -budget-total 5m ran out".
func (cfg Config) budgetOver(what string) string {
	return fmt.Sprintf("%s, because -budget-total %v ran out", what, cfg.BudgetTotal)
}

func (cfg Config) isOver() bool { return cfg.BudgetTotal > 0 && !time.Now().Before(cfg.deadline) }

// orderByRisk moves the tests that are most likely to fail to the front, so that only low-risk
// tests are skipped if time runs out. It then prints the new order.
func (r *runner) orderByRisk(cells []*cellSpec) {
	risk := func(s *cellSpec) int {
		n := catalog.KindsThatFail(s.Fault)
		if s.strategy.New != nil && slices.Contains([]catalog.Verdict{catalog.Unsafe, catalog.Stuck}, s.strategy.Expected(s.Fault)) {
			n += 100
		}
		return n
	}
	slices.SortStableFunc(cells, func(a, b *cellSpec) int { return cmp.Compare(risk(b), risk(a)) })
	r.progress.say("tests, highest risk first: %s", catalog.Join(cells, ", ", (*cellSpec).String))
}

// leaveOut adds an empty result for each test that was skipped because the run had no time left.
func (r *runner) leaveOut() error {
	if !r.cfg.isOver() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.specs {
		if s.cell == nil {
			s.cell = r.cfg.notRun(s, catalog.Unknown, r.cfg.budgetOver("not run"))
			s.cell.Interrupted = true
		}
	}
	r.publishLocked()
	return r.save(r.run)
}
