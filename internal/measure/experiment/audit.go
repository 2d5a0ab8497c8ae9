package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/testbed/fleet"
)

// auditTimeout bounds what is done for a cell after its load, also when the
// run has been interrupted.
const auditTimeout = 30 * time.Second

// audit fills in what the ledger, the instances and the probes tell of the
// cell, and holds it against every property. It goes on when the run is
// interrupted: its results are kept.
func (w *worker) audit(ctx context.Context, s lock.Strategy, c *Cell, a *accounting, first int64, reasons *invalidReasons) check.Evidence {
	e := check.Evidence{
		Units: w.cfg.units(), FromAnswers: !w.ledger, Told: a.told, Unsure: a.unsure, Excludes: s.Excludes, UntilClaim: s.UntilClaim, Guard: c.Guard,
	}
	e.NoLedger = w.readLedger(context.WithoutCancel(ctx), c, a, first, &e)
	reasons.add(e.NoLedger, "the ledger could not be read")
	reasons.add(w.readEvents(c, s, &e), "events were lost")
	e.NoProbe = w.probeAll(ctx, c, a, first, &e)
	reasons.add(e.NoProbe, "stuck orders could not be counted")
	c.Checks = check.Judge(e)
	return e
}

// readLedger lets the database decide what happened; where there is none to
// ask, the answers do.
func (w *worker) readLedger(ctx context.Context, c *Cell, a *accounting, first int64, e *check.Evidence) (err error) {
	if !w.ledger {
		c.countAnswers(a)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	c.CountedFrom = fromLedger
	if e.Ledger, err = w.ledgerOf(ctx, a, first, c.Orders); err != nil {
		return err
	}
	w.countLedger(ctx, c, a, first, e)
	return nil
}

// countLedger counts in the ledger that was read.
func (w *worker) countLedger(ctx context.Context, c *Cell, a *accounting, first int64, e *check.Evidence) {
	grabs := check.CountGrabs(e.Ledger, e.Units)
	c.Grabs, c.OrdersGrabbed = &grabs.Rows, &grabs.Orders
	c.DoubleGrabs, c.OrdersDoubleGrabbed = &grabs.DoubleGrabs, &grabs.OrdersDouble
	if c.Sale != nil {
		w.readSale(ctx, c, a, first, e.Ledger)
	}
	phantom, unacknowledged := check.CompareAnswers(a.told, e.Ledger)
	c.PhantomGrabs, c.UnacknowledgedGrabs = new(len(phantom)), new(len(unacknowledged))
}

// readEvents takes over what our instances have recorded, and counts in it.
func (w *worker) readEvents(c *Cell, s lock.Strategy, e *check.Evidence) error {
	if !w.fleet.Ours {
		return nil
	}
	scan := check.Scan{Since: w.fleet.Events.Seen(), UntilClaim: s.UntilClaim}
	if err := w.fleet.ReadEvents(scan.Add); err != nil {
		return err
	}
	rec := scan.Record()
	e.Record = rec
	if rec.MissingEvents > 0 {
		return fmt.Errorf("experiment: %d are missing", rec.MissingEvents)
	}
	c.NearMisses = new(rec.CountNearMisses())
	if s.Excludes != catalog.NoExclusion {
		c.Overlaps = new(len(check.Overlaps(rec.Holds, s.Excludes)))
	}
	if gap, ok := check.BeliefGap(rec.Holds, s.Excludes); ok {
		c.BeliefGapMS = new(millis(gap))
	}
	return nil
}

// probeAll counts the stuck orders. What the instances record of the probes is
// kept, and counts in no figure, but for one that has won what was not to be had any more.
func (w *worker) probeAll(ctx context.Context, c *Cell, a *accounting, first int64, e *check.Evidence) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var (
		probed  atomic.Int64
		mu      sync.Mutex
		refused []int64
		won     []check.Pair
	)
	if e.Stuck, err = w.fleet.StuckOrders(ctx, first, c.Orders, w.lease(c), func(id int64, outcome grab.Outcome) {
		w.progress.step("probed %d of %d orders", probed.Add(1), c.Orders)
		mu.Lock()
		defer mu.Unlock()
		switch outcome {
		case grab.Taken:
			refused = append(refused, id)
		case grab.Grabbed:
			won = append(won, check.Pair{Order: id, Driver: fleet.ProbeDriver + id - first})
		}
	}); err == nil {
		limbo, failed := w.inLimbo(ctx, first, c.Orders, refused, e)
		e.Stuck, err = append(e.Stuck, limbo...), failed
	}
	if err == nil {
		c.StuckOrders = new(len(e.Stuck))
	}
	err = errors.Join(err, w.countAgain(ctx, c, a, first, won, e))
	if w.fleet.Ours {
		err = errors.Join(err, w.fleet.ReadEvents(func(history.Event) {}))
	}
	return err
}

// countAgain counts the probes that have won an order of which every unit had its winner, as
// where a winner is forgotten after a while: by the ledger, or by the answers. Of an order
// that had more winners than units the load has told all.
func (w *worker) countAgain(ctx context.Context, c *Cell, a *accounting, first int64, won []check.Pair, e *check.Evidence) error {
	had, told := check.RowsByOrder(e.Ledger), check.RowsByOrder(check.Rows(a.told))
	again := slices.DeleteFunc(won, func(p check.Pair) bool { return max(had[p.Order], told[p.Order]) != e.Units })
	if len(again) == 0 || a.unreadable {
		return nil
	}
	a.again = len(again)
	a.told = append(a.told, again...)
	e.Told = a.told
	switch {
	case !w.ledger:
		c.countAnswers(a)
		return nil
	case e.NoLedger != nil:
		return nil
	}
	rows, err := w.ledgerOf(ctx, a, first, c.Orders)
	if err != nil {
		return err
	}
	for _, g := range rows {
		if slices.Contains(again, check.Pair{Order: g.Order, Driver: g.Driver}) {
			e.Ledger = append(e.Ledger, g)
		}
	}
	w.countLedger(ctx, c, a, first, e)
	return nil
}
