package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/load"
)

// auditTimeout bounds what is done for a cell after its load, also when the
// run has been interrupted.
const auditTimeout = 30 * time.Second

// audit fills in what the ledger, the instances and the probes tell of the
// cell, and holds it against every property. It goes on when the run is
// interrupted: its results are kept.
func (w *worker) audit(ctx context.Context, s lock.Strategy, c *Cell, a *accounting, first int64, reasons *invalidReasons) {
	e := check.Evidence{
		FromAnswers: w.fleet.Foreign, Told: a.told, Unsure: a.unsure, Excludes: s.Excludes, Guard: c.Guard,
	}
	e.NoLedger = w.readLedger(context.WithoutCancel(ctx), c, a, first, &e)
	reasons.add(e.NoLedger, "the ledger could not be read")
	reasons.add(w.readEvents(c, s, &e), "events were lost")
	e.NoProbe = w.probeAll(ctx, c, first, &e)
	reasons.add(e.NoProbe, "stuck orders could not be counted")
	c.Checks = check.Judge(e)
	reasons.add(w.explain(c, s, e), "its timeline could not be made")
	reasons.add(w.journal.keep(c.Strategy, c.Fault, &w.fleet.Events), "events could not be kept")
}

// readLedger lets the database decide what happened; where there is none to
// ask, the answers do.
func (w *worker) readLedger(ctx context.Context, c *Cell, a *accounting, first int64, e *check.Evidence) (err error) {
	if w.fleet.Foreign {
		promised := check.CountGrabs(check.Rows(a.told))
		c.DoubleGrabs, c.OrdersDoubleGrabbed, c.OrdersGrabbed = &promised.DoubleGrabs, &promised.OrdersDouble, &promised.Orders
		// A driver without an answer may have won.
		if n := a.outcomes[grab.Timeout] + a.errors[load.Reset] + a.errors[load.Other]; n > 0 {
			return fmt.Errorf("experiment: there is none, and %d answers were lost", n)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	c.CountedFrom = fromLedger
	if e.Ledger, err = w.orders.Ledger(ctx, first, c.Orders); err != nil {
		return err
	}
	grabs := check.CountGrabs(e.Ledger)
	c.Grabs, c.OrdersGrabbed = &grabs.Rows, &grabs.Orders
	c.DoubleGrabs, c.OrdersDoubleGrabbed = &grabs.DoubleGrabs, &grabs.OrdersDouble
	phantom, unacknowledged := check.CompareAnswers(a.told, e.Ledger)
	c.PhantomGrabs, c.UnacknowledgedGrabs = new(len(phantom)), new(len(unacknowledged))
	return nil
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
	if rec.Lost > 0 {
		return fmt.Errorf("experiment: %d are missing", rec.Lost)
	}
	c.NearMisses = &rec.NearMisses
	if s.Excludes != catalog.NoExclusion {
		c.Overlaps = new(len(check.Overlaps(rec.Holds, s.Excludes)))
	}
	if gap, ok := check.BeliefGap(rec.Holds, s.Excludes); ok {
		c.BeliefGapMS = new(millis(gap))
	}
	return nil
}

// probeAll counts the stuck orders. What the instances record of the probes is
// kept, and counts in no figure.
func (w *worker) probeAll(ctx context.Context, c *Cell, first int64, e *check.Evidence) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var probed atomic.Int64
	if e.Stuck, err = w.fleet.StuckOrders(ctx, first, c.Orders, w.lease(c), func() {
		w.progress.step("probed %d of %d orders", probed.Add(1), c.Orders)
	}); err == nil {
		c.StuckOrders = new(len(e.Stuck))
	}
	if w.fleet.Ours {
		err = errors.Join(err, w.fleet.ReadEvents(func(history.Event) {}))
	}
	return err
}

// explain makes the timeline of one order of a cell that failed, as far as it was
// recorded, and draws it where two have won.
func (w *worker) explain(c *Cell, s lock.Strategy, e check.Evidence) error {
	property, id := failure(c, s, e)
	if property == "" || e.Record == nil {
		return nil
	}
	var events []history.Event
	if err := w.fleet.Events.Again(func(x history.Event) {
		if x.Order == id {
			events = append(events, x)
		}
	}); err != nil {
		return err
	}
	timeline, ok := check.Explain(events, e.Ledger, check.Case{
		Order: id, Property: property, Guard: c.Guard, Fault: c.Fault, Lease: w.lease(c),
		Excludes: s.Excludes, UntilClaim: s.UntilClaim, Breaks: s.Breaks,
	})
	if !ok {
		return nil
	}
	c.Timeline = &timeline
	if property != catalog.OneWinner {
		return nil
	}
	timeline.Picture = fmt.Sprintf("%s-%s.picture.html", c.Strategy, c.Fault)
	return w.journal.draw(timeline.Picture, e.Record, id)
}

// failure is the property that the verdict will be about, and an order on which
// it was not kept; "" if there is none.
func failure(c *Cell, s lock.Strategy, e check.Evidence) (property string, id int64) {
	switch {
	case e.NoLedger == nil && c.DoubleGrabs != nil && *c.DoubleGrabs > 0:
		return catalog.OneWinner, check.CountGrabs(e.Ledger).Most
	case c.Overlaps != nil && *c.Overlaps > 0 && mustNotOverlap(s, c.Fault):
		return catalog.HoldersExclusive, check.Overlaps(e.Record.Holds, s.Excludes)[0].First.Order
	case c.StuckOrders != nil && *c.StuckOrders > 0:
		return catalog.StuckOrder, slices.Min(e.Stuck)
	default:
		return "", 0
	}
}

// draw makes a file of the result folder that shows the grabs of one order.
func (j *journal) draw(name string, rec *check.Record, id int64) error {
	f, err := os.Create(filepath.Join(j.dir, name))
	if err != nil {
		return fmt.Errorf("experiment: %w", err)
	}
	return errors.Join(check.Picture(f, rec, id), f.Close())
}
