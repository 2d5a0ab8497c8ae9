package experiment

import (
	"context"
	"errors"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/wait"
)

func (s *strike) sendContenders(ctx context.Context) error {
	if err := s.awaitRecovery(ctx); err != nil {
		return err
	}
	if err := s.awaitExpiry(ctx); err != nil {
		return err
	}
	for _, c := range s.contests {
		if s.isTooLate(c) {
			if err := s.giveUp(ctx, c); err != nil {
				return err
			}
		}
		if c.heldSince.IsZero() { // struck by time
			c.heldSince = time.Now()
		}
		s.in.bursts.Send(c.contenders)
	}
	return nil
}

// giveUp cancels a strike and lets the faulted driver continue.
func (s *strike) giveUp(ctx context.Context, c *contest) error {
	s.cancelStrike(c)
	return s.releaseDriver(ctx, c)
}

// isTooLate reports whether a strike on a service would show nothing, because a restart took
// long. The lease of the faulted driver may then end before the contenders have had their
// time.
func (s *strike) isTooLate(c *contest) bool {
	held := s.in.fault.Course == fault.AfterHeal || s.in.fault.Course == fault.BeforeHeal
	return s.in.trail.service != nil && held && s.in.fault.ContendFor < 1 && c.struck &&
		time.Since(c.heldSince)+s.contendFor() > s.in.w.lease(s.in.cell)*9/10
}

// awaitExpiry returns when the leases of the faulted drivers have expired. It applies to
// locks that do not wait, because an earlier driver would be refused at once and show
// nothing.
func (s *strike) awaitExpiry(ctx context.Context) error {
	waits := s.in.trail.service != nil || len(s.in.trail.calls[fault.Waiting]) > 0
	if waits || s.in.strategy.Excludes != catalog.Global || s.in.fault.ContendFor < 1 || wait.For(ctx, s.in.w.lease(s.in.cell)*11/10) {
		return nil
	}
	return context.Cause(ctx)
}

// sendLate sends one driver to every order when its instance reaches all servers again. The
// driver finds the order open or grabbed.
func (s *strike) sendLate(ctx context.Context) error {
	err := s.awaitAble(ctx, s.in.other)
	for _, c := range s.contests {
		s.in.bursts.Send([]load.Request{c.lateDriver})
	}
	return err
}

// sendLast sends the drivers that come for the remaining units, and returns when they are
// answered. A unit may remain because a driver gave it back after the others were refused.
func (s *strike) sendLast(ctx context.Context) error {
	if s.in.w.cfg.units() == 1 {
		return nil
	}
	for _, c := range s.contests {
		s.in.bursts.Send(c.lastDrivers)
	}
	return s.awaitAnswers(ctx)
}

// awaitRecovery waits until the other instance of a service has recovered from a fault that
// also hit its servers. It waits at most half a lease, because an expiry must not let the
// contender in. If the recovery takes longer, the point counts as not struck.
func (s *strike) awaitRecovery(ctx context.Context) error {
	if s.in.trail.service == nil || !s.in.fault.Severs {
		return nil
	}
	if err := s.in.other.AwaitGrab(ctx, s.in.spare, s.in.w.lease(s.in.cell)/2); err != nil && ctx.Err() == nil {
		for _, c := range s.contests {
			if err := s.giveUp(ctx, c); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// contendFor returns how long the contenders compete while the fault lasts.
func (s *strike) contendFor() time.Duration {
	return time.Duration(s.in.fault.ContendFor * float64(s.in.w.lease(s.in.cell)))
}

// awaitContenders returns when contenders have claimed every unit of every order, or when one is
// held before its claim. It also returns when those of the other instance have got as far as the
// fault requires, because contenders of the struck instance may be stopped together with it. It
// returns at the latest when their time is over.
//
// Refused contenders come again, because a service may not let its drivers wait for the
// lock. A foreign service may also answer taken while the lock is held.
func (s *strike) awaitContenders(ctx context.Context) error {
	return s.until(ctx, s.contendFor(), func() (bool, error) {
		claimed := s.claimed(ctx)
		if err := s.freeContenders(ctx, claimed); err != nil {
			return false, err
		}
		return s.every(func(c *contest) bool {
			s.noteEarly(c, claimed)
			switch {
			case !c.contenderHeldSince.IsZero() && !c.contenderFreed || s.in.atLeastUnits(c.contenders, claimed):
				return true
			case s.awaitsOther(c):
				return false
			case claimed(c.faulted), s.in.w.fleet.Ours && (!s.in.outlasts() || s.in.competed(c)):
				return true
			}
			s.sendAgain(c)
			return false
		}), nil
	})
}

// awaitsOther reports whether a contender of the other instance has not been answered.
func (s *strike) awaitsOther(c *contest) bool {
	return slices.ContainsFunc(c.contenders, func(r load.Request) bool { return r.Target == s.in.other.URL && s.isPending(r) })
}

// noteEarly records that the faulted driver wrote or was answered before its lease ended.
// The end of the lease then lets no second holder in.
func (s *strike) noteEarly(c *contest, claimed func(load.Request) bool) {
	inTime := time.Since(c.heldSince) < s.in.w.lease(s.in.cell)
	c.endedInTime = c.endedInTime || inTime && (claimed(c.faulted) || s.isAnswered(c.faulted))
}

// sendAgain sends another contender some time after the last one was answered.
func (s *strike) sendAgain(c *contest) {
	if c.retriedAt.IsZero() {
		c.retriedAt = time.Now()
	}
	if time.Since(c.retriedAt) < max(s.in.w.lease(s.in.cell)/20, simultaneous) {
		return
	}
	c.retriedAt = time.Time{}
	r := load.Request{Target: s.in.other.URL, Order: c.order, Driver: int64(s.in.w.cfg.strikeDrivers() + len(c.contenders))}
	c.contenders = append(c.contenders, r)
	s.in.bursts.Send([]load.Request{r})
}

// freeContenders lets held contenders claim when the faulted driver has claimed or been
// answered. It also frees them when most of their own lease has passed, because the hold
// must not outlast it.
func (s *strike) freeContenders(ctx context.Context, claimed func(load.Request) bool) error {
	held := s.held(ctx)
	for _, c := range s.contests {
		if len(held[c]) == 0 {
			continue
		}
		if c.contenderHeldSince.IsZero() {
			c.contenderHeldSince = time.Now()
		}
		over := s.mayFreeContenders(c, claimed)
		if !over && time.Since(c.contenderHeldSince) < s.in.w.lease(s.in.cell)*2/3 {
			continue
		}
		c.contenderFreed = true
		if !over && s.mustClaimFirst(c) {
			s.cancelStrike(c)
		}
		for _, h := range held[c] {
			if err := h.in.RemoveHold(ctx, h.name(c)); err != nil {
				return err
			}
		}
	}
	return nil
}

// mustClaimFirst reports whether the fault shows something only if the faulted driver claims
// before any contender. That is the case if it has read the order as open and has the older
// token.
func (s *strike) mustClaimFirst(c *contest) bool {
	return s.in.cell.Guard == order.FenceWrite && s.in.fault.Course == fault.AfterHeal && c.point.Role == fault.Alone &&
		(c.point.Phase == tap.Read && c.point.After || c.point.Phase == tap.Claim && !c.point.After)
}

// mayFreeContenders reports whether the reason to hold contenders has passed: the faulted driver has
// claimed, or the third driver and as many others as there are further units.
func (s *strike) mayFreeContenders(c *contest, claimed func(load.Request) bool) bool {
	if s.in.fault.Course == fault.Released {
		return s.in.atLeastUnits(c.contenders[1:], claimed)
	}
	return claimed(c.faulted) || s.isAnswered(c.faulted)
}

// awaitQuiet returns when all drivers have been answered, or when the time of the contenders
// is over. Until then, contenders come again until they have got as far as the fault
// requires.
func (s *strike) awaitQuiet(ctx context.Context) error {
	return s.until(ctx, s.contendFor(), func() (bool, error) {
		claimed := s.claimed(ctx)
		err := s.freeContenders(ctx, claimed)
		return s.every(func(c *contest) bool {
			s.noteEarly(c, claimed)
			if s.in.outlasts() && !s.isAnswered(c.faulted) && !s.awaitsOther(c) && !s.in.competed(c) {
				s.sendAgain(c)
			}
			return !s.in.fault.Lasts && s.isAnswered(c.faulted) && !slices.ContainsFunc(c.contenders, s.isPending)
		}), err
	})
}

// releaseContenders returns when all held contenders have been released.
func (s *strike) releaseContenders(ctx context.Context) error {
	err := s.until(ctx, s.in.w.lease(s.in.cell)*2/3, func() (bool, error) {
		err := s.freeContenders(ctx, s.claimed(ctx))
		return s.every(func(c *contest) bool { return c.contenderHeldSince.IsZero() || c.contenderFreed }), err
	})
	return errors.Join(err, s.remove(ctx, contenderHold)) // also holds that have caught no call yet
}

// sendSecond sends the second driver of each order while the lease of the faulted driver
// expires.
func (s *strike) sendSecond(ctx context.Context) error {
	if err := s.awaitExpiry(ctx); err != nil {
		return err
	}
	if s.in.trail.service != nil && !wait.For(ctx, s.in.w.lease(s.in.cell)*11/10) { // it may refuse at once
		return context.Cause(ctx)
	}
	for _, c := range s.contests {
		s.in.bursts.Send(c.contenders[:1])
	}
	return nil
}

// sendThird sends the drivers that come after the faulted driver has released. They get the
// time for which the second driver is held.
func (s *strike) sendThird(ctx context.Context) error {
	sent := map[*contest]bool{}
	err := s.until(ctx, s.in.w.lease(s.in.cell)/2, func() (bool, error) {
		for _, c := range s.contests {
			if !sent[c] && s.isAnswered(c.faulted) {
				sent[c] = true
				s.in.bursts.Send(c.contenders[1:])
			}
		}
		claimed := s.claimed(ctx)
		err := s.freeContenders(ctx, claimed)
		return s.every(func(c *contest) bool {
			return c.contenderFreed || sent[c] && !slices.ContainsFunc(c.contenders[1:], s.isPending)
		}), err
	})
	for _, c := range s.contests {
		if !sent[c] {
			s.in.bursts.Send(c.contenders[1:])
		}
	}
	return err
}
