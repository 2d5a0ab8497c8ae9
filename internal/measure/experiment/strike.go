package experiment

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/service/control"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"
)

// strike injects a fault once, while drivers compete for several orders. Its methods are the steps
// that concern the fault and the drivers that it hits.
type strike struct {
	in       *injection
	contests []*contest
	holds    breakpoints
	heals    stack.Heals
}

func newStrike(in *injection, contests ...*contest) *strike {
	return &strike{in: in, contests: contests, holds: in.breakpoints()}
}

const (
	arrivalTimeout = 5 * time.Second // how long drivers may take to reach the step of the fault, in addition to a lease
	pollInterval   = 10 * time.Millisecond
	freshDrivers   = 10 // how many more drivers may try to win an order without a fault, if all others have failed

	// readTimeout limits how long a ledger read may take during the fault. A stopped driver may have
	// locked the table.
	readTimeout = time.Second
)

type step = func(*strike, context.Context) error

// courses lists the steps that follow the injection of a fault. They depend on when the fault ends,
// and on when the affected drivers may continue.
var courses = map[fault.Course][]step{
	fault.AfterHeal:  {contending(contention.send), contending(contention.await), (*strike).answerPaused, (*strike).heal, (*strike).releaseAffected, contending(contention.release)},
	fault.BeforeHeal: {contending(contention.send), contending(contention.await), (*strike).releaseAffected, contending(contention.release), (*strike).awaitReleases, (*strike).heal},
	fault.InOutage:   {contending(contention.send), contending(contention.await), contending(contention.awaitFailedTries), (*strike).releaseAffected, contending(contention.release), (*strike).awaitWrites, (*strike).heal},
	fault.AtOnce:     {(*strike).releaseAffected, (*strike).noteParallelCalls, contending(contention.send), (*strike).awaitQuiet, (*strike).cancelUnawaited, contending(contention.awaitFailedRelease), contending(contention.keepCompeting), (*strike).heal, contending(contention.release)},
	fault.Never:      {(*strike).leaveAffected, contending(contention.send)},
	fault.Killed:     {contending(contention.send)},
	fault.Released:   {contending(contention.sendSecond), contending(contention.await), (*strike).cancelAbandoned, (*strike).releaseAffected, contending(contention.sendThird), contending(contention.release)},
	fault.HungUp:     {(*strike).hangUp, (*strike).releaseAffected, contending(contention.send)},
}

// run injects the fault as soon as the drivers have reached the chosen steps of their requests. It
// ends the fault even if there was an error.
func (s *strike) run(ctx context.Context, of fault.Strike) (err error) {
	defer func() { err = errors.Join(err, s.heal(ctx)) }()
	setHolds := func(s *strike, ctx context.Context) error { return s.holds.set(ctx, s.contests) }
	steps := []step{applying(of.Before), setHolds, (*strike).sendAffected, (*strike).openWindow, applying(of.Do)}
	steps = append(steps, courses[s.in.fault.Course]...)
	if err := s.do(ctx, append(steps, (*strike).sendLate, (*strike).sendLast)...); err != nil {
		return err
	}
	return s.holds.clear(ctx)
}

func (s *strike) do(ctx context.Context, steps ...step) error {
	for _, step := range steps {
		if err := step(s, ctx); err != nil {
			return err
		}
	}
	return nil
}

// withoutFault lets all drivers compete without a fault, as soon as both instances can reach their
// servers. If no driver can win after an earlier fault, it returns errNotAble.
func (s *strike) withoutFault(ctx context.Context) error {
	notAble := s.in.w.cfg.subject().awaitAble(ctx, s.in.spare, s.in.struck, s.in.other)
	if notAble != nil && !errors.Is(notAble, errNotAble) {
		return notAble
	}
	for _, c := range s.contests {
		s.in.bursts.Send(c.all())
	}
	if err := s.awaitAnswers(ctx); err != nil || !s.in.traits.reconnects {
		return err
	}
	for range freshDrivers { // a driver may get a connection that a fault has cut, so try several drivers
		claimed := s.in.claimed(ctx, s.contests)
		again := catalog.Filter(s.contests, func(c *contest) bool { return !slices.ContainsFunc(c.all(), claimed) })
		for _, c := range again {
			s.contention().sendFresh(c)
		}
		if err := s.awaitAnswers(ctx); err != nil || len(again) == 0 {
			return err
		}
	}
	if len(s.in.cell.Strikes) == 0 || slices.ContainsFunc(s.contests[0].all(), s.in.claimed(ctx, s.contests)) {
		return nil
	}
	return notAble // further injections would test nothing
}

// openWindow records that the fault is active from now on. It does nothing if the fault has missed
// every driver.
func (s *strike) openWindow(context.Context) error {
	if slices.ContainsFunc(s.contests, func(c *contest) bool { return c.struck }) {
		s.in.cell.Strikes = append(s.in.cell.Strikes, Window{FromMS: millis(time.Since(s.in.began))})
	}
	return nil
}

// closeWindow records that the fault has ended. A later call records a later end.
func (s *strike) closeWindow() {
	if last := len(s.in.cell.Strikes) - 1; last >= 0 {
		s.in.cell.Strikes[last].ToMS = new(millis(time.Since(s.in.began)))
	}
}

// applying returns a test step that applies one part of the fault, and stores the function that
// will undo this part.
func applying(of fault.Step) step {
	return func(s *strike, ctx context.Context) error {
		if of == nil {
			return nil
		}
		heal, err := of(ctx, s.in.lease())
		if heal != nil {
			s.heals = append(s.heals, heal)
		}
		if errors.Is(err, stack.ErrInUse) { // an open transaction of the paused driver uses what the fault would change
			for _, c := range s.contests {
				c.cancel("the fault cannot delay this write, because the driver's own transaction has locked the table")
			}
			return nil
		}
		return err
	}
}

// heal undoes the fault. It ignores its context, because an interrupted run must also clean up.
func (s *strike) heal(context.Context) error {
	heals := s.heals
	s.heals = nil
	if len(heals) > 0 {
		defer s.closeWindow()
	}
	return heals.All()
}

// sendAffected sends the requests that the fault will hit. It returns when each of them has reached
// the chosen step or has ended.
func (s *strike) sendAffected(ctx context.Context) error {
	within := arrivalTimeout + s.in.lease()
	if s.in.fault.ContendFor < 1 { // the test must end before the drivers' leases expire
		within = max(s.in.lease()*3/5, time.Second)
	}
	err := s.approach().run(ctx, within)
	for _, c := range s.contests {
		if c.struck {
			s.holds.setPaused(c, true)
		}
	}
	return err
}

// serviceArrives is how long a service may take to reconnect after a fault.
const serviceArrives = 10 * time.Second

// releaseAffected ends the holds of the affected drivers, so that these drivers continue under the
// fault.
func (s *strike) releaseAffected(ctx context.Context) error {
	if s.in.prepared.Loses {
		if err := s.holds.loseReplies(ctx, s.contests); err != nil {
			return err
		}
	}
	for _, c := range s.contests {
		if err := s.holds.releaseDriver(ctx, c); err != nil {
			return err
		}
	}
	s.closeWindow()
	if slices.ContainsFunc(s.contests, func(c *contest) bool { return c.variation == headStart }) {
		return untilEvery(ctx, s.contests, serviceArrives, func(c *contest) bool { return !c.struck || s.in.responses.isAnswered(c.affected) })
	}
	if s.in.fault.Course == fault.AtOnce && !wait.For(ctx, simultaneous) { // the delayed calls of the first drivers must come before the contenders' calls
		return context.Cause(ctx)
	}
	return nil
}

// answerPaused lets the servers answer the stopped calls of a user's service before its paused process
// continues, because real servers would have answered. Otherwise, a client might report a timeout
// as soon as it continues.
func (s *strike) answerPaused(ctx context.Context) error {
	if !s.in.fault.Freezes || s.in.w.cfg.Service == nil {
		return nil
	}
	err := s.releaseAffected(ctx)
	wait.For(ctx, simultaneous)
	return cmp.Or(err, context.Cause(ctx))
}

// longerTimeout is the advice for a client that gives up a delayed call too early.
const longerTimeout = "give the client a longer timeout, or test this fault by itself with a shorter lease"

// cancelAbandoned discards the injection for orders whose stopped call can no longer be sent late,
// because its client has closed the connection.
func (s *strike) cancelAbandoned(ctx context.Context) error {
	m, err := s.holds.heldCalls(ctx)
	if err != nil {
		return err
	}
	stopped := func(h control.Held) bool {
		return h.State != control.Released && (s.in.w.fleet.Ours || !h.Cancelled)
	}
	for _, c := range s.contests {
		if !slices.ContainsFunc(m.struck[holdName(pointHold, c)], stopped) {
			c.cancel("the client gave up the delayed call before another driver had the lock: " + longerTimeout)
		}
	}
	return nil
}

// awaitQuiet waits until all drivers have their responses, or until time runs out. It sends more
// drivers to orders for which too few have competed.
func (s *strike) awaitQuiet(ctx context.Context) error {
	if s.in.delaysReplies() {
		return s.awaitReplies(ctx)
	}
	co := s.contention()
	err := until(ctx, co.contendFor(), func() (bool, error) {
		claimed := s.in.claimed(ctx, s.contests)
		err := co.gate().free(ctx, claimed)
		co.noteEarly(claimed)
		return every(s.contests, func(c *contest) bool {
			if s.in.outlasts() && !s.in.responses.isAnswered(c.affected) && !co.awaitsOther(c) && !s.in.competed(c) {
				co.sendAgain(c)
			}
			return !s.in.fault.Lasts && s.in.responses.isAnswered(c.affected) && !slices.ContainsFunc(c.contenders, s.in.responses.isPending)
		}), err
	})
	return errors.Join(err, co.noteTries(ctx))
}

// leaveAffected marks the affected requests as hanging, so that the test does not wait for their
// responses.
func (s *strike) leaveAffected(context.Context) error {
	s.in.workload.hung += len(s.contests)
	for _, c := range s.contests {
		c.hangs = true
	}
	return nil
}

// awaitReleases waits until every affected driver has sent its release or has its response. It
// gives up after one lease, because a driver without a connection can never release its lock.
func (s *strike) awaitReleases(ctx context.Context) error {
	return until(ctx, s.in.lease(), func() (bool, error) {
		m, err := s.holds.heldCalls(ctx)
		return every(s.contests, func(c *contest) bool {
			return len(m.struck[holdName(releaseHold, c)]) > 0 || s.in.responses.isAnswered(c.affected)
		}), err
	})
}

// awaitWrites waits until every affected driver has written or has its response. Its lease may have
// expired during the outage, so it must write before another driver can get the lock. A service may
// write in several steps, so a driver without a response gets a little more time.
func (s *strike) awaitWrites(ctx context.Context) error {
	answered := func(c *contest) bool { return s.in.responses.isAnswered(c.affected) }
	err := until(ctx, arrivalTimeout, func() (bool, error) {
		claimed := s.in.claimed(ctx, s.contests)
		return every(s.contests, func(c *contest) bool { return answered(c) || claimed(c.affected) }), nil
	})
	return cmp.Or(err, untilEvery(ctx, s.contests, 3*simultaneous, answered))
}

func (s *strike) awaitAnswers(ctx context.Context) error {
	return s.awaitAnswersOf(ctx, (*contest).all)
}

func (s *strike) awaitOthers(ctx context.Context) error {
	return s.awaitAnswersOf(ctx, (*contest).others)
}

// awaitAnswersOf waits until the selected drivers of each order have their responses. It does not
// wait for drivers that will hang forever.
func (s *strike) awaitAnswersOf(ctx context.Context, drivers func(*contest) []load.Request) error {
	return untilEvery(ctx, s.contests, s.in.w.cfg.Load.Timeout, func(c *contest) bool {
		return !slices.ContainsFunc(drivers(c), func(r load.Request) bool {
			return s.in.responses.isPending(r) && !(c.hangs && r == c.affected)
		})
	})
}

// hangUp closes the affected drivers' client connections.
func (s *strike) hangUp(ctx context.Context) error {
	for _, c := range s.contests {
		s.in.bursts.HangUp(c.affected)
	}
	err := untilEvery(ctx, s.contests, arrivalTimeout, func(c *contest) bool { return s.in.responses.isAnswered(c.affected) })
	if err == nil && !wait.For(ctx, simultaneous) { // give the instance time to notice
		err = context.Cause(ctx)
	}
	for _, c := range s.contests {
		if s.in.responses.isPending(c.affected) {
			c.cancel("the service was still working on the request after its connection was closed")
		}
	}
	return err
}

// until calls condition repeatedly until it returns true or time runs out. Running out of time is
// not an error.
func until(ctx context.Context, within time.Duration, condition func() (bool, error)) error {
	_, err := wait.Until(ctx, pollInterval, within, condition)
	return err
}

// sendLate sends one more request for every order once all servers are reachable again. The
// response shows whether the order can still be won.
func (s *strike) sendLate(ctx context.Context) error {
	err := s.in.w.cfg.subject().awaitAble(ctx, s.in.spare, s.in.other)
	for _, c := range s.contests {
		s.in.bursts.Send([]load.Request{c.lateDriver})
	}
	if errors.Is(err, errNotAble) { // the response to the late driver shows the failure
		return nil
	}
	return err
}

// sendLast waits until all other drivers have their responses. It then sends one more request for
// each unit that may still be unsold, and waits for the responses.
func (s *strike) sendLast(ctx context.Context) error {
	if err := s.awaitOthers(ctx); err != nil || s.in.w.cfg.units() == 1 {
		return err
	}
	for _, c := range s.contests {
		s.in.bursts.Send(c.lastDrivers)
	}
	return s.awaitAnswers(ctx)
}

// untilEvery waits until condition is true for every order, or until time runs out.
func untilEvery(ctx context.Context, contests []*contest, within time.Duration, condition func(*contest) bool) error {
	return until(ctx, within, func() (bool, error) { return every(contests, condition), nil })
}
