package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/wait"
)

// auditTimeout is the timeout for each step of the checks after the load.
const auditTimeout = 30 * time.Second

// auditor finds out who won the orders of a load. For this, it reads the ledger and the instances'
// events, and sends a few probes.
type auditor struct {
	cfg      Config
	fleet    *fleet.Fleet
	orders   orders
	store    *order.SQL // nil if the database belongs to the user
	ledger   bool       // whether the service under test has a ledger that can be read
	progress *workerProgress
}

func (w *worker) auditor() *auditor {
	return &auditor{w.cfg, w.fleet, w.orders, w.store, w.ledger, w.progress}
}

// audit checks the outcome of the load. It reads the ledger and the recorded events, and probes
// each order once more. drained means that no request of the load is still running.
func (au *auditor) audit(ctx context.Context, s lock.Strategy, c *Cell, m *measured, first int64, drained bool, back *takeBacks) {
	a, e := m.accounting, &m.evidence
	*e = check.Evidence{
		Units: au.cfg.units(), FromAnswers: !au.ledger, Foreign: !au.fleet.Ours && !au.fleet.Known(),
		Excludes: s.Excludes, UntilClaim: s.UntilClaim, Guard: c.Guard, OrderText: au.fleet.Shape.OrderText,
	}
	var rows []order.Grab
	if au.ledger {
		rows, e.LedgerErr = au.readLedger(context.WithoutCancel(ctx), first, c.Orders)
	}
	m.invalidate(e.LedgerErr, "the ledger could not be read")
	m.invalidate(au.readEvents(c, s, e), "events were lost")
	p, err := au.probeAll(ctx, c, a, first, rows)
	e.Stuck, e.ProbeErr, a.busy = p.stuck, err, p.busy
	m.invalidate(err, "stuck orders could not be counted")
	checkWins := func(probeWithoutRow bool) {
		if au.fleet.Foreign && a.unreadable == "" && a.checkWins(p.lost, probeWithoutRow) {
			c.answers(a)
		}
	}
	checkWins(false)
	if au.ledger && e.LedgerErr == nil {
		trusted := !e.Foreign && drained
		rows, err = au.settle(ctx, c, a, first, rows, trusted)
		m.invalidate(err, "the ledger did not settle")
		if err == nil && !trusted && back == nil {
			rows, err = au.probeLater(ctx, c, first, rows, &p)
			m.invalidate(err, "whether a sold order can be won again later is not known")
		}
		if back != nil && err == nil {
			rows, err = back.settle(c, a, &p, rows)
			m.invalidate(err, "the time until rows were taken back is not known")
		}
		if err == nil {
			checkWins(p.wonWithoutRow(rows, e.Units))
			a.told = au.promises(a.told, rows)
			a.winnerless = p.withoutWinner(rows, a, *e)
			e.Stuck = append(e.Stuck, a.winnerless...)
		}
	}
	maps.DeleteFunc(a.stuck, func(id int64, _ bool) bool {
		return slices.Contains(e.Stuck, id) || slices.ContainsFunc(rows, func(g order.Grab) bool { return g.Order == id && !au.fleet.IsProbe(g.Driver) })
	})
	e.Stuck = append(e.Stuck, slices.Sorted(maps.Keys(a.stuck))...)
	if e.ProbeErr == nil || len(a.stuck) > 0 { // probes between injections found them before
		c.StuckOrders = new(len(e.Stuck))
	}
	au.count(context.WithoutCancel(ctx), c, a, first, rows, p, e)
	c.Checks = check.Judge(*e)
}

func (au *auditor) readLedger(ctx context.Context, first int64, count int) ([]order.Grab, error) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	return au.orders.Ledger(ctx, first, count)
}

// hasRows reports whether the ledger has a row for at least one of the orders. It returns false if
// the ledger cannot be read.
func (au *auditor) hasRows(ctx context.Context, first int64, count int) bool {
	if !au.ledger {
		return false
	}
	rows, err := au.readLedger(context.WithoutCancel(ctx), first, count)
	return err == nil && len(rows) > 0
}

// These limits apply after the load, while the program waits for rows that the service writes late.
const (
	minSettle    = 2 * time.Second  // the ledger must stay unchanged for this time, or for a lease if that is longer
	settleLimit  = 30 * time.Second // how much longer the program waits if the ledger keeps changing
	promisedRows = 5 * time.Second  // how long after a response its row may appear in the ledger
)

// settleFor returns how long the ledger must stay unchanged before the program counts its rows.
func (au *auditor) settleFor(c *Cell) time.Duration {
	return max(cmp.Or(au.cfg.Settle, max(c.lease(au.cfg.TTL), minSettle)), au.cfg.Target.Compensation)
}

// settleInterval returns a random pause between two ledger reads. If the pauses were regular, the reads
// could miss changes that repeat with the same period.
func settleInterval(quiet time.Duration) time.Duration {
	mean := min(max(quiet/20, 10*time.Millisecond), time.Second)
	return mean/2 + rand.N(mean)
}

// settle reads the ledger until it stops changing, because a service may write a row late, and
// returns its rows. If trusted is true, one unchanged read is enough.
func (au *auditor) settle(ctx context.Context, c *Cell, a *accounting, first int64, rows []order.Grab, trusted bool) ([]order.Grab, error) {
	began := time.Now()
	changed, quiet, limit := began, au.settleFor(c), cmp.Or(au.cfg.settleLimit, settleLimit)
	defer func() {
		if !trusted {
			c.SettleMS = new(millis(time.Since(began)))
		}
	}()
	lost := 0
	for ctx.Err() == nil {
		next, err := au.readLedger(ctx, first, c.Orders)
		if err != nil {
			return rows, err
		}
		now := time.Now()
		deleted, added := check.CompareAnswers(check.Pairs(rows), next) // drivers whose rows have disappeared, and drivers whose rows have appeared
		if trusted {
			added = slices.DeleteFunc(added, func(p check.Pair) bool { return au.fleet.IsProbe(p.Driver) })
			if len(deleted)+len(added) == 0 {
				return next, nil
			}
			trusted = false
		}
		if len(deleted)+len(added) > 0 {
			rows, changed = next, now
			lost += len(deleted)
		}
		promised, _ := check.CompareAnswers(au.promises(a.told, rows), rows)
		watched := now.Sub(began)
		switch {
		case now.Sub(changed) >= quiet && (len(promised) == 0 || watched >= promisedRows):
			if lost > 0 && !au.fleet.Ours && au.cfg.Target.Compensation == 0 {
				return rows, fmt.Errorf("%s deleted after the load, so the ledger may not name every driver who won: if the service undoes second grabs, add -compensation", catalog.Plural(lost, "row was", "rows were"))
			}
			return rows, nil
		case now.Sub(changed) < quiet && watched >= quiet+limit:
			return rows, fmt.Errorf("it still changed %v after the last grab: if the service writes late, set -settle to the longest delay", watched.Round(time.Millisecond))
		}
		au.progress.step("the ledger has not changed for %v of %v", now.Sub(changed).Round(time.Second/10), quiet)
		wait.For(ctx, settleInterval(quiet))
	}
	return rows, context.Cause(ctx)
}

// count counts the wins in the ledger or, if there is no ledger, in the responses. A probe's win
// counts only if the order had already sold out.
func (au *auditor) count(ctx context.Context, c *Cell, a *accounting, first int64, rows []order.Grab, p probes, e *check.Evidence) {
	repeated := 0
	if au.cfg.Target.Idempotent {
		once := check.Evidence{Ledger: rows}.WithoutRepeats(au.cfg.perDriver())
		rows, repeated = once, len(rows)-len(once)
	}
	a.told = au.promises(a.told, rows)
	all, loads, told := check.RowsByOrder(rows), map[int64]int{}, check.RowsByOrder(check.Rows(a.told))
	for _, g := range rows {
		if !au.fleet.IsProbe(g.Driver) {
			loads[g.Order]++
		}
	}
	probeWins := slices.DeleteFunc(p.won, func(p check.Pair) bool { return a.unreadable != "" || max(loads[p.Order], told[p.Order]) < e.Units })
	a.probeWins = len(probeWins)
	a.told = append(a.told, probeWins...)
	e.Promised, e.Unsure = a.told, a.unsure
	if !au.ledger {
		c.countAnswers(a)
		return
	}
	c.CountedFrom = fromLedger
	if e.LedgerErr != nil {
		return
	}
	e.Ledger = slices.DeleteFunc(rows, func(g order.Grab) bool {
		return au.fleet.IsProbe(g.Driver) && all[g.Order] <= e.Units && !slices.Contains(probeWins, check.Pair{Order: g.Order, Driver: g.Driver})
	})
	grabs := check.CountGrabs(e.Ledger, e.Units)
	c.Grabs, c.OrdersGrabbed = &grabs.Rows, &grabs.Orders
	c.DoubleGrabs, c.OrdersDoubleGrabbed = &grabs.DoubleGrabs, &grabs.OrdersDouble
	if e.Foreign {
		c.RepeatedRows = new(repeated + len(e.Ledger) - len(e.WithoutRepeats(au.cfg.perDriver())))
	}
	if c.Sale != nil {
		au.readSale(ctx, c, a, first, e.Ledger)
	}
	phantom, unacknowledged := check.CompareAnswers(a.told, e.Ledger)
	c.PhantomGrabs, c.UnacknowledgedGrabs = new(len(phantom)), new(len(unacknowledged))
}

// promises returns the "grabbed" responses for which the ledger must have a row. The user's service may
// send a winner the same response again. Such a repetition usually needs no row of its own. It needs
// one only if the driver may win a second unit, or if the ledger contains a second row for the driver.
func (au *auditor) promises(told []check.Pair, rows []order.Grab) []check.Pair {
	if au.fleet.Ours || au.fleet.Known() {
		return told
	}
	left := map[check.Pair]int{}
	for _, p := range check.Pairs(rows) {
		left[p]++
	}
	for _, p := range told {
		left[p] = max(left[p], au.cfg.perDriver())
	}
	return slices.DeleteFunc(slices.Clone(told), func(p check.Pair) bool {
		left[p]--
		return left[p] < 0
	})
}

// readEvents reads the events that our instances recorded. It counts how often two drivers held a
// lock at once, and how often the database refused a late write.
func (au *auditor) readEvents(c *Cell, s lock.Strategy, e *check.Evidence) error {
	if !au.fleet.Ours {
		return nil
	}
	scan := check.Scan{Since: au.fleet.Events.Seen(), UntilClaim: s.UntilClaim}
	if err := au.fleet.ReadEvents(scan.Add); err != nil {
		return err
	}
	rec := scan.Record()
	e.Record = rec
	if rec.MissingEvents > 0 {
		return fmt.Errorf("%d of the events that the instances recorded are missing: repeat the run", rec.MissingEvents)
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

// probes contains the results of the test requests after the load.
type probes struct {
	stuck   []int64      // orders whose probe got no clear response
	refused []check.Pair // orders whose probe was answered "taken", and the last driver that asked
	won     []check.Pair
	lost    bool           // whether any probe was answered "taken" or "busy"
	busy    map[int64]bool // orders for which every probe was answered "busy"
}

// probeAll probes each order with a new driver after the load. A probe may be answered "taken" although
// the ledger has no row for the order. Then probeAll probes the order again later, because the service
// may have reserved it for a limited time.
func (au *auditor) probeAll(ctx context.Context, c *Cell, a *accounting, first int64, rows []order.Grab) (p probes, err error) {
	if ctx.Err() != nil {
		return p, context.Cause(ctx)
	}
	var mu sync.Mutex
	probed := 0
	p.busy = map[int64]bool{}
	winners, told := check.RowsByOrder(rows), check.RowsByOrder(check.Rows(a.told))
	reserved := func(id int64) bool {
		return au.ledger && !au.fleet.Ours && !au.fleet.Known() && winners[id]+told[id] == 0
	}
	p.stuck, err = au.fleet.StuckOrders(ctx, first, c.Orders, c.lease(au.cfg.TTL), reserved, func(id, driver int64, outcome grab.Outcome) {
		mu.Lock()
		defer mu.Unlock()
		probed++
		au.progress.step("probed %d of %d orders", probed, c.Orders)
		p.lost = p.lost || outcome == grab.Taken || outcome == grab.Busy
		switch outcome {
		case grab.Busy:
			p.busy[id] = true
		case grab.Taken:
			p.refused = append(p.refused, check.Pair{Order: id, Driver: driver})
		case grab.Grabbed:
			p.won = append(p.won, check.Pair{Order: id, Driver: driver})
		}
	})
	return p, errors.Join(err, au.fleet.ReadEvents(func(history.Event) {}))
}

// probeLater probes one sold order again after the ledger has settled, and returns the rows. By
// then, a lease has passed since the first probes. If a key with a TTL is the service's only protection,
// the key has expired, so the service sells the order again.
func (au *auditor) probeLater(ctx context.Context, c *Cell, first int64, rows []order.Grab, p *probes) ([]order.Grab, error) {
	winners := check.RowsByOrder(rows)
	i := slices.IndexFunc(p.refused, func(r check.Pair) bool { return winners[r.Order] >= au.cfg.units() })
	if i < 0 {
		return rows, nil
	}
	again := check.Pair{Order: p.refused[i].Order, Driver: p.refused[i].Driver + int64(c.Orders)}
	within, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	won, err := au.fleet.Wins(within, again.Order, again.Driver)
	switch {
	case err != nil:
		return rows, err
	case won:
		p.won = append(p.won, again)
	}
	return au.readLedger(ctx, first, c.Orders)
}

// wonWithoutRow reports whether the service told a probe that it had won, although the ledger lists
// other winners for all units of the order.
func (p probes) wonWithoutRow(rows []order.Grab, units int) bool {
	winners, has := check.RowsByOrder(rows), check.Pairs(rows)
	return slices.ContainsFunc(p.won, func(won check.Pair) bool { return winners[won.Order] >= units && !slices.Contains(has, won) })
}

// withoutWinner returns the orders that the service reports as taken although the ledger does not
// show a winner for every unit.
func (p probes) withoutWinner(rows []order.Grab, a *accounting, e check.Evidence) []int64 {
	winners := check.RowsByOrder(rows)
	if e.Foreign {
		promised, _ := check.CompareAnswers(a.told, rows)
		for _, p := range promised {
			winners[p.Order]++
		}
	}
	var winnerless []int64
	for _, r := range p.refused {
		if winners[r.Order] < max(e.Units, 1) {
			winnerless = append(winnerless, r.Order)
		}
	}
	slices.Sort(winnerless)
	return winnerless
}
