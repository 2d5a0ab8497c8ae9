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

// Causes that end a cell early.
var (
	errBudget      = errors.New("experiment: the cell took longer than -budget allows")
	errBudgetTotal = errors.New("experiment: the run took longer than -budget-total allows")
)

// bounded runs a cell under a fault. It ends the cell when the budget of the cell or of the whole
// run is used up.
func (w *worker) bounded(ctx context.Context, s *cellSpec) Cell {
	f, _ := fault.Find(s.Fault) // excuse has already refused unknown names
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

// budgetOver returns the reason for cutting short or skipping a cell when the budget of the run is
// used up.
func (cfg Config) budgetOver(what string) string {
	return fmt.Sprintf("%s, because -budget-total %v was used up", what, cfg.BudgetTotal)
}

// isOver reports whether the run has used up its budget and must not begin another cell.
func (cfg Config) isOver() bool { return cfg.BudgetTotal > 0 && !time.Now().Before(cfg.deadline) }

// orderByRisk sorts the cells with a fault, because a run with a budget may not reach the last
// ones. Cells in which the strategy is known to fail come first. The others are sorted by how many
// kinds of lock fail under their fault. orderByRisk also prints the order.
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

// leaveOut adds a result for each cell that did not run because the budget was used up. If the run
// ended for another reason, such cells get no result.
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
