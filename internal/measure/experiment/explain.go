package experiment

import (
	"cmp"
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
)

// lateWrite marks an order in which no property failed, but only because the database refused a write
// that came after the driver's lease had ended.
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

func (in *injection) judgePoints(m *measured) {
	if m.accounting == nil {
		return
	}
	var failures []failed
	for _, c := range in.contests {
		if f := failureOf(c.order, in.strategy, m.evidence); f.property != "" {
			failures = append(failures, f)
		}
	}
	timelines := in.w.keep(in.cell, in.strategy, m, failures)
	grabbed, _, _ := in.cell.phrases()
	for _, c := range in.undisturbed {
		if m.evidence.LedgerErr == nil && !m.evidence.FromAnswers && unsoldOf(m.evidence, c.order) > 0 {
			m.invalid = cmp.Or(m.invalid, "an order that no fault hit was not "+grabbed)
		}
	}
	m.missed = in.whyMissed()
	doubled := catalog.Filter(slices.Concat(in.contests, in.undisturbed), func(c *contest) bool { return doubleGrabs(m.evidence, c.order) > 0 })
	onlyIn := func(v variation) bool {
		return !slices.ContainsFunc(doubled, func(c *contest) bool { return c.variation != v })
	}
	switch { // if the lock fails in only one kind of injection, say which
	case len(doubled) == 0:
	case onlyIn(inOutage):
		m.note += "; one driver was stopped in its work while Redis could not be reached, and another driver won meanwhile: if Redis fails, a grab must fail too"
	case onlyIn(worksLong):
		m.note += fmt.Sprintf("; the database restarted while one driver was at work, and another driver won. After work of %v, the first one wrote through a new connection: keep the lock and the write on the same connection, or let the write check that the order is still open", longWork)
	case onlyIn(otherRestarts):
		running, restarted := in.other, in.struck
		if doubled[0].affected.Target == in.struck.URL {
			running, restarted = restarted, running
		}
		m.note += fmt.Sprintf("; one driver was stopped at %s while %s was killed and restarted, and another driver won meanwhile: start-up code must not delete locks or reopen orders that other instances use", running.Name(), restarted.Name())
	}
	for _, p := range in.points {
		in.cell.Points = append(in.cell.Points, in.row(p, m.evidence, timelines))
	}
}

// whyMissed explains why the fault could not be tested, as a suffix for the reason of the cell's
// verdict. It returns "" if the cause is unknown.
func (in *injection) whyMissed() string {
	for _, c := range in.contests {
		switch {
		case c.struck || c.repeated || c.missed == "":
		case in.trail.callsAfterAnswer > 0: // a worker of another instance may have done the work
			return ". " + catalog.Capital(c.missed) + ". " + ownQueue
		case c.forwarded:
			return ". " + catalog.Capital(c.missed) + ", and its instance wrote nothing. " + oneLeads
		default:
			return ". " + catalog.Capital(c.missed)
		}
	}
	return ""
}

// overwritten names a driver that the ledger of the user's service showed during the test, but no
// longer shows at the end. It returns "" if there is none, or if the service may undo wins.
func (in *injection) overwritten(e check.Evidence) string {
	if in.w.fleet.Ours || in.w.cfg.Target.Compensation > 0 || e.LedgerErr != nil {
		return ""
	}
	gone, _ := check.CompareAnswers(in.shown, e.Ledger)
	if len(gone) == 0 {
		return ""
	}
	id := gone[0].Order
	text := fmt.Sprintf("the ledger first named driver %d for order %s and later ", gone[0].Driver, in.w.fleet.Shape.OrderText(id))
	i := slices.IndexFunc(e.Ledger, func(g order.Grab) bool { return g.Order == id })
	if i < 0 {
		return text + "no driver, so it may not name every driver who won: if the service undoes grabs, add -compensation"
	}
	return text + fmt.Sprintf("only driver %d: it may keep only the last winner. Let the service add a row for each winner, and read these rows with -ledger-query. If the service deletes the row of a second grab, add -compensation", e.Ledger[i].Driver)
}

// outlived explains that the lock may live longer than the lease, because no other driver got past it while the fault
// delayed a driver beyond its lease. It returns "" if one did, or if the lock lasts as long as a database session, or never
// expires. It also returns "" if the service may have renewed the lock during the fault, or if an open transaction or the
// fault itself may have blocked the others' writes.
func (in *injection) outlived() string {
	t := in.trail
	switch {
	case t.service == nil:
		return in.outlivedMoments()
	case !in.outlasts(), in.w.cfg.Target.NoExpiry, t.locksSession(),
		!in.fault.Freezes && (t.renews || t.worksInTransaction()),
		in.fault.LocksLedger && !slices.ContainsFunc(t.calls[fault.Alone], t.onlyHolders):
		return ""
	}
	stopped := catalog.Filter(in.contests, func(c *contest) bool {
		accepts := in.fault.RepliesAfter == 0 || !c.endedInTime // a client that has given up accepts no delayed reply
		return c.struck && in.holdsLock(c.point) && accepts
	})
	if len(stopped) == 0 || slices.ContainsFunc(stopped, func(c *contest) bool { return c.passed || t.refusesForever(c.tries) }) {
		return ""
	}
	return in.noOnePassed() + ", or pass {ttl_ms} to the service as its lock TTL. If it never expires, add no-expiry: true"
}

func (in *injection) noOnePassed() string {
	return fmt.Sprintf("no other driver got past the lock while a driver was stopped, so the lock may live longer than the lease of %v: set lease to its lifetime", in.lease())
}

// outlivedMoments is like outlived, but for processes that the program stops at certain moments of a grab. Their calls
// are unknown, so each moment at which no other driver got past the lock is in doubt, unless another moment shows that
// the lock expires in time.
func (in *injection) outlivedMoments() string {
	if !slices.ContainsFunc(in.contests, in.inDoubt) {
		return ""
	}
	text := in.noOnePassed() + ". If it never expires, add -no-expiry"
	if !in.w.ledger {
		text += ". If another driver may already have won at that moment, add -ledger-query, which shows this"
	}
	return text
}

// inDoubt reports whether a contest with running targets shows nothing, because their lock may have lived longer than the
// fault, and so may have refused all other drivers.
func (in *injection) inDoubt(c *contest) bool {
	if !in.w.cfg.byTime() || in.w.fleet.Known() || in.w.cfg.Target.NoExpiry || !in.outlasts() || !c.struck || c.passed || c.endedInTime || in.wasSold(c) {
		return false
	}
	return !slices.ContainsFunc(in.contests, in.expired)
}

// wasSold reports whether the responses show, without a ledger, that a contender found the order taken before the fault
// ended. This is only so if the service answers differently when the lock is held.
func (in *injection) wasSold(c *contest) bool {
	return !in.w.ledger && c.foundSold &&
		slices.ContainsFunc(in.contests, func(o *contest) bool { return in.anyHears(o.contenders, grab.Busy) })
}

// anyHears reports whether one of the requests has been answered with this outcome.
func (in *injection) anyHears(requests []load.Request, o grab.Outcome) bool {
	return slices.ContainsFunc(requests, func(r load.Request) bool { a, _ := in.responses.of(r); return a.outcome == o })
}

// expired reports whether a contender won during the fault, but not at once. The stopped driver's lock must then have
// expired in between.
func (in *injection) expired(c *contest) bool {
	return c.struck && c.passed && slices.ContainsFunc(c.contenders, func(r load.Request) bool {
		a, _ := in.responses.of(r)
		return a.outcome == grab.Grabbed && a.ended.Sub(c.contendedSince) > in.took+in.lease()/2
	})
}

// neverExpires reports whether the lock of a user's service lasts as long as its driver is stopped: the user says so, or a
// database session holds the lock, and no Redis key with a TTL is part of it.
func (in *injection) neverExpires() bool {
	t := in.trail.service
	return in.w.cfg.Target.NoExpiry || t != nil && !t.leased && in.trail.locksSession()
}

// holdsLock reports whether the driver of a user's service has its lock at this point, but has not written yet. This is
// also true before an acquire whose reply the fault delays, because the server grants the lock before the reply.
func (in *injection) holdsLock(p fault.Point) bool {
	return p.InWork() || in.fault.RepliesAfter > 0 && slices.ContainsFunc(in.trail.calls[fault.Alone], func(c control.Call) bool {
		return c.IsAt(p.Point) && acquiresKey(c)
	})
}

// modeOf returns the ID of the known failure mode that fits an order, or "" if none fits. Without a
// timeline, it infers the failure mode from the fault. For a service whose grabs create no Redis key
// with a TTL, it ignores failure modes in which a lease expires.
func (in *injection) modeOf(c *contest, e check.Evidence, timelines map[int64]check.Timeline) string {
	if mode := timelines[c.order].Mode; mode != "" {
		return mode
	}
	shows := in.fault.Name.Shows() | in.cell.Guard.Shows()
	if t := in.trail.service; t != nil && !t.leased {
		shows &^= catalog.LeaseEnded
	}
	mode, _ := catalog.ModeOf(failureOf(c.order, in.strategy, e).property, shows, in.strategy.Breaks)
	return mode.ID
}

// row judges a point from its contests.
func (in *injection) row(at fault.Point, e check.Evidence, timelines map[int64]check.Timeline) Point {
	p := Point{Point: at.String(), Strikes: max(1, len(in.prepared.Strikes))} // at least one, even if the test was interrupted before the first injection
	var double, repeated, left, stuck, overlaps, misses int
	competed := !in.holdsLock(at) || in.outlived() == ""
	var missing []check.Pair // grabs that the user's service has promised, but not written
	if e.Foreign && !e.FromAnswers {
		missing, _ = check.CompareAnswers(e.Promised, e.Ledger)
	}
	for _, c := range in.contests {
		if c.point != at {
			continue
		}
		if c.variation != usual && !c.repeated {
			p.Strikes++
		}
		if c.struck {
			p.Struck++
		}
		n := doubleGrabs(e, c.order)
		double += n
		if onlyRepeats(e, c.order) {
			repeated += n
		}
		left += unsoldOf(e, c.order)
		overlaps += len(overlapsOf(e, in.strategy, c.order))
		if slices.Contains(e.Stuck, c.order) {
			stuck++
		}
		if e.Record != nil {
			misses += e.Record.NearMisses[c.order]
		}
		competed = competed && !slices.ContainsFunc(missing, func(p check.Pair) bool { return p.Order == c.order }) && !mayHideWinner(e, c.order)
		competed = competed && !in.inDoubt(c) && (c.repeated || c.variation == inOutage || in.competed(c)) // during an outage, a grab may fail
		if harm := failureOf(c.order, in.strategy, e).property; harm == catalog.OneWinner || harm == catalog.StuckOrder {
			p.FailureMode = cmp.Or(p.FailureMode, in.modeOf(c, e, timelines))
		}
	}
	if e.LedgerErr == nil || double > 0 {
		p.DoubleGrabs = &double
		if in.w.cfg.units() > 1 {
			p.Unsold = &left
		}
	}
	if e.ProbeErr == nil || stuck > 0 { // probes between injections may have found the order stuck before
		p.StuckOrders = &stuck
	}
	if e.Record != nil {
		p.NearMisses = &misses
		if in.strategy.Excludes != catalog.NoExclusion {
			p.Overlaps = &overlaps
		}
	}
	switch {
	case double > repeated:
		p.Verdict = catalog.Unsafe
	case stuck > 0:
		p.Verdict = catalog.Stuck
	case struckTooRarely(p) || !competed || repeated > 0 || p.DoubleGrabs == nil || p.StuckOrders == nil || value(p.Unsold) > 0:
		p.Verdict = catalog.Unknown
	default:
		p.Verdict = catalog.Safe
	}
	return p
}

// mayHideWinner reports whether an order that is counted from the responses may have another winner,
// whose response was lost.
func mayHideWinner(e check.Evidence, id int64) bool {
	of := func(p check.Pair) bool { return p.Order == id }
	unsure := len(catalog.Filter(e.Unsure, of))
	return e.FromAnswers && unsure > 0 && len(catalog.Filter(e.Promised, of))+unsure > max(e.Units, 1)
}
