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
		if c.heldSince.IsZero() { // no call was held, because the fault struck at a moment
			c.heldSince = time.Now()
		}
		s.in.bursts.Send(c.contenders)
	}
	return nil
}

// giveUp discards a strike that can no longer show anything, and lets the faulted driver continue.
func (s *strike) giveUp(ctx context.Context, c *contest) error {
	s.cancelStrike(c)
	return s.releaseDriver(ctx, c)
}

// isTooLate reports whether contenders can no longer finish before the faulted driver's lease
// ends. A restart that takes long can cause this. The strike would then show nothing.
func (s *strike) isTooLate(c *contest) bool {
	held := s.in.fault.Course == fault.AfterHeal || s.in.fault.Course == fault.BeforeHeal
	return s.in.trail.service != nil && held && s.in.fault.ContendFor < 1 && c.struck &&
		time.Since(c.heldSince)+s.contendFor() > s.in.w.lease(s.in.cell)*9/10
}

// awaitExpiry waits until the leases of the faulted drivers have expired. It does so only for
// locks that refuse at once instead of waiting, because contenders would otherwise be refused
// before the lease ends and show nothing.
func (s *strike) awaitExpiry(ctx context.Context) error {
	waits := s.in.trail.service != nil || len(s.in.trail.calls[fault.Waiting]) > 0
	if waits || s.in.strategy.Excludes != catalog.Global || s.in.fault.ContendFor < 1 || wait.For(ctx, s.in.w.lease(s.in.cell)*11/10) {
		return nil
	}
	return context.Cause(ctx)
}

// sendLate sends one more driver for every order, after the other instance reaches all servers
// again. This driver reveals whether the order is open or grabbed.
func (s *strike) sendLate(ctx context.Context) error {
	err := s.awaitAble(ctx, s.in.other)
	for _, c := range s.contests {
		s.in.bursts.Send([]load.Request{c.lateDriver})
	}
	return err
}

// sendLast sends one more driver for each remaining unit, and waits for their answers. A unit can
// remain if a driver gave it back after the other drivers were refused.
func (s *strike) sendLast(ctx context.Context) error {
	if s.in.w.cfg.units() == 1 {
		return nil
	}
	for _, c := range s.contests {
		s.in.bursts.Send(c.lastDrivers)
	}
	return s.awaitAnswers(ctx)
}

// awaitRecovery waits until the other instance of a service has reconnected, if the fault has
// closed its connections too. It waits at most half a lease, because contenders must not win only
// because a lease expired. If recovery takes longer, the strike does not count.
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

// contendFor returns how long contenders may compete while the fault is active.
func (s *strike) contendFor() time.Duration {
	return time.Duration(s.in.fault.ContendFor * float64(s.in.w.lease(s.in.cell)))
}

// awaitContenders waits until contenders have claimed every unit of every order, or one is held
// just before its claim. It also returns when the contenders at the other instance have got as far
// as the fault requires, or when their time is over. It does not wait for contenders at the struck
// instance, because the fault may have stopped them too.
//
// After a refusal, another contender is sent, because not every service lets drivers wait for the
// lock. A foreign service may also answer "taken" while the lock is held.
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

// awaitsOther reports whether a contender at the other instance is still unanswered.
func (s *strike) awaitsOther(c *contest) bool {
	return slices.ContainsFunc(c.contenders, func(r load.Request) bool { return r.Target == s.in.other.URL && s.isPending(r) })
}

// noteEarly records that the faulted driver wrote or was answered before its lease ended. The
// expiry of this lease then cannot let in a second holder.
func (s *strike) noteEarly(c *contest, claimed func(load.Request) bool) {
	inTime := time.Since(c.heldSince) < s.in.w.lease(s.in.cell)
	c.endedInTime = c.endedInTime || inTime && (claimed(c.faulted) || s.isAnswered(c.faulted))
}

// sendAgain sends one more contender, a short time after all others were answered.
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

// freeContenders lets contenders continue to their claims once the faulted driver has claimed or
// been answered. It also does so after two thirds of the contenders' own leases, because they must
// claim before those expire.
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

// mustClaimFirst reports whether the cell can only fail if the faulted driver claims before any
// contender. That is so if the faulted driver has read the order as open and has the older fencing
// token.
func (s *strike) mustClaimFirst(c *contest) bool {
	return s.in.cell.Guard == order.FenceWrite && s.in.fault.Course == fault.AfterHeal && c.point.Role == fault.Alone &&
		(c.point.Phase == tap.Read && c.point.After || c.point.Phase == tap.Claim && !c.point.After)
}

// mayFreeContenders reports whether contenders no longer need to be held before their claim.
// Normally, this is once the faulted driver has claimed or been answered. Under the course
// Released, it is once later contenders have claimed all units.
func (s *strike) mayFreeContenders(c *contest, claimed func(load.Request) bool) bool {
	if s.in.fault.Course == fault.Released {
		return s.in.atLeastUnits(c.contenders[1:], claimed)
	}
	return claimed(c.faulted) || s.isAnswered(c.faulted)
}

// awaitQuiet waits until all drivers have been answered, or until the time for competing is over.
// Meanwhile, it sends more contenders until enough have got as far as the fault requires.
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

// repeatsFor limits how long an outage may last because a client repeats its calls. By default,
// ioredis gives up after 11 s and redis-py after 7 s.
const repeatsFor = 20 * time.Second

// awaitFailedRelease prolongs an outage until the release that it strikes has failed. Otherwise the
// client of a service could repeat the release after the outage, and no order would be stuck.
func (s *strike) awaitFailedRelease(ctx context.Context) error {
	if s.in.trail.service == nil || !s.in.fault.Lasts {
		return nil
	}
	return s.until(ctx, repeatsFor, func() (bool, error) {
		return s.every(func(c *contest) bool {
			return !c.struck || c.point.After || c.point.Part != tap.Release || s.isAnswered(c.faulted)
		}), nil
	})
}

// releaseContenders waits until every held contender may continue to its claim, and removes the
// remaining holds.
func (s *strike) releaseContenders(ctx context.Context) error {
	err := s.until(ctx, s.in.w.lease(s.in.cell)*2/3, func() (bool, error) {
		err := s.freeContenders(ctx, s.claimed(ctx))
		return s.every(func(c *contest) bool { return c.contenderHeldSince.IsZero() || c.contenderFreed }), err
	})
	return errors.Join(err, s.remove(ctx, contenderHold)) // remove also the holds that have not stopped a call yet
}

// sendSecond sends the second driver of each order when the lease of the faulted driver expires.
func (s *strike) sendSecond(ctx context.Context) error {
	if err := s.awaitExpiry(ctx); err != nil {
		return err
	}
	if s.in.trail.service != nil && !wait.For(ctx, s.in.w.lease(s.in.cell)*11/10) { // a service may refuse its drivers at once instead of letting them wait
		return context.Cause(ctx)
	}
	for _, c := range s.contests {
		s.in.bursts.Send(c.contenders[:1])
	}
	return nil
}

// sendThird sends the remaining drivers after the faulted driver has released its lock. They must
// finish while the second driver is still held before its claim.
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
