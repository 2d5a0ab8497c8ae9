package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
)

// auditTimeout bounds what is done for a cell after its load, also when the
// run has been interrupted.
const auditTimeout = 30 * time.Second

// audit fills in what the ledger, the instances and the probes tell of the
// cell, and holds it against every property. It goes on when the run is
// interrupted: its results are kept.
func (l *lane) audit(ctx context.Context, s lock.Strategy, c *Cell, t *tally, first int64, d *doubts) {
	e := check.Evidence{
		FromAnswers: l.fleet.foreign, Told: t.told, Unsure: t.unsure, Excludes: s.Excludes, Guard: c.Guard,
	}
	e.NoLedger = l.readLedger(context.WithoutCancel(ctx), c, t, first, &e)
	d.note(e.NoLedger, "the ledger could not be read")
	d.note(l.readEvents(c, s, &e), "events were lost")
	e.NoProbe = l.probeAll(ctx, c, first, &e)
	d.note(e.NoProbe, "stuck orders could not be counted")
	for _, v := range check.All(e) {
		c.Checks = append(c.Checks, Check{v.Checker, v.Result, v.Why})
	}
	d.note(l.explain(c, s, e), "its story could not be told")
	d.note(l.record.keep(c.Strategy, c.Fault), "events could not be kept")
}

// readLedger lets the database decide what happened; where there is none to
// ask, the answers do.
func (l *lane) readLedger(ctx context.Context, c *Cell, t *tally, first int64, e *check.Evidence) (err error) {
	if l.fleet.foreign {
		c.DoubleGrabs, c.OrdersDoubleGrabbed, c.OrdersGrabbed = &t.doubles, &t.doubled, &t.won
		// Whoever got no answer may have won.
		if n := t.outcomes[grab.Timeout] + t.errors[kindReset] + t.errors[kindOther]; n > 0 {
			return fmt.Errorf("bench: there is none, and %d answers were lost", n)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	c.CountedFrom = fromLedger
	if e.Ledger, err = l.books.Ledger(ctx, first, c.Orders); err != nil {
		return err
	}
	grabs := check.CountGrabs(e.Ledger)
	c.Grabs, c.OrdersGrabbed = &grabs.Rows, &grabs.Orders
	c.DoubleGrabs, c.OrdersDoubleGrabbed = &grabs.DoubleGrabs, &grabs.OrdersDouble
	phantom, unacknowledged := check.CompareAnswers(t.told, e.Ledger)
	c.PhantomGrabs, c.UnacknowledgedGrabs = ptr(len(phantom)), ptr(len(unacknowledged))
	return nil
}

// readEvents takes over what our instances have recorded, and counts in it.
func (l *lane) readEvents(c *Cell, s lock.Strategy, e *check.Evidence) error {
	if !l.fleet.ours {
		return nil
	}
	scan := check.Scan{Since: maps.Clone(l.record.seen), UntilClaim: s.UntilClaim}
	if err := l.takeOver(scan.Add); err != nil {
		return err
	}
	rec := scan.Record()
	e.Record = rec
	if rec.Lost > 0 {
		return fmt.Errorf("bench: %d are missing", rec.Lost)
	}
	c.NearMisses = &rec.NearMisses
	if s.Excludes != lock.Nobody {
		c.Overlaps = ptr(len(check.Overlaps(rec.Holds, s.Excludes)))
	}
	if gap, ok := check.BeliefGap(rec.Holds, s.Excludes); ok {
		c.BeliefGapMS = ptr(millis(gap))
	}
	return nil
}

// takeOver reads on in the event file of every instance.
func (l *lane) takeOver(each func(history.Event)) error {
	var lost error
	for _, in := range l.fleet.instances {
		lost = errors.Join(lost, l.record.takeOver(in.events, each))
	}
	return lost
}

// probeAll counts the stuck orders. What the instances record of the probes is
// kept, and counts in no figure.
func (l *lane) probeAll(ctx context.Context, c *Cell, first int64, e *check.Evidence) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e.Stuck, err = l.stuckOrders(ctx, first, c.Orders, l.lease(c)); err == nil {
		c.StuckOrders = ptr(len(e.Stuck))
	}
	if l.fleet.ours {
		err = errors.Join(err, l.takeOver(func(history.Event) {}))
	}
	return err
}

// explain tells the story of one order of a cell that failed, as far as it was
// recorded, and draws it where two have won.
func (l *lane) explain(c *Cell, s lock.Strategy, e check.Evidence) error {
	property, id := failure(c, s, e)
	if property == "" || e.Record == nil {
		return nil
	}
	var events []history.Event
	if err := l.record.again(func(x history.Event) {
		if x.Order == id {
			events = append(events, x)
		}
	}); err != nil {
		return err
	}
	story, ok := check.Tell(events, e.Ledger, check.Case{
		Order: id, Property: property, Strategy: s, Guard: c.Guard, Fault: c.Fault, Lease: l.lease(c),
	})
	if !ok {
		return nil
	}
	c.Story = &story
	if property != oneWinner {
		return nil
	}
	story.Picture = fmt.Sprintf("%s-%s.picture.html", c.Strategy, c.Fault)
	return l.record.draw(story.Picture, e.Record, id)
}

// The properties that decide a verdict, by the names of their checkers.
const (
	oneWinner    = "one-winner"
	holdersApart = "holders-apart"
	nothingStuck = "nothing-stuck"
)

// failure is the property that the verdict will be about, and an order on which
// it was not kept; "" if there is none.
func failure(c *Cell, s lock.Strategy, e check.Evidence) (property string, id int64) {
	switch {
	case e.NoLedger == nil && c.DoubleGrabs != nil && *c.DoubleGrabs > 0:
		return oneWinner, check.CountGrabs(e.Ledger).Most
	case c.Overlaps != nil && *c.Overlaps > 0 && mustNotOverlap(s, c.Fault):
		return holdersApart, check.Overlaps(e.Record.Holds, s.Excludes)[0].First.Order
	case c.StuckOrders != nil && *c.StuckOrders > 0:
		return nothingStuck, slices.Min(e.Stuck)
	default:
		return "", 0
	}
}

// draw makes a file of the result folder that shows the grabs of one order.
func (r *record) draw(name string, rec *check.Record, id int64) error {
	f, err := os.Create(filepath.Join(r.journal.dir, name))
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return errors.Join(check.Picture(f, rec, id), f.Close())
}
