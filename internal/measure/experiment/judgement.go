package experiment

import (
	"cmp"
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
)

// judgement decides the verdicts at the points of a test whose injections have ended.
type judgement struct {
	in        *injection
	evidence  check.Evidence
	timelines map[int64]check.Timeline // of the failed orders, by order
}

// judge sets the verdict of each point. It adds to m what the points tell about the whole test.
func (j judgement) judge(m *measured) {
	if m.accounting == nil {
		return
	}
	var failures []failed
	for _, c := range j.in.contests {
		if f := failureOf(c.order, j.in.strategy, j.evidence); f.property != "" {
			failures = append(failures, f)
		}
	}
	j.timelines = j.in.w.keep(j.in.cell, j.in.strategy, m, failures)
	grabbed, _, _ := j.in.cell.phrases()
	for _, c := range j.in.undisturbed {
		if j.evidence.LedgerErr == nil && !j.evidence.FromAnswers && unsoldOf(j.evidence, c.order) > 0 {
			m.invalid = cmp.Or(m.invalid, "an order that no fault hit was not "+grabbed)
		}
	}
	m.missed, m.advice = j.whyMissed(), j.howToCompete()
	m.note += j.onlyVariation()
	for _, p := range j.in.points {
		j.in.cell.Points = append(j.in.cell.Points, j.row(p))
	}
}

// onlyVariation explains the failure if the lock fails in only one variation. Otherwise, it returns "".
func (j judgement) onlyVariation() string {
	doubled := catalog.Filter(slices.Concat(j.in.contests, j.in.undisturbed), func(c *contest) bool { return doubleGrabs(j.evidence, c.order) > 0 })
	onlyIn := func(v variation) bool {
		return !slices.ContainsFunc(doubled, func(c *contest) bool { return c.variation != v })
	}
	switch {
	case len(doubled) == 0:
	case onlyIn(inOutage):
		return "; one driver was stopped in its work while Redis could not be reached, and another driver won meanwhile: if Redis fails, a grab must fail too"
	case onlyIn(worksLong):
		return fmt.Sprintf("; the database restarted while one driver was at work, and another driver won. After work of %v, the first one wrote through a new connection: keep the lock and the write on the same connection, or let the write check that the order is still open", longWork)
	case onlyIn(otherRestarts):
		running, restarted := j.in.other, j.in.struck
		if doubled[0].affected.Target == j.in.struck.URL {
			running, restarted = restarted, running
		}
		return fmt.Sprintf("; one driver was stopped at %s while %s was killed and restarted, and another driver won meanwhile: start-up code must not delete locks or reopen orders that other instances use", running.Name(), restarted.Name())
	}
	return ""
}

// whyMissed explains why the fault could not be tested, as a suffix for the reason of the cell's
// verdict. It returns "" if the cause is unknown.
func (j judgement) whyMissed() string {
	for _, c := range j.in.contests {
		switch {
		case c.struck || c.repeated || c.missed == "":
		case j.in.trail.callsAfterAnswer > 0: // a worker of another instance may have done the work
			return ". " + catalog.Capital(c.missed) + ". " + ownQueue
		case c.forwarded:
			return ". " + catalog.Capital(c.missed) + ", and its instance wrote nothing. " + oneLeads
		default:
			return ". " + catalog.Capital(c.missed)
		}
	}
	return ""
}

// howToCompete says what to do if too few drivers of a user's service competed, as a suffix for the reason of the cell's
// verdict.
func (j judgement) howToCompete() string {
	switch {
	case j.in.trail.service == nil, j.in.w.cfg.Target.NoExpiry, !j.in.outlasts():
		return ""
	case j.in.w.cfg.setsTTL():
		return ". Test this fault by itself with a longer -ttl, so that drivers have more time"
	default:
		return ". Set lease to the lock's lifetime, or pass {ttl_ms} to the service as its lock TTL"
	}
}

// overwritten names a driver that the ledger of the user's service showed during the test, but no
// longer shows at the end. It returns "" if there is none, or if the service may undo wins.
func (j judgement) overwritten() string {
	e := j.evidence
	if j.in.w.fleet.Ours || j.in.w.cfg.Target.Compensation > 0 || e.LedgerErr != nil {
		return ""
	}
	gone, _ := check.CompareAnswers(j.in.shown, e.Ledger)
	if len(gone) == 0 {
		return ""
	}
	id := gone[0].Order
	text := fmt.Sprintf("the ledger first named driver %d for order %s and later ", gone[0].Driver, j.in.w.fleet.Shape.OrderText(id))
	i := slices.IndexFunc(e.Ledger, func(g order.Grab) bool { return g.Order == id })
	if i < 0 {
		return text + "no driver, so it may not name every driver who won: if the service undoes grabs, add -compensation"
	}
	return text + fmt.Sprintf("only driver %d: it may keep only the last winner. Let the service add a row for each winner, and read these rows with -ledger-query. If the service deletes the row of a second grab, add -compensation", e.Ledger[i].Driver)
}

// outlived explains that the lock may live longer than the lease. This is possible if the fault delayed a driver
// beyond its lease, and no other driver got past the lock. outlived returns "" in these cases:
//
//   - Another driver got past the lock.
//   - The lock lasts as long as a database session, or never expires.
//   - The service may have renewed the lock during the fault.
//   - An open transaction, or the fault itself, may have blocked the writes of the other drivers.
func (j judgement) outlived() string {
	t := j.in.trail
	switch {
	case t.service == nil:
		return j.outlivedMoments()
	case !j.in.outlasts(), j.in.w.cfg.Target.NoExpiry, t.locksSession(),
		!j.in.fault.Freezes && (t.renews || t.worksInTransaction()),
		j.in.fault.LocksLedger && !slices.ContainsFunc(t.calls[fault.Alone], t.onlyHolders):
		return ""
	}
	stopped := catalog.Filter(j.in.contests, func(c *contest) bool {
		accepts := j.in.fault.RepliesAfter == 0 || !c.endedInTime // a client that has given up accepts no delayed reply
		return c.struck && j.holdsLock(c.point) && accepts
	})
	if len(stopped) == 0 || slices.ContainsFunc(stopped, func(c *contest) bool { return c.passed || t.refusesForever(c.tries) }) {
		return ""
	}
	return j.noOnePassed() + ", or pass {ttl_ms} to the service as its lock TTL. If it never expires, add no-expiry: true"
}

func (j judgement) noOnePassed() string {
	return fmt.Sprintf("no other driver got past the lock while a driver was stopped, so the lock may live longer than the lease of %v: set lease to its lifetime", j.in.lease())
}

// outlivedMoments is like outlived, but for processes that the program stops at certain moments of a grab. Their calls
// are unknown. A moment therefore proves nothing if no other driver got past the lock, unless another moment shows that
// the lock expires in time.
func (j judgement) outlivedMoments() string {
	if !slices.ContainsFunc(j.in.contests, j.inDoubt) {
		return ""
	}
	text := j.noOnePassed() + ". If it never expires, add -no-expiry"
	if !j.in.w.ledger {
		text += ". If another driver may already have won at that moment, add -ledger-query, which shows this"
	}
	return text
}

// inDoubt reports whether a contest with running targets shows nothing. This is so if their lock may have lived longer
// than the fault, because it may then have refused all other drivers.
func (j judgement) inDoubt(c *contest) bool {
	if !j.in.w.cfg.byTime() || j.in.w.fleet.Known() || j.in.w.cfg.Target.NoExpiry || !j.in.outlasts() || !c.struck || c.passed || c.endedInTime || j.wasSold(c) {
		return false
	}
	return !slices.ContainsFunc(j.in.contests, j.expired)
}

// wasSold reports whether the responses show, without a ledger, that a contender found the order taken before the fault
// ended. This is only so if the service answers differently when the lock is held.
func (j judgement) wasSold(c *contest) bool {
	return !j.in.w.ledger && c.foundSold &&
		slices.ContainsFunc(j.in.contests, func(o *contest) bool { return j.in.responses.anyHears(o.contenders, grab.Busy) })
}

// expired reports whether a contender won during the fault, but not at once. The stopped driver's lock must then have
// expired in between.
func (j judgement) expired(c *contest) bool {
	return c.struck && c.passed && slices.ContainsFunc(c.contenders, func(r load.Request) bool {
		a, _ := j.in.responses.of(r)
		return a.outcome == grab.Grabbed && a.ended.Sub(c.contendedSince) > j.in.took+j.in.lease()/2
	})
}

// holdsLock reports whether the driver of a user's service has its lock at this point, but has not written yet. This is
// also true before an acquire whose reply the fault delays, because the server grants the lock before the reply.
func (j judgement) holdsLock(p fault.Point) bool {
	return p.InWork() || j.in.fault.RepliesAfter > 0 && slices.ContainsFunc(j.in.trail.calls[fault.Alone], func(c control.Call) bool {
		return c.IsAt(p.Point) && acquiresKey(c)
	})
}

// modeOf returns the ID of the known failure mode that fits an order, or "" if none fits. Without a
// timeline, it infers the failure mode from the fault. For a service whose grabs create no Redis key
// with a TTL, it ignores failure modes in which a lease expires.
func (j judgement) modeOf(c *contest) string {
	if mode := j.timelines[c.order].Mode; mode != "" {
		return mode
	}
	shows := j.in.fault.Name.Shows() | j.in.cell.Guard.Shows()
	if t := j.in.trail.service; t != nil && !t.leased {
		shows &^= catalog.LeaseEnded
	}
	mode, _ := catalog.ModeOf(failureOf(c.order, j.in.strategy, j.evidence).property, shows, j.in.strategy.Breaks)
	return mode.ID
}

// row judges a point from its contests.
func (j judgement) row(at fault.Point) Point {
	e := j.evidence
	p := Point{Point: at.String(), Strikes: max(1, len(j.in.prepared.Strikes))} // at least one, even if the test was interrupted before the first injection
	contests := catalog.Filter(j.in.contests, func(c *contest) bool { return c.point == at })
	var double, repeated, left, stuck, overlaps, misses int
	for _, c := range contests {
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
		overlaps += len(overlapsOf(e, j.in.strategy, c.order))
		if slices.Contains(e.Stuck, c.order) {
			stuck++
		}
		if e.Record != nil {
			misses += e.Record.NearMisses[c.order]
		}
		if harm := failureOf(c.order, j.in.strategy, e).property; harm == catalog.OneWinner || harm == catalog.StuckOrder {
			p.FailureMode = cmp.Or(p.FailureMode, j.modeOf(c))
		}
	}
	if e.LedgerErr == nil || double > 0 {
		p.DoubleGrabs = &double
		if j.in.w.cfg.units() > 1 {
			p.Unsold = &left
		}
	}
	if e.ProbeErr == nil || stuck > 0 { // probes between injections may have found the order stuck before
		p.StuckOrders = &stuck
	}
	if e.Record != nil {
		p.NearMisses = &misses
		if j.in.strategy.Excludes != catalog.NoExclusion {
			p.Overlaps = &overlaps
		}
	}
	switch {
	case double > repeated:
		p.Verdict = catalog.Unsafe
	case stuck > 0:
		p.Verdict = catalog.Stuck
	case struckTooRarely(p) || !j.couldFail(at, contests) || repeated > 0 || p.DoubleGrabs == nil || p.StuckOrders == nil || value(p.Unsold) > 0:
		p.Verdict = catalog.Unknown
	default:
		p.Verdict = catalog.Safe
	}
	return p
}

// couldFail reports whether the contests at a point could have shown a failure. For this, enough drivers must have
// competed in each of them, and the evidence must show each winner.
func (j judgement) couldFail(at fault.Point, contests []*contest) bool {
	e := j.evidence
	var missing []check.Pair // grabs that the user's service has promised, but not written
	if e.Foreign && !e.FromAnswers {
		missing, _ = check.CompareAnswers(e.Promised, e.Ledger)
	}
	return (!j.holdsLock(at) || j.outlived() == "") && every(contests, func(c *contest) bool {
		isMissing := slices.ContainsFunc(missing, func(p check.Pair) bool { return p.Order == c.order })
		return !isMissing && !mayHideWinner(e, c.order) && !j.inDoubt(c) &&
			(c.repeated || c.variation == inOutage || j.competed(c)) // during an outage, a grab may fail
	})
}

// mayHideWinner reports whether an order that is counted from the responses may have another winner,
// whose response was lost.
func mayHideWinner(e check.Evidence, id int64) bool {
	of := func(p check.Pair) bool { return p.Order == id }
	unsure := len(catalog.Filter(e.Unsure, of))
	return e.FromAnswers && unsure > 0 && len(catalog.Filter(e.Promised, of))+unsure > max(e.Units, 1)
}
