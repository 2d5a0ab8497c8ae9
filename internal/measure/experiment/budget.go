package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fault"
)

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
		c.Reason = fmt.Sprintf("the test took longer than its budget of %v: %s", cfg.Budget, c.Reason)
	}
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
