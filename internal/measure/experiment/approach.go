package experiment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"grablab/internal/grab"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
)

// approach leads the affected drivers to their points before the fault is injected.
type approach struct {
	contests  []*contest
	holds     breakpoints
	bursts    *load.Bursts
	responses *responses
	queued    int // how many calls a driver makes before it waits in a queue; 0 if drivers poll
}

func (s *strike) approach() approach {
	return approach{s.contests, s.holds, s.in.bursts, s.in.responses, s.in.trail.queued}
}

// run brings the affected drivers to the steps at which the fault is injected. At some steps, a
// second driver must first get the lock or wait for it.
//
// run returns when each request has reached its step or has ended, or when time runs out. Then it
// records which requests have reached their steps.
func (a approach) run(ctx context.Context, within time.Duration) error {
	for _, c := range a.contests {
		a.bursts.Send([]load.Request{*cmp.Or(c.holder, &c.affected)})
	}
	var m heldCalls
	err := until(ctx, within, func() (_ bool, err error) {
		m, err = a.holds.heldCalls(ctx)
		for _, c := range a.contests {
			if err == nil && c.point.Role != fault.Alone {
				err = a.leadToPoint(ctx, c, m)
			}
			c.struck = m.isAtPoint(c) && (c.holder == nil || a.responses.isAnswered(*c.holder))
		}
		return every(a.contests, func(c *contest) bool { return c.struck || a.hasPassed(c) }), err
	})
	for _, c := range a.contests {
		if !c.struck {
			c.missed = a.whereItWas(c, m)
			c.forwarded = a.wasForwarded(c, m)
		}
		if c.holder != nil || c.waiter != nil { // if the first driver never got the lock, the fault has missed this order
			a.sendFollower(c)
		}
	}
	return err
}

// sendFollower sends the second driver of an order, unless it has done so before. The first driver must
// already have the lock.
func (a approach) sendFollower(c *contest) {
	if !c.followerSent {
		c.followerSent = true
		a.bursts.Send([]load.Request{*cmp.Or(c.waiter, &c.affected)})
	}
}

// whereItWas describes how far a driver got if it did not reach the step where the fault should hit
// it.
func (a approach) whereItWas(c *contest, m heldCalls) string {
	last := "before its first call"
	if calls := m.struck[holdName(callsHold, c)]; len(calls) > 0 {
		last = fmt.Sprintf("after %s", calls[len(calls)-1].Call.Phase)
	}
	if a.responses.isAnswered(c.affected) {
		return "the grab had ended " + last
	}
	return "the grab was waiting " + last + ": if it was only slow, set a longer -ttl or -lease"
}

// wasForwarded reports whether another instance probably handled the request. This is likely if the
// driver won although its instance wrote nothing to the database. It is also likely if the driver was
// refused although its instance only read from the database. If the driver won, calls to a lock server
// prove nothing, because the instance may have asked only which instance leads.
func (a approach) wasForwarded(c *contest, m heldCalls) bool {
	answer, _ := a.responses.of(c.affected)
	worked := func(h control.Held) bool {
		return writes(h.Call) || answer.outcome != grab.Grabbed && (h.Target != tap.DB || locks(h.Call))
	}
	return a.responses.isAnswered(c.affected) && reached(answer.outcome) && !slices.ContainsFunc(m.struck[holdName(callsHold, c)], worked)
}

// hasPassed reports whether the driver can no longer reach the chosen step. It returns true only a
// moment after the response, because some calls follow the response.
func (a approach) hasPassed(c *contest) bool {
	if a.responses.isAnswered(c.affected) && c.answeredAt.IsZero() {
		c.answeredAt = time.Now()
	}
	return !c.answeredAt.IsZero() && time.Since(c.answeredAt) > simultaneous
}

// leadToPoint brings a driver closer to the step at which the fault is injected.
func (a approach) leadToPoint(ctx context.Context, c *contest, m heldCalls) error {
	if c.point.Role == fault.HandingOver {
		return a.leadToRelease(ctx, c, m)
	}
	holder := m.other[holdName(beforeHold, c)]
	switch {
	case c.holderReleased || len(holder) == 0:
		return nil
	case !c.followerSent:
		a.sendFollower(c)
		return nil
	case a.responses.isAnswered(*c.holder): // the affected driver can now get the lock
		c.holderReleased = true
		if a.queued == 0 {
			return a.holds.struck.RemoveHold(ctx, holdName(retryHold, c))
		}
		return nil
	case holder[0].State == control.Waiting && (m.isAtPoint(c) || a.isWaiting(c, m)):
		_, err := a.holds.other.Release(ctx, holdName(beforeHold, c), holder[0].Call, control.Refused)
		return err
	}
	return nil
}

func (a approach) isWaiting(c *contest, m heldCalls) bool {
	if a.queued == 0 {
		return len(m.struck[holdName(retryHold, c)]) > 0
	}
	return len(m.struck[holdName(callsHold, c)]) >= a.queued && c.hasQueued()
}

// leadToRelease makes the first driver release its lock while a second driver waits for it. The
// first driver's write is refused, so that the order stays open.
func (a approach) leadToRelease(ctx context.Context, c *contest, m heldCalls) error {
	switch {
	case c.holderReleased || len(m.struck[holdName(workHold, c)]) == 0:
		return nil
	case !c.followerSent:
		h := control.Hold{First: c.order, Count: 1, Drivers: []int64{c.waiter.Driver}, Outcome: control.Delivered}
		if err := a.holds.other.SetHold(ctx, holdName(callsHold, c), h); err != nil {
			return err
		}
		a.sendFollower(c)
		return nil
	case len(m.other[holdName(callsHold, c)]) >= max(1, a.queued) && c.hasQueued():
		c.holderReleased = true
		return a.holds.struck.RemoveHold(ctx, holdName(workHold, c))
	}
	return nil
}
