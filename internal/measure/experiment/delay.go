package experiment

import (
	"context"
	"errors"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
)

// window records what other drivers did between the end of the affected driver's lease and its delayed reply. Only
// these drivers show whether a user's service accepts a reply that comes too late.
type window struct {
	opened   bool      // whether the lease has ended before the reply
	closedAt time.Time // when the program ended the delay; zero if it did not
	asked    int       // how many calls for the lock they had made when the window opened
	sent     bool      // whether a fresh driver was sent into the window
	tried    bool      // whether enough of them, to sell all units, asked for the lock
	passed   bool      // whether so many of them got past the lock
	sold     bool      // whether so many of them may have written, so that the affected driver finds the order taken
}

// delaysReplies reports whether the fault delays replies to a user's service.
func (in *injection) delaysReplies() bool { return in.fault.RepliesAfter > 0 && in.traits.reconnects }

// delayOfReply returns how long the fault delays a reply.
func (in *injection) delayOfReply() time.Duration { return in.leases(in.fault.RepliesAfter) }

func (in *injection) leases(n float64) time.Duration {
	return time.Duration(n * float64(in.lease()))
}

// mayExpire reports whether the lock of a user's service may expire while a reply at this point is delayed. A service
// renews its lock only once it has the reply that grants it.
func (in *injection) mayExpire(p fault.Point) bool {
	t := in.trail
	return !in.w.cfg.Target.NoExpiry && !t.locksSession() && (p.Part == tap.Acquire || !t.renews && !t.worksInTransaction())
}

// awaitReplies waits until the delayed replies have arrived and all drivers have their responses, or until time runs
// out. When a lease has ended, it sends fresh drivers to the order, because all others may have given up. It ends the
// delay when they have got past the lock, or when time runs out. It also ends the delay of later replies then. A client
// that makes more calls could otherwise read the order only after the other drivers have written.
func (s *strike) awaitReplies(ctx context.Context) error {
	began, co := time.Now(), s.contention()
	within := co.contendFor() + s.in.leases(s.in.fault.RepliesBy) - s.in.delayOfReply()
	err := until(ctx, within, func() (bool, error) {
		counted := time.Now()
		asked, err := s.holds.countAcquires(ctx, s.contests) // before the read of the ledger, which shows that no driver had written by then
		claimed := s.in.claimed(ctx, s.contests)
		err = errors.Join(err, co.gate().free(ctx, claimed), s.holds.noteNextCalls(ctx, s.contests))
		co.noteEarly(claimed)
		for _, c := range s.contests {
			if claimed(c.affected) || s.in.responses.isAnswered(c.affected) {
				continue
			}
			c.window.sold = c.window.sold || c.contenderFreed || s.in.atLeastUnits(c.contenders, claimed)
			co.watchWindow(c, asked[c], counted)
			co.sendIntoWindow(c)
		}
		waited, ready := time.Since(began), every(s.contests, func(c *contest) bool {
			return !c.struck || c.window.passed || s.in.gaveUpEarly(c) || !s.in.mayExpire(c.point) || s.in.responses.isAnswered(c.affected)
		})
		if ready && waited > s.in.delayOfReply() || waited > s.in.leases(s.in.fault.RepliesBy) {
			err = errors.Join(err, s.endDelay(ctx))
		}
		return every(s.contests, func(c *contest) bool {
			return s.in.responses.isAnswered(c.affected) && !slices.ContainsFunc(c.contenders, s.in.responses.isPending)
		}), err
	})
	return errors.Join(err, s.holds.noteNextCalls(ctx, s.contests), co.noteTries(ctx))
}

// endDelay lets the delayed replies through.
func (s *strike) endDelay(ctx context.Context) error {
	for _, c := range s.contests {
		if c.window.closedAt.IsZero() {
			c.window.closedAt = time.Now()
		}
	}
	return s.heal(ctx)
}

// countAcquires returns how many calls for its lock the other drivers of each order have made.
func (b breakpoints) countAcquires(ctx context.Context, contests []*contest) (map[*contest]int, error) {
	asked := map[*contest]int{}
	calls, err := b.other.Holds(ctx)
	for _, c := range contests {
		asked[c] = len(catalog.Filter(calls[holdName(callsHold, c)], func(h control.Held) bool { return b.trail.acquires(h.Call) }))
	}
	return asked, err
}

// acquires reports whether a call of any driver asks a lock server for the lock.
func (t trail) acquires(c control.Call) bool {
	return acquiresKey(c) && slices.ContainsFunc(t.calls[fault.Alone], func(o control.Call) bool { return o.Phase == c.Phase }) &&
		(t.release == nil || c.Phase != t.release.Phase)
}

// watchWindow records what other drivers have done in the window. asked is how many calls for the lock they had made at the
// time counted. The affected driver has not written yet. Once the delay has ended, only the ledger can show this.
func (s contention) watchWindow(c *contest, asked int, counted time.Time) {
	w := &c.window
	if counted.Sub(c.contendedSince) <= s.in.lease() || !w.closedAt.IsZero() && !(s.in.w.ledger && s.in.traits.liveLedger) {
		return
	}
	if !w.opened {
		w.opened, w.asked = true, asked
	}
	w.tried = w.tried || asked-w.asked >= s.in.w.cfg.units()
	w.passed = w.passed || c.othersPassed
}

// sendIntoWindow sends a fresh driver as soon as the window opens, and more of them until enough have got past the lock.
// Before, or if the lock cannot expire, it sends one only if all others have their responses.
func (s contention) sendIntoWindow(c *contest) {
	opened := c.window.opened && s.in.mayExpire(c.point)
	switch {
	case c.othersPassed:
	case opened && !c.window.sent:
		c.window.sent = true
		s.sendFresh(c)
	case opened, !s.awaitsOther(c) && !s.in.competed(c):
		s.sendAgain(c)
	}
}

// competed reports whether enough drivers have competed for the order, so that one win too many was possible. The fault
// may delay a reply to a user's service beyond the lease. A driver must then have got past the lock before the reply, or
// must have been refused at this time. A refusal proves nothing if the affected driver has written. The lock may then
// live longer than the lease, or the refused driver may have met another one with the lock. If other drivers have sold
// the order before the reply, the affected driver may only have found it taken. It must then have sent its write.
func (j judgement) competed(c *contest) bool {
	in := j.in
	switch {
	case !in.delaysReplies() || c.endedInTime || in.gaveUpEarly(c) || !in.mayExpire(c.point):
		return in.competed(c)
	case in.keptRenewing(c) && !c.window.passed && !c.window.sold:
		return in.competed(c)
	case c.window.sold && !c.reachedClaim:
		return false
	case c.window.passed:
		return true
	}
	wrote := j.mayHaveWon(c.affected)
	return c.window.tried && !wrote || in.atLeastUnits(c.contenders, func(r load.Request) bool {
		a, _ := in.responses.of(r)
		counts := a.outcome == grab.Taken || a.outcome == grab.Busy && (!wrote || in.trail.refusesForever(c.tries))
		return counts && in.triedInWindow(c, a)
	})
}

// keptRenewing reports whether the lock was renewed so late that it had not expired when the reply arrived. The delayed call
// may follow the one that acquired the lock. For example, it may create a fencing token.
func (in *injection) keptRenewing(c *contest) bool {
	return !c.renewedAt.IsZero() && !c.window.closedAt.IsZero() && c.window.closedAt.Sub(c.renewedAt) < in.lease()*9/10
}

// gaveUpEarly reports whether the client of the affected driver gave up the delayed call well before the lease ended, so
// that it never accepts the late reply.
func (in *injection) gaveUpEarly(c *contest) bool {
	return !c.movedOnAt.IsZero() && c.movedOnAt.Sub(c.heldSince) <= in.lease()*9/10
}

// triedInWindow reports whether the whole attempt of a driver was in the window.
func (in *injection) triedInWindow(c *contest, a response) bool {
	affected, answered := in.responses.of(c.affected)
	return a.sent.After(c.contendedSince.Add(in.lease())) && a.ended.Before(c.openUntil) && (!answered || a.ended.Before(affected.ended))
}

// mayHaveWon reports whether the driver's write is in the ledger or, without a ledger, may have been made.
func (j judgement) mayHaveWon(r load.Request) bool {
	e, pair := j.evidence, check.Pair{Order: r.Order, Driver: r.Driver}
	if e.FromAnswers {
		return slices.Contains(e.Promised, pair) || slices.Contains(e.Unsure, pair)
	}
	return slices.Contains(check.Pairs(e.Ledger), pair)
}

// noteParallelCalls records how many calls the affected drivers have made so far. Their clients have made these calls in
// parallel to the delayed one, so they may still wait for its reply.
func (s *strike) noteParallelCalls(ctx context.Context) error {
	if !s.in.delaysReplies() {
		return nil
	}
	m, err := s.holds.heldCalls(ctx)
	for _, c := range s.contests {
		c.callsBefore = len(m.struck[holdName(callsHold, c)])
	}
	return err
}

// cancelUnawaited discards the injection for orders whose client gave up the call before its delayed
// reply arrived. A client that gives up well before the lease ends never accepts a late reply, so its
// injection counts. A client that makes its next call has given up the call before, even if the whole
// grab takes longer.
func (s *strike) cancelUnawaited(context.Context) error {
	if !s.in.delaysReplies() {
		return nil
	}
	for _, c := range s.contests {
		a, answered := s.in.responses.of(c.affected)
		gaveUp := a.ended
		if !c.movedOnAt.IsZero() && c.movedOnAt.Before(gaveUp) {
			gaveUp = c.movedOnAt
		}
		late := gaveUp.Sub(c.heldSince) > s.in.lease()*9/10
		if closed := c.window.closedAt; answered && late && (closed.IsZero() || gaveUp.Before(closed)) {
			c.cancel("the client gave up the call before its delayed reply arrived: " + longerTimeout)
		}
	}
	return nil
}
