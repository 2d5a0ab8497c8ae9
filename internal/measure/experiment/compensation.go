package experiment

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"grablab/internal/check"
	"grablab/internal/order"
	"grablab/internal/testbed/wait"
)

// takeBacks watches the ledger of a service that may undo a second win within a time limit. Because
// it can only poll the ledger, it knows just a lower and an upper bound on how long such a win
// lasted.
type takeBacks struct {
	within    time.Duration
	interval  time.Duration // between two reads
	units     int
	perDriver int // maximum number of rows that count per driver; 0 counts all

	clean time.Time                  // when the last read began
	seen  map[check.Pair]bool        // every row that any read has found
	over  map[int64]overbooking      // orders that now have too many rows
	ended map[int64][2]time.Duration // orders that had too many rows for a while, with the shortest and longest possible duration

	stop     context.CancelFunc
	watching sync.WaitGroup
	failed   error // error of the last read
}

// overbooking records when an order had more ledger rows than units. before is the last read
// without an extra row, first is the first read with one, and last is the most recent one.
type overbooking struct{ before, first, last time.Time }

// watchTakeBacks starts to watch the ledger of the given orders. It returns nil if the service may
// not undo wins.
func (au *auditor) watchTakeBacks(ctx context.Context, first int64, count int) *takeBacks {
	within := au.cfg.Target.Compensation
	if within == 0 {
		return nil
	}
	t := &takeBacks{
		within: within, interval: min(max(within/20, 10*time.Millisecond), 250*time.Millisecond), units: au.cfg.units(), clean: time.Now(),
		seen: map[check.Pair]bool{}, over: map[int64]overbooking{}, ended: map[int64][2]time.Duration{},
	}
	if au.cfg.Target.Idempotent {
		t.perDriver = au.cfg.perDriver()
	}
	ctx = context.WithoutCancel(ctx)
	watch, stop := context.WithCancel(ctx)
	t.stop = stop
	t.watching.Go(func() {
		for watch.Err() == nil {
			asked := time.Now()
			var rows []order.Grab
			if rows, t.failed = au.readLedger(ctx, first, count); t.failed == nil { // if a fault prevents this read, the bounds only get wider
				t.note(asked, time.Now(), rows)
			}
			wait.For(watch, t.interval)
		}
	})
	return t
}

// end stops watching. t may be nil.
func (t *takeBacks) end() {
	if t != nil {
		t.stop()
		t.watching.Wait()
	}
}

// note processes the rows of one ledger query, which was sent at asked and answered at answered.
func (t *takeBacks) note(asked, answered time.Time, rows []order.Grab) {
	for _, g := range rows {
		t.seen[check.Pair{Order: g.Order, Driver: g.Driver}] = true
	}
	if t.perDriver > 0 {
		rows = check.Evidence{Ledger: rows}.WithoutRepeats(t.perDriver)
	}
	byOrder := check.RowsByOrder(rows)
	for id, n := range byOrder {
		if n <= max(t.units, 1) {
			continue
		}
		o, ok := t.over[id]
		if !ok {
			o = overbooking{before: t.clean, first: answered}
		}
		o.last = asked
		t.over[id] = o
	}
	for id, o := range t.over {
		if byOrder[id] > max(t.units, 1) {
			continue
		}
		delete(t.over, id)
		was := t.ended[id]
		t.ended[id] = [2]time.Duration{max(was[0], o.last.Sub(o.first)), max(was[1], answered.Sub(o.before))}
	}
	t.clean = asked
}

// settle stops watching and returns the rows that count, including wins that the service undid too
// late. If the service undid a win in time, the response that announced it no longer counts. settle
// returns an error if it cannot tell whether a win was undone in time, or if an announced winner's row
// never appeared.
func (t *takeBacks) settle(c *Cell, a *accounting, p *probes, rows []order.Grab) ([]order.Grab, error) {
	t.end()
	if t.failed != nil {
		return rows, t.failed
	}
	left := map[check.Pair]bool{}
	for _, g := range rows {
		left[check.Pair{Order: g.Order, Driver: g.Driver}] = true
	}
	c.CompensatedOrders = new(0)
	var err error
	late := map[int64]bool{}
	for id, lasted := range t.ended {
		switch {
		case lasted[0] > t.within:
			late[id] = true
			continue
		case lasted[1] > t.within:
			err = fmt.Errorf("order %s had too many winners for %v to %v, and the ledger could not be read often enough to be more exact: use a longer -compensation", a.shape.OrderText(id), lasted[0].Round(time.Millisecond), lasted[1].Round(time.Millisecond))
		}
		*c.CompensatedOrders++
		c.LongestCompensationMS = larger(c.LongestCompensationMS, new(millis(lasted[1])))
	}
	won := map[int64]bool{}
	for p := range t.seen {
		won[p.Order] = true
		if late[p.Order] && !left[p] {
			rows = append(rows, order.Grab{Order: p.Order, Driver: p.Driver})
		}
	}
	undone := func(p check.Pair) bool {
		if !won[p.Order] || left[p] || late[p.Order] {
			return false
		}
		if !t.seen[p] {
			err = fmt.Errorf("driver %d was told that it had won order %s, but the ledger never showed its row: the service may have deleted the row between two reads. "+
				"Keep each row for at least %v, which is twice the read interval, before you take it back. Or mark it instead of deleting it", p.Driver, a.shape.OrderText(p.Order), 2*t.interval)
		}
		return true
	}
	a.told, p.won = slices.DeleteFunc(a.told, undone), slices.DeleteFunc(p.won, undone)
	return rows, err
}
