package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fault"
)

// Causes for the end of a cell.
var (
	errBudget      = errors.New("experiment: the cell took longer than -budget allows")
	errBudgetTotal = errors.New("experiment: the run took longer than -budget-total allows")
)

// bounded runs a cell under a fault and ends it when its budget or that of the run is used up.
func (w *worker) bounded(ctx context.Context, s *cellSpec) Cell {
	f, _ := fault.Find(s.Fault) // excuse refuses unknown names
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.Budget, errBudget)
	defer cancel()
	if w.cfg.BudgetTotal > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, w.cfg.deadline, errBudgetTotal)
		defer cancel()
	}
	c := w.inject(ctx, s.strategy, f)
	cause := context.Cause(ctx)
	c.Interrupted = errors.Is(cause, errBudgetTotal)
	switch {
	case c.Verdict != catalog.Unknown:
	case c.Interrupted:
		c.Reason = w.cfg.budgetOver("ended early")
	case errors.Is(cause, errBudget):
		c.Reason = fmt.Sprintf("the cell took longer than its budget of %v: %s", w.cfg.Budget, c.Reason)
	}
	return c
}

// budgetOver says what the end of the budget for the run did to a cell.
func (cfg Config) budgetOver(what string) string {
	return fmt.Sprintf("%s, because -budget-total %v was used up", what, cfg.BudgetTotal)
}

// isOver reports whether no further cell may begin.
func (cfg Config) isOver() bool { return cfg.BudgetTotal > 0 && !time.Now().Before(cfg.deadline) }

// orderByRisk sorts cells with a fault for a run that may not come to the last of them: first
// those in which the strategy is known to fail, then by the number of kinds of lock that fail
// under the fault. It prints the order.
func (r *runner) orderByRisk(cells []*cellSpec) {
	risk := func(s *cellSpec) int {
		n := catalog.KindsThatFail(s.Fault)
		if s.strategy.New != nil && slices.Contains([]catalog.Verdict{catalog.Unsafe, catalog.Stuck}, s.strategy.Expected(s.Fault)) {
			n += 100
		}
		return n
	}
	slices.SortStableFunc(cells, func(a, b *cellSpec) int { return cmp.Compare(risk(b), risk(a)) })
	var names []string
	for _, s := range cells {
		names = append(names, s.String())
	}
	r.progress.say("the cells in the order of their risk: %s", strings.Join(names, ", "))
}

// leaveOut gives a result to the cells for which the budget of the run left no time. If an error
// ended the run before, the other cells keep none.
func (r *runner) leaveOut() error {
	if !r.cfg.isOver() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	found := false
	for _, s := range r.specs {
		if s.cell == nil {
			s.cell = r.cfg.notRun(s, catalog.Unknown, r.cfg.budgetOver("not run"))
			s.cell.Interrupted, found = true, true
		}
	}
	if !found {
		return nil
	}
	r.publishLocked()
	return r.save(r.run)
}
