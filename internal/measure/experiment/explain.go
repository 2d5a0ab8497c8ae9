package experiment

import (
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
)

// lateWrite marks an order that violates no property only because the database refused a late write. The
// driver's lease had ended before this write.
const lateWrite = "late write"

// failed names an order and the property that it violates. If the order is fine, the property is
// empty.
type failed struct {
	order    int64
	property string
}

// failureOf returns the worst failure of an order. Its property is empty if nothing failed.
func failureOf(id int64, s lock.Strategy, e check.Evidence) failed {
	f := failed{order: id}
	switch {
	case doubleGrabs(e, id) > 0 && !onlyRepeats(e, id):
		f.property = catalog.OneWinner
	case slices.Contains(e.Stuck, id):
		f.property = catalog.StuckOrder
	case len(overlapsOf(e, s, id)) > 0:
		f.property = catalog.HoldersExclusive
	}
	return f
}

// doubleGrabs returns how many more wins than units an order has.
func doubleGrabs(e check.Evidence, id int64) int { return max(0, grabsOf(e, id)-max(e.Units, 1)) }

// onlyRepeats reports whether every surplus ledger row of an order repeats an earlier row of the
// same driver. Such rows do not show that two drivers won.
func onlyRepeats(e check.Evidence, id int64) bool {
	if !e.Foreign || e.FromAnswers {
		return false
	}
	e.Ledger = e.WithoutRepeats(1)
	return doubleGrabs(e, id) == 0
}

func unsoldOf(e check.Evidence, id int64) int { return max(0, max(e.Units, 1)-grabsOf(e, id)) }

func grabsOf(e check.Evidence, id int64) int { return check.RowsByOrder(rowsOf(e))[id] }

// rowsOf returns the ledger rows. If only the responses count, it returns the rows that the ledger
// should have according to the responses.
func rowsOf(e check.Evidence) []order.Grab {
	if e.FromAnswers {
		return check.Rows(e.Promised)
	}
	return e.Ledger
}

// overlapsOf returns the pairs of drivers that held an order's lock at the same time.
func overlapsOf(e check.Evidence, s lock.Strategy, id int64) []check.Overlap {
	if e.Record == nil || s.Excludes == catalog.NoExclusion {
		return nil
	}
	return check.Overlaps(catalog.Filter(e.Record.Holds, func(h check.Hold) bool { return h.Order == id }), s.Excludes)
}

// explain returns a timeline for each failed order. It builds them from the recorded events, which
// it reads again from the event files.
func (w *worker) explain(c *Cell, s lock.Strategy, e check.Evidence, failures []failed) (map[int64]check.Timeline, error) {
	timelines := map[int64]check.Timeline{}
	if len(failures) == 0 || e.Record == nil {
		return timelines, nil
	}
	events := map[int64][]history.Event{}
	for _, f := range failures {
		events[f.order] = nil
	}
	if err := w.fleet.Events.Again(func(x history.Event) {
		if _, asked := events[x.Order]; asked {
			events[x.Order] = append(events[x.Order], x)
		}
	}); err != nil {
		return timelines, err
	}
	for _, f := range failures {
		timeline, ok := check.Explain(events[f.order], e.Ledger, check.Case{
			Order: f.order, Property: f.property, Guard: c.Guard, Fault: c.Fault, Lease: c.lease(w.cfg.TTL),
			Excludes: s.Excludes, UntilClaim: s.UntilClaim, Breaks: s.Breaks, Units: e.Units,
		})
		if ok {
			timelines[f.order] = timeline
		}
	}
	return timelines, nil
}

// keep stores a test's recorded events, and the timeline that best explains its verdict. It returns
// the timelines of all failed orders.
func (w *worker) keep(c *Cell, s lock.Strategy, m *measured, failures []failed) map[int64]check.Timeline {
	if m.accounting == nil {
		return nil
	}
	worst := worstOf(c, s, m.evidence, failures)
	refused := worst.property == lateWrite
	if refused {
		worst.property = catalog.HoldersExclusive
	}
	if worst.property != "" && !slices.Contains(failures, worst) {
		failures = append(failures, worst)
	}
	timelines, err := w.explain(c, s, m.evidence, failures)
	m.invalidate(err, "its timelines could not be created")
	if timeline, ok := timelines[worst.order]; ok && worst.property != "" {
		if refused {
			timeline.Property, timeline.Mode, timeline.Name, timeline.Cure = "", "", "", ""
		}
		c.Timeline = &timeline
	}
	m.invalidate(w.journal.keep(c.Strategy, c.Fault, &w.fleet.Events), "events could not be kept")
	return timelines
}

// worstOf selects the failed order whose timeline is shown. Two winners are worse than a stuck
// order, which is worse than two lock holders.
func worstOf(c *Cell, s lock.Strategy, e check.Evidence, failures []failed) (worst failed) {
	if c.Sale != nil && c.Fault == catalog.NoFault { // with so many drivers, no single one explains the oversell
		return worst
	}
	surprise := c.ExpectedExclusive != nil && *c.ExpectedExclusive == Yes
	switch {
	case e.LedgerErr == nil && c.DoubleGrabs != nil && *c.DoubleGrabs > 0 && len(e.Ledger) > 0:
		worst = failed{check.CountGrabs(e.Ledger, e.Units).Most, catalog.OneWinner}
	case len(e.Stuck) > 0:
		worst = failed{slices.Min(e.Stuck), catalog.StuckOrder}
	case surprise && c.Overlaps != nil && *c.Overlaps > 0:
		worst = failed{check.Overlaps(e.Record.Holds, s.Excludes)[0].First.Order, catalog.HoldersExclusive}
	default:
		for _, f := range failures {
			if e.Record != nil && e.Record.NearMisses[f.order] > 0 { // no order was won twice, but the drawing shows the refusal that prevented it
				return failed{f.order, lateWrite}
			}
		}
		return worst
	}
	for _, f := range failures {
		if f.property == worst.property {
			return f
		}
	}
	return worst
}
