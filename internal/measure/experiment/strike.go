package experiment

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"
)

// strike is one injection of the fault, for a group of orders. Its methods are the steps before
// and after the injection. The holds that stop drivers at their points are in holds.go, and the
// drivers that compete during the fault are in contenders.go.
type strike struct {
	in       *injection
	contests []*contest
	heals    stack.Heals
}

const (
	arrivalTimeout = 5 * time.Second // how long the faulted drivers may take to reach their points, in addition to a lease
	pollInterval   = 10 * time.Millisecond
)

type step = func(*strike, context.Context) error

// courses lists the steps that follow the injection of a fault. The key says when the fault is
// healed and the faulted drivers continue.
var courses = map[fault.Course][]step{
	fault.AfterHeal:  {(*strike).sendContenders, (*strike).awaitContenders, (*strike).heal, (*strike).releaseFaulted, (*strike).releaseContenders},
	fault.BeforeHeal: {(*strike).sendContenders, (*strike).awaitContenders, (*strike).releaseFaulted, (*strike).releaseContenders, (*strike).awaitReleases, (*strike).heal},
	fault.AtOnce:     {(*strike).releaseFaulted, (*strike).sendContenders, (*strike).awaitQuiet, (*strike).awaitFailedRelease, (*strike).heal, (*strike).releaseContenders},
	fault.Never:      {(*strike).leaveFaulted, (*strike).sendContenders},
	fault.Killed:     {(*strike).sendContenders},
	fault.Released:   {(*strike).sendSecond, (*strike).awaitContenders, (*strike).releaseFaulted, (*strike).sendThird, (*strike).releaseContenders},
	fault.HungUp:     {(*strike).hangUp, (*strike).releaseFaulted, (*strike).sendContenders},
}

// run injects the fault when the faulted drivers are held at their points. It heals the fault even
// after an error.
func (s *strike) run(ctx context.Context, of fault.Strike) (err error) {
	defer func() { err = errors.Join(err, s.heal(ctx)) }()
	steps := []step{applying(of.Before), (*strike).setHolds, (*strike).sendFaulted, (*strike).openWindow, applying(of.Do)}
	steps = append(steps, courses[s.in.fault.Course]...)
	steps = append(steps, (*strike).sendLate, (*strike).awaitOthers, (*strike).sendLast, (*strike).removeHolds)
	for _, step := range steps {
		if err := step(s, ctx); err != nil {
			return err
		}
	}
	return nil
}

// withoutFault lets all drivers grab at once without a fault. Before that, it waits until both
// instances reach all of their servers.
func (s *strike) withoutFault(ctx context.Context) error {
	if err := s.awaitAble(ctx, s.in.struck, s.in.other); err != nil {
		return err
	}
	for _, c := range s.contests {
		s.in.bursts.Send(c.all())
	}
	return s.awaitAnswers(ctx)
}

// openWindow records that the fault is active from now on. It records nothing if the fault has
// missed every driver.
func (s *strike) openWindow(context.Context) error {
	if slices.ContainsFunc(s.contests, func(c *contest) bool { return c.struck }) {
		s.in.windows = append(s.in.windows, window{from: time.Now()})
	}
	return nil
}

// closeWindow records that the fault has ended. If another part of the fault ends later, the last
// call wins.
func (s *strike) closeWindow() {
	if last := len(s.in.windows) - 1; last >= 0 {
		s.in.windows[last].to = time.Now()
	}
}

// applying returns a step that applies one part of the fault. It keeps the function that heals the
// fault even if this part fails midway.
func applying(of fault.Step) step {
	return func(s *strike, ctx context.Context) error {
		if of == nil {
			return nil
		}
		heal, err := of(ctx, s.in.w.lease(s.in.cell))
		if heal != nil {
			s.heals = append(s.heals, heal)
		}
		if errors.Is(err, stack.ErrInUse) { // the faulted driver's open transaction uses what the fault would change
			for _, c := range s.contests {
				s.cancelStrike(c)
			}
			return nil
		}
		return err
	}
}

// heal undoes the fault. It ignores its context, because an interrupted run must be healed too.
func (s *strike) heal(context.Context) error {
	heals := s.heals
	s.heals = nil
	if len(heals) > 0 {
		defer s.closeWindow()
	}
	return heals.All()
}

// sendFaulted sends each faulted driver, together with the drivers that its role requires. It
// returns when each faulted driver is held at its point, or has been answered without reaching it.
func (s *strike) sendFaulted(ctx context.Context) error {
	for _, c := range s.contests {
		if c.holder != nil {
			s.in.bursts.Send([]load.Request{*c.holder})
		} else {
			s.in.bursts.Send([]load.Request{c.faulted})
		}
	}
	sent := map[*contest]bool{}
	err := s.until(ctx, s.arriveFor(), func() (bool, error) {
		m, err := s.heldCalls(ctx)
		for _, c := range s.contests {
			if err == nil && c.point.Role != fault.Alone {
				err = s.leadToPoint(ctx, c, m, sent)
			}
			c.struck = m.isAtPoint(c) && (c.holder == nil || s.isAnswered(*c.holder))
		}
		return s.every(func(c *contest) bool { return c.struck || s.hasPassed(c) }), err
	})
	for _, c := range s.contests {
		if c.struck {
			*s.in.cell.Struck++
		}
		if c.holder != nil && !sent[c] { // the holder never got the lock, so the cell will report this point as not struck
			s.in.bursts.Send([]load.Request{c.faulted})
		}
		if c.waiter != nil && !sent[c] {
			s.in.bursts.Send([]load.Request{*c.waiter})
		}
	}
	return err
}

// hasPassed reports whether the faulted driver can no longer reach its point, because it was
// answered some time ago. For a short time after the answer it still can, because a grab does not
// wait for all of its calls.
func (s *strike) hasPassed(c *contest) bool {
	if s.isAnswered(c.faulted) && c.answeredAt.IsZero() {
		c.answeredAt = time.Now()
	}
	return !c.answeredAt.IsZero() && time.Since(c.answeredAt) > simultaneous
}

// arriveFor returns how long the faulted drivers may take to reach their points. For some faults,
// contenders must not get in because a lease expires. Then the first driver to arrive must still
// have enough of its lease left.
func (s *strike) arriveFor() time.Duration {
	lease := s.in.w.lease(s.in.cell)
	if s.in.fault.ContendFor < 1 {
		return max(lease*3/5, time.Second)
	}
	return arrivalTimeout + lease
}

// leadToPoint takes the next step that brings a faulted driver with a companion to its point. The
// companion is the driver that it waits for or hands over to.
func (s *strike) leadToPoint(ctx context.Context, c *contest, m heldCalls, sent map[*contest]bool) error {
	if c.point.Role == fault.HandingOver {
		return s.leadToRelease(ctx, c, m, sent)
	}
	holder := m.other[holdName(beforeHold, c)]
	switch {
	case c.holderReleased || len(holder) == 0:
		return nil
	case !sent[c]:
		sent[c] = true
		s.in.bursts.Send([]load.Request{c.faulted})
		return nil
	case s.isAnswered(*c.holder): // the faulted driver can now get the lock
		c.holderReleased = true
		if s.in.trail.queued == 0 {
			return s.in.struck.RemoveHold(ctx, holdName(retryHold, c))
		}
		return nil
	case holder[0].State == control.Waiting && (m.isAtPoint(c) || s.isWaiting(c, m)):
		_, err := s.in.other.Release(ctx, holdName(beforeHold, c), holder[0].Call, control.Refused)
		return err
	}
	return nil
}

// isWaiting reports whether the faulted driver has tried to get the lock and now waits for it. The
// reply to its last call has then arrived.
func (s *strike) isWaiting(c *contest, m heldCalls) bool {
	if s.in.trail.queued == 0 {
		return len(m.struck[holdName(retryHold, c)]) > 0
	}
	return len(m.struck[holdName(callsHold, c)]) >= s.in.trail.queued && c.hasQueued()
}

// leadToRelease first makes the next holder wait for the lock. Then it lets the faulted driver
// continue to its claim, which is refused, so that the driver releases the lock.
func (s *strike) leadToRelease(ctx context.Context, c *contest, m heldCalls, sent map[*contest]bool) error {
	switch {
	case c.holderReleased || len(m.struck[holdName(workHold, c)]) == 0:
		return nil
	case !sent[c]:
		sent[c] = true
		h := control.Hold{First: c.order, Count: 1, Drivers: []int64{c.waiter.Driver}, Outcome: control.Delivered}
		if err := s.in.other.SetHold(ctx, holdName(callsHold, c), h); err != nil {
			return err
		}
		s.in.bursts.Send([]load.Request{*c.waiter})
		return nil
	case len(m.other[holdName(callsHold, c)]) >= max(1, s.in.trail.queued) && c.hasQueued():
		c.holderReleased = true
		return s.in.struck.RemoveHold(ctx, holdName(workHold, c))
	}
	return nil
}

// awaitAble waits until the instances can grab again, as far as that can be observed. If it runs
// out of time, the answers to the next drivers reveal the problem.
func (s *strike) awaitAble(ctx context.Context, all ...*fleet.Instance) error {
	if s.in.w.fleet.Ours {
		return s.until(ctx, arrivalTimeout, func() (bool, error) {
			return !slices.ContainsFunc(all, func(in *fleet.Instance) bool { return !reachesAll(ctx, in) }), nil
		})
	}
	for _, in := range all {
		if err := in.AwaitGrab(ctx, s.in.spare, serviceArrives); ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// serviceArrives limits how long a service may take to replace the connections that a fault has
// closed.
const serviceArrives = 10 * time.Second

// reachesAll reports whether an instance reaches all of its servers. The overall readiness is not
// enough, because it requires only a majority of the Redlock nodes.
func reachesAll(ctx context.Context, in *fleet.Instance) bool {
	var ready grab.Readiness
	err := in.Call(ctx, http.MethodGet, "/readyz", nil, &ready)
	for _, says := range ready.Checks {
		if says != "ok" {
			return false
		}
	}
	return err == nil
}

// releaseFaulted lets the calls that are held at the points continue. Then it releases the drivers
// that do not wait for these calls.
func (s *strike) releaseFaulted(ctx context.Context) error {
	if s.in.loses {
		if err := s.loseReplies(ctx); err != nil {
			return err
		}
	}
	for _, c := range s.contests {
		if err := s.releaseDriver(ctx, c); err != nil {
			return err
		}
	}
	s.closeWindow()
	if s.in.fault.Course == fault.AtOnce && !wait.For(ctx, simultaneous) { // the calls of the faulted drivers must precede those of contenders
		return context.Cause(ctx)
	}
	return nil
}

// leaveFaulted marks the faulted drivers as hanging, so that the cell ends without their answers.
func (s *strike) leaveFaulted(context.Context) error {
	s.in.workload.hung += len(s.contests)
	for _, c := range s.contests {
		c.hangs = true
	}
	return nil
}

// awaitReleases waits until every faulted driver has sent its release, or was answered without
// sending one. It waits at most one lease, because a driver that is cut off cannot release.
func (s *strike) awaitReleases(ctx context.Context) error {
	return s.until(ctx, s.in.w.lease(s.in.cell), func() (bool, error) {
		m, err := s.heldCalls(ctx)
		return s.every(func(c *contest) bool {
			return len(m.struck[holdName(releaseHold, c)]) > 0 || s.isAnswered(c.faulted)
		}), err
	})
}

func (s *strike) awaitAnswers(ctx context.Context) error { return s.awaitThose(ctx, (*contest).all) }

func (s *strike) awaitOthers(ctx context.Context) error {
	return s.awaitThose(ctx, (*contest).others)
}

// awaitThose waits until the selected drivers of every order have been answered. It does not wait
// for grabs that hang forever.
func (s *strike) awaitThose(ctx context.Context, those func(*contest) []load.Request) error {
	return s.until(ctx, s.in.w.cfg.Load.Timeout, func() (bool, error) {
		return s.every(func(c *contest) bool {
			return !slices.ContainsFunc(those(c), func(r load.Request) bool {
				return s.isPending(r) && !(c.hangs && r == c.faulted)
			})
		}), nil
	})
}

// hangUp closes the client connections of the faulted drivers, and returns when they are closed.
func (s *strike) hangUp(ctx context.Context) error {
	for _, c := range s.contests {
		s.in.bursts.HangUp(c.faulted)
	}
	err := s.until(ctx, arrivalTimeout, func() (bool, error) {
		return s.every(func(c *contest) bool { return s.isAnswered(c.faulted) }), nil
	})
	if err == nil && !wait.For(ctx, simultaneous) { // give the instance time to notice
		err = context.Cause(ctx)
	}
	for _, c := range s.contests {
		if s.isPending(c.faulted) {
			s.cancelStrike(c)
		}
	}
	return err
}

// every reports whether the predicate is true for every order of the strike.
func (s *strike) every(holds func(*contest) bool) bool {
	return !slices.ContainsFunc(s.contests, func(c *contest) bool { return !holds(c) })
}

func (s *strike) isPending(r load.Request) bool { return !s.isAnswered(r) }

func (s *strike) isGrabbed(r load.Request) bool {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	return s.in.answered[r] == grab.Grabbed
}

func (s *strike) isAnswered(r load.Request) bool {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	_, ok := s.in.answered[r]
	return ok
}

// claimed reads the ledger and returns a function that reports whether a driver has claimed its
// order. If a fault makes the ledger unreadable, that function sees no claims.
func (s *strike) claimed(ctx context.Context) func(load.Request) bool {
	var rows []order.Grab
	if s.in.w.ledger && (s.in.trail.service == nil || s.in.w.cfg.Target.Database.Query != "") { // without a query, the read would go to the struck instance
		rows, _ = s.in.w.orders.Ledger(ctx, s.contests[0].order, len(s.contests))
	}
	return func(r load.Request) bool {
		if !s.in.w.fleet.Ours && s.isGrabbed(r) { // a foreign service may have no ledger, or write it late
			return true
		}
		return slices.ContainsFunc(rows, func(g order.Grab) bool { return g.Order == r.Order && g.Driver == r.Driver })
	}
}

// until polls until the condition is true or the time is over. It returns no error if the time
// runs out.
func (s *strike) until(ctx context.Context, within time.Duration, condition func() (bool, error)) error {
	_, err := wait.Until(ctx, pollInterval, within, condition)
	return err
}
