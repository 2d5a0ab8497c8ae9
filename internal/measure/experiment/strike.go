package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"
)

// strike is one strike of an injection: the steps that lead to it, and its outcome.
type strike struct {
	*injection
	contests []*contest
	heals    stack.Heals
}

const (
	arrivalTimeout = 5 * time.Second // time in addition to a lease for the faulted drivers to reach their points
	pollInterval   = 10 * time.Millisecond
)

type step = func(*strike, context.Context) error

// courses lists the steps after a fault was injected. The key says when the fault is healed.
var courses = map[fault.Course][]step{
	fault.AfterHeal:  {(*strike).sendContenders, (*strike).awaitContenders, (*strike).heal, (*strike).releaseFaulted, (*strike).releaseContenders},
	fault.BeforeHeal: {(*strike).sendContenders, (*strike).awaitContenders, (*strike).releaseFaulted, (*strike).releaseContenders, (*strike).awaitReleases, (*strike).heal},
	fault.AtOnce:     {(*strike).releaseFaulted, (*strike).sendContenders, (*strike).awaitQuiet, (*strike).heal, (*strike).releaseContenders},
	fault.Never:      {(*strike).leaveFaulted, (*strike).sendContenders},
	fault.Killed:     {(*strike).sendContenders},
	fault.Released:   {(*strike).sendSecond, (*strike).awaitContenders, (*strike).releaseFaulted, (*strike).sendThird, (*strike).releaseContenders},
	fault.HungUp:     {(*strike).hangUp, (*strike).releaseFaulted, (*strike).sendContenders},
}

// run strikes when the faulted drivers are held at their points. It heals everything, even
// after an error.
func (s *strike) run(ctx context.Context, of fault.Strike) (err error) {
	defer func() { err = errors.Join(err, s.heal(ctx)) }()
	steps := []step{doing(of.Before), (*strike).setHolds, (*strike).sendFaulted, (*strike).strikes, doing(of.Do)}
	steps = append(steps, courses[s.fault.Course]...)
	steps = append(steps, (*strike).sendLate, (*strike).awaitOthers, (*strike).sendLast, (*strike).removeHolds)
	for _, step := range steps {
		if err := step(s, ctx); err != nil {
			return err
		}
	}
	return nil
}

// withoutFault lets all drivers come at once. It requires that both instances reach all
// servers.
func (s *strike) withoutFault(ctx context.Context) error {
	if err := s.awaitAble(ctx, s.struck, s.other); err != nil {
		return err
	}
	for _, c := range s.contests {
		s.bursts.Send(c.all())
	}
	return s.awaitAnswers(ctx)
}

// strikes records that the fault strikes from now on, if it has hit any driver.
func (s *strike) strikes(context.Context) error {
	if slices.ContainsFunc(s.contests, func(c *contest) bool { return c.struck }) {
		s.windows = append(s.windows, window{from: time.Now()})
	}
	return nil
}

// over records the end of the fault, unless another part of it has still to end.
func (s *strike) over() {
	if last := len(s.windows) - 1; last >= 0 {
		s.windows[last].to = time.Now()
	}
}

// doing returns a step that applies a part of the fault. It keeps the heal function even if
// the fault fails midway.
func doing(of fault.Step) step {
	return func(s *strike, ctx context.Context) error {
		if of == nil {
			return nil
		}
		heal, err := of(ctx, s.lease(s.cell))
		if heal != nil {
			s.heals = append(s.heals, heal)
		}
		if errors.Is(err, stack.ErrInUse) { // in use by the faulted driver, at this point of its transaction
			for _, c := range s.contests {
				s.takeBack(c)
			}
			return nil
		}
		return err
	}
}

// heal ignores its context, because an interrupted run must heal its faults too.
func (s *strike) heal(context.Context) error {
	heals := s.heals
	s.heals = nil
	if len(heals) > 0 {
		defer s.over()
	}
	return heals.All()
}

// What holds are for. Their names are that and the order.
const (
	pointHold     = "point"     // the faulted driver, where the fault strikes it
	workHold      = "work"      // the faulted driver, while a call is held that it does not wait for
	callsHold     = "calls"     // lists the calls of a waiting driver
	retryHold     = "retry"     // a waiting driver that polls
	beforeHold    = "before"    // the driver that holds the lock while another waits
	refusalHold   = "refusal"   // refuses the claim of the faulted driver
	releaseHold   = "release"   // lists the release of the faulted driver
	contenderHold = "contender" // contenders, before they claim
)

// hold is one hold of a contest at an instance.
type hold struct {
	in   *fleet.Instance
	kind string
	control.Hold
}

// holds returns the holds that a contest needs from its beginning.
func (s *strike) holds(c *contest) []hold {
	faulted := []int64{c.faulted.Driver}
	all := []hold{{s.struck, callsHold, control.Hold{Drivers: faulted, Outcome: control.Delivered}}}
	if c.point.Role == fault.HandingOver || s.fault.Course == fault.Released {
		all = append(all, hold{s.struck, refusalHold, control.Hold{Drivers: faulted, At: *s.trail.claim, Outcome: control.Refused}})
	}
	all = append(all, hold{s.struck, pointHold, control.Hold{Drivers: faulted, At: c.point.Point, Strike: true}})
	switch {
	case c.point.Role == fault.HandingOver:
		all = append(all, hold{s.struck, workHold, control.Hold{Drivers: faulted, At: beforeClaim}})
	case c.point.Background:
		all = append(all, hold{s.struck, workHold, control.Hold{Drivers: faulted, At: s.trail.work}})
	}
	if c.before != nil {
		all = append(all, hold{s.other, beforeHold, control.Hold{Drivers: []int64{c.before.Driver}, At: beforeRead}})
		if s.trail.queued == 0 {
			all = append(all, hold{s.struck, retryHold, control.Hold{Drivers: faulted, At: secondTry}})
		}
	}
	if at := s.trail.release; at != nil && s.fault.Course == fault.BeforeHeal {
		all = append(all, hold{s.struck, releaseHold, control.Hold{Drivers: faulted, At: *at, Outcome: control.Delivered}})
	}
	if s.trail.service != nil {
		if at := s.trail.claim; at != nil && s.holdsContenders(c) {
			all = append(all, hold{s.other, contenderHold, control.Hold{Drivers: []int64{0}, At: *at}}) // the driver of a call is unknown there
		}
		return all
	}
	for _, r := range s.heldContenders(c) {
		in := s.other
		if r.Target == s.struck.URL {
			in = s.struck
		}
		all = append(all, hold{in, contenderHold, control.Hold{Drivers: []int64{r.Driver}, At: beforeClaim}})
	}
	return all
}

// holdsContenders reports whether contenders are held before they claim. If the fence is
// compared only at the write, both writes pass only if the older token writes first (F34). A
// driver that has waited gets the token after that of the previous holder, so it must write
// second.
func (s *strike) holdsContenders(c *contest) bool {
	fenced := s.cell.Guard == order.FenceWrite && s.fault.Course < fault.Never && c.point.Role == fault.Alone
	return s.fault.HoldContenders || fenced
}

// heldContenders returns the contenders that are held before they claim. If drivers come one
// after another, only the first is held.
func (s *strike) heldContenders(c *contest) []load.Request {
	switch {
	case !s.holdsContenders(c):
		return nil
	case s.fault.Course == fault.Released:
		return c.contenders[:1]
	default:
		return c.contenders
	}
}

func holdName(kind string, c *contest) string { return fmt.Sprintf("%s-%d", kind, c.order) }

// name returns the name of the hold. Each contender has a hold of its own.
func (h hold) name(c *contest) string {
	if h.kind == contenderHold {
		return fmt.Sprintf("%s-of-%d", holdName(h.kind, c), h.Drivers[0])
	}
	return holdName(h.kind, c)
}

func (s *strike) setHolds(ctx context.Context) error {
	if s.trail.service != nil {
		s.struck.Watch(s.contests[0].order, s.contests[0].faulted.Driver)
		s.other.Watch(s.contests[0].order, 0)
	}
	for _, c := range s.contests {
		for _, h := range s.holds(c) {
			h.First, h.Count = c.order, 1
			if err := h.in.SetHold(ctx, h.name(c), h.Hold); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeHolds removes the remaining holds, except those of calls that hang.
func (s *strike) removeHolds(ctx context.Context) error {
	err := removeAll(ctx, s.other)
	if s.fault.Course != fault.Never {
		err = errors.Join(err, removeAll(ctx, s.struck))
	}
	return err
}

func removeAll(ctx context.Context, in *fleet.Instance) error {
	held, err := in.Holds(ctx)
	for name := range held {
		err = errors.Join(err, in.RemoveHold(ctx, name))
	}
	return err
}

// met lists the calls that the holds of both instances have caught.
type met struct{ struck, other map[string][]control.Held }

func (s *strike) met(ctx context.Context) (m met, err error) {
	if m.struck, err = s.struck.Holds(ctx); err != nil {
		return m, err
	}
	m.other, err = s.other.Holds(ctx)
	return m, err
}

// together is the longest time between calls that count as simultaneous.
const together = 100 * time.Millisecond

// isAtPoint reports whether the faulted driver is held at its strike point, with all the
// calls that it makes there at once.
func (m met) isAtPoint(c *contest) bool {
	n := len(m.struck[holdName(pointHold, c)])
	if n > 0 && c.came.IsZero() {
		c.came = time.Now()
	}
	return n >= c.calls || n > 0 && time.Since(c.came) > together
}

// sendFaulted sends each faulted driver and the drivers that its role needs. It returns when
// each faulted driver is held at its point, or has been answered without reaching it.
func (s *strike) sendFaulted(ctx context.Context) error {
	for _, c := range s.contests {
		if c.before != nil {
			s.bursts.Send([]load.Request{*c.before})
		} else {
			s.bursts.Send([]load.Request{c.faulted})
		}
	}
	sent := map[*contest]bool{}
	err := s.until(ctx, s.arriveFor(), func() (bool, error) {
		m, err := s.met(ctx)
		for _, c := range s.contests {
			if err == nil && c.point.Role != fault.Alone {
				err = s.lead(ctx, c, m, sent)
			}
			c.struck = m.isAtPoint(c) && (c.before == nil || s.isAnswered(*c.before))
		}
		return s.all(func(c *contest) bool { return c.struck || s.hasPassed(c) }), err
	})
	for _, c := range s.contests {
		if c.struck {
			*s.cell.Struck++
		}
		if c.before != nil && !sent[c] { // it never had the lock; the cell will report that the point was not struck
			s.bursts.Send([]load.Request{c.faulted})
		}
		if c.waiter != nil && !sent[c] {
			s.bursts.Send([]load.Request{*c.waiter})
		}
	}
	return err
}

// hasPassed reports whether the faulted driver can no longer reach its point, because it was
// answered some time ago. A client may still make a call around the time of the answer, if
// its grab does not wait for that call.
func (s *strike) hasPassed(c *contest) bool {
	if s.isAnswered(c.faulted) && c.answered.IsZero() {
		c.answered = time.Now()
	}
	return !c.answered.IsZero() && time.Since(c.answered) > together
}

// arriveFor returns how long the faulted drivers may take to reach their points. If an
// expiry must not let contenders in, the first to arrive must still have most of its lease
// then.
func (s *strike) arriveFor() time.Duration {
	lease := s.lease(s.cell)
	if s.fault.ContendFor < 1 {
		return max(lease*3/5, time.Second)
	}
	return arrivalTimeout + lease
}

// lead brings a faulted driver that has a companion one step closer to its point.
func (s *strike) lead(ctx context.Context, c *contest, m met, sent map[*contest]bool) error {
	if c.point.Role == fault.HandingOver {
		return s.leadToRelease(ctx, c, m, sent)
	}
	holder := m.other[holdName(beforeHold, c)]
	switch {
	case c.gone || len(holder) == 0:
		return nil
	case !sent[c]:
		sent[c] = true
		s.bursts.Send([]load.Request{c.faulted})
		return nil
	case s.isAnswered(*c.before): // the faulted driver continues
		c.gone = true
		if s.trail.queued == 0 {
			return s.struck.RemoveHold(ctx, holdName(retryHold, c))
		}
		return nil
	case holder[0].State == control.Waiting && (m.isAtPoint(c) || s.waits(c, m)):
		_, err := s.other.Release(ctx, holdName(beforeHold, c), holder[0].Call, control.Refused)
		return err
	}
	return nil
}

// waits reports whether the faulted driver has tried and now waits for the lock: its last
// call has been answered.
func (s *strike) waits(c *contest, m met) bool {
	if s.trail.queued == 0 {
		return len(m.struck[holdName(retryHold, c)]) > 0
	}
	return len(m.struck[holdName(callsHold, c)]) >= s.trail.queued && c.hasQueued()
}

// hasQueued is called after a driver has made its last call before it waits. It reports
// whether that call has been answered.
func (c *contest) hasQueued() bool {
	if c.queued.IsZero() {
		c.queued = time.Now()
	}
	return time.Since(c.queued) > together
}

// leadToRelease lets the next holder wait first. Then it lets the faulted driver continue to
// a claim that is refused, so that it releases the lock.
func (s *strike) leadToRelease(ctx context.Context, c *contest, m met, sent map[*contest]bool) error {
	switch {
	case c.gone || len(m.struck[holdName(workHold, c)]) == 0:
		return nil
	case !sent[c]:
		sent[c] = true
		h := control.Hold{First: c.order, Count: 1, Drivers: []int64{c.waiter.Driver}, Outcome: control.Delivered}
		if err := s.other.SetHold(ctx, holdName(callsHold, c), h); err != nil {
			return err
		}
		s.bursts.Send([]load.Request{*c.waiter})
		return nil
	case len(m.other[holdName(callsHold, c)]) >= max(1, s.trail.queued) && c.hasQueued():
		c.gone = true
		return s.struck.RemoveHold(ctx, holdName(workHold, c))
	}
	return nil
}

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
		if c.came.IsZero() { // struck by time
			c.came = time.Now()
		}
		s.bursts.Send(c.contenders)
	}
	return nil
}

// giveUp cancels a strike and lets the faulted driver continue.
func (s *strike) giveUp(ctx context.Context, c *contest) error {
	s.takeBack(c)
	return s.letGo(ctx, c)
}

// isTooLate reports whether a strike on a service would show nothing, because a restart took
// long. The lease of the faulted driver may then end before the contenders have had their
// time.
func (s *strike) isTooLate(c *contest) bool {
	held := s.fault.Course == fault.AfterHeal || s.fault.Course == fault.BeforeHeal
	return s.trail.service != nil && held && s.fault.ContendFor < 1 && c.struck &&
		time.Since(c.came)+s.contendFor() > s.lease(s.cell)*9/10
}

// letGo lets a faulted driver continue.
func (s *strike) letGo(ctx context.Context, c *contest) error {
	for _, kind := range []string{pointHold, workHold, retryHold, beforeHold} {
		if err := s.removeOf(ctx, c, kind); err != nil {
			return err
		}
	}
	return nil
}

// awaitExpiry returns when the leases of the faulted drivers have expired. It applies to
// locks that do not wait, because an earlier driver would be refused at once and show
// nothing.
func (s *strike) awaitExpiry(ctx context.Context) error {
	waits := s.trail.service != nil || len(s.trail.calls[fault.Waiting]) > 0
	if waits || s.strategy.Excludes != catalog.Global || s.fault.ContendFor < 1 || wait.For(ctx, s.lease(s.cell)*11/10) {
		return nil
	}
	return context.Cause(ctx)
}

// sendLate sends one driver to every order when its instance reaches all servers again. The
// driver finds the order open or grabbed.
func (s *strike) sendLate(ctx context.Context) error {
	err := s.awaitAble(ctx, s.other)
	for _, c := range s.contests {
		s.bursts.Send([]load.Request{c.late})
	}
	return err
}

// sendLast sends the drivers that come for the remaining units, and returns when they are
// answered. A unit may remain because a driver gave it back after the others were refused.
func (s *strike) sendLast(ctx context.Context) error {
	if s.cfg.units() == 1 {
		return nil
	}
	for _, c := range s.contests {
		s.bursts.Send(c.last)
	}
	return s.awaitAnswers(ctx)
}

// awaitRecovery waits until the other instance of a service has recovered from a fault that
// also hit its servers. It waits at most half a lease, because an expiry must not let the
// contender in. If the recovery takes longer, the point counts as not struck.
func (s *strike) awaitRecovery(ctx context.Context) error {
	if s.trail.service == nil || !s.fault.Severs {
		return nil
	}
	if err := s.other.Works(ctx, s.spare, s.lease(s.cell)/2); err != nil && ctx.Err() == nil {
		for _, c := range s.contests {
			if err := s.giveUp(ctx, c); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// awaitAble waits until the instances can grab again, as far as this can be observed. If
// they cannot in time, the answers to the next drivers show it.
func (s *strike) awaitAble(ctx context.Context, all ...*fleet.Instance) error {
	if s.fleet.Ours {
		return s.until(ctx, arrivalTimeout, func() (bool, error) {
			return !slices.ContainsFunc(all, func(in *fleet.Instance) bool { return !reachesAll(ctx, in) }), nil
		})
	}
	for _, in := range all {
		if err := in.Works(ctx, s.spare, serviceArrives); ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// serviceArrives limits the wait until a service has replaced connections that a fault has
// ended.
const serviceArrives = 10 * time.Second

// reachesAll asks an instance whether it reaches all of its servers. Its readiness is not
// enough, because that needs only a majority of Redlock's nodes.
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

// contendFor returns how long the contenders compete while the fault lasts.
func (s *strike) contendFor() time.Duration {
	return time.Duration(s.fault.ContendFor * float64(s.lease(s.cell)))
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
		return s.all(func(c *contest) bool {
			s.noteEarly(c, claimed)
			switch {
			case !c.held.IsZero() && !c.freed || s.atLeastUnits(c.contenders, claimed):
				return true
			case s.awaitsOther(c):
				return false
			case claimed(c.faulted), s.fleet.Ours && (!s.outlasts() || s.competed(c)):
				return true
			}
			s.sendAgain(c)
			return false
		}), nil
	})
}

// awaitsOther reports whether a contender of the other instance has not been answered.
func (s *strike) awaitsOther(c *contest) bool {
	return slices.ContainsFunc(c.contenders, func(r load.Request) bool { return r.Target == s.other.URL && s.isPending(r) })
}

// noteEarly records that the faulted driver wrote or was answered before its lease ended.
// The end of the lease then lets no second holder in.
func (s *strike) noteEarly(c *contest, claimed func(load.Request) bool) {
	inTime := time.Since(c.came) < s.lease(s.cell)
	c.early = c.early || inTime && (claimed(c.faulted) || s.isAnswered(c.faulted))
}

// sendAgain sends another contender some time after the last one was answered.
func (s *strike) sendAgain(c *contest) {
	if c.again.IsZero() {
		c.again = time.Now()
	}
	if time.Since(c.again) < max(s.lease(s.cell)/20, together) {
		return
	}
	c.again = time.Time{}
	r := load.Request{Target: s.other.URL, Order: c.order, Driver: int64(s.cfg.strikeDrivers() + len(c.contenders))}
	c.contenders = append(c.contenders, r)
	s.bursts.Send([]load.Request{r})
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
		if c.held.IsZero() {
			c.held = time.Now()
		}
		over := s.isOver(c, claimed)
		if !over && time.Since(c.held) < s.lease(s.cell)*2/3 {
			continue
		}
		c.freed = true
		if !over && s.mustClaimFirst(c) {
			s.takeBack(c)
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
	return s.cell.Guard == order.FenceWrite && s.fault.Course == fault.AfterHeal && c.point.Role == fault.Alone &&
		(c.point.Phase == tap.Read && c.point.After || c.point.Phase == tap.Claim && !c.point.After)
}

// takeBack cancels a strike that has shown nothing.
func (s *strike) takeBack(c *contest) {
	if c.struck {
		c.struck = false
		*s.cell.Struck--
	}
}

// isOver reports whether the reason to hold contenders has passed: the faulted driver has
// claimed, or the third driver and as many others as there are further units.
func (s *strike) isOver(c *contest, claimed func(load.Request) bool) bool {
	if s.fault.Course == fault.Released {
		return s.atLeastUnits(c.contenders[1:], claimed)
	}
	return claimed(c.faulted) || s.isAnswered(c.faulted)
}

// held returns the holds at which contenders are held. A stopped instance does not answer,
// and counts as having none.
func (s *strike) held(ctx context.Context) map[*contest][]hold {
	all := map[*contest][]hold{}
	if !slices.ContainsFunc(s.contests, s.holdsContenders) {
		return all
	}
	held := map[*fleet.Instance]map[string][]control.Held{}
	for _, in := range []*fleet.Instance{s.other, s.struck} {
		within := together
		if in == s.struck {
			within = 2 * pollInterval
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		held[in], _ = in.Holds(ctx)
		cancel()
	}
	for _, c := range s.contests {
		for _, h := range s.holds(c) {
			if h.kind == contenderHold && len(held[h.in][h.name(c)]) > 0 {
				all[c] = append(all[c], h)
			}
		}
	}
	return all
}

// awaitQuiet returns when all drivers have been answered, or when the time of the contenders
// is over. Until then, contenders come again until they have got as far as the fault
// requires.
func (s *strike) awaitQuiet(ctx context.Context) error {
	return s.until(ctx, s.contendFor(), func() (bool, error) {
		claimed := s.claimed(ctx)
		err := s.freeContenders(ctx, claimed)
		return s.all(func(c *contest) bool {
			s.noteEarly(c, claimed)
			if s.outlasts() && !s.isAnswered(c.faulted) && !s.awaitsOther(c) && !s.competed(c) {
				s.sendAgain(c)
			}
			return !s.fault.Lasts && s.isAnswered(c.faulted) && !slices.ContainsFunc(c.contenders, s.isPending)
		}), err
	})
}

// releaseFaulted lets the calls that are held at the points continue, and then the drivers
// that do not wait for such calls.
func (s *strike) releaseFaulted(ctx context.Context) error {
	if s.loses {
		if err := s.loseReplies(ctx); err != nil {
			return err
		}
	}
	for _, c := range s.contests {
		if err := s.letGo(ctx, c); err != nil {
			return err
		}
	}
	s.over()
	if s.fault.Course == fault.AtOnce && !wait.For(ctx, together) { // their calls precede those of contenders
		return context.Cause(ctx)
	}
	return nil
}

// loseReplies sends the calls that are held at the points, and drops their replies.
func (s *strike) loseReplies(ctx context.Context) error {
	for _, c := range s.contests {
		held, err := s.struck.Held(ctx, holdName(pointHold, c), 0, 0)
		if err != nil {
			return err
		}
		for _, h := range held {
			if h.State == control.Waiting {
				if _, err := s.struck.Release(ctx, holdName(pointHold, c), h.Call, control.ReplyLost); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// leaveFaulted lets the cell end without answers for the faulted drivers.
func (s *strike) leaveFaulted(context.Context) error {
	s.workload.hung += len(s.contests)
	for _, c := range s.contests {
		c.hangs = true
	}
	return nil
}

// releaseContenders returns when all held contenders have been released.
func (s *strike) releaseContenders(ctx context.Context) error {
	err := s.until(ctx, s.lease(s.cell)*2/3, func() (bool, error) {
		err := s.freeContenders(ctx, s.claimed(ctx))
		return s.all(func(c *contest) bool { return c.held.IsZero() || c.freed }), err
	})
	return errors.Join(err, s.remove(ctx, contenderHold)) // also holds that have caught no call yet
}

// remove removes the holds of one kind. A hold that no longer exists is no error.
func (s *strike) remove(ctx context.Context, kind string) error {
	for _, c := range s.contests {
		if err := s.removeOf(ctx, c, kind); err != nil {
			return err
		}
	}
	return nil
}

func (s *strike) removeOf(ctx context.Context, c *contest, kind string) error {
	for _, h := range s.holds(c) {
		if h.kind != kind {
			continue
		}
		var answered *fleet.StatusError
		err := h.in.RemoveHold(ctx, h.name(c))
		if err != nil && !errors.Is(err, control.ErrNoHold) && !(errors.As(err, &answered) && answered.Code == http.StatusNotFound) {
			return err
		}
	}
	return nil
}

// awaitReleases returns when every faulted driver has sent its release, or was answered
// without one. It waits at most one lease, because a driver that is cut off cannot release.
func (s *strike) awaitReleases(ctx context.Context) error {
	return s.until(ctx, s.lease(s.cell), func() (bool, error) {
		m, err := s.met(ctx)
		return s.all(func(c *contest) bool {
			return len(m.struck[holdName(releaseHold, c)]) > 0 || s.isAnswered(c.faulted)
		}), err
	})
}

func (s *strike) awaitAnswers(ctx context.Context) error { return s.awaitThose(ctx, (*contest).all) }

func (s *strike) awaitOthers(ctx context.Context) error {
	return s.awaitThose(ctx, (*contest).others)
}

// awaitThose returns when the selected drivers of every order have been answered, except
// those that never will be.
func (s *strike) awaitThose(ctx context.Context, those func(*contest) []load.Request) error {
	return s.until(ctx, s.cfg.Load.Timeout, func() (bool, error) {
		return s.all(func(c *contest) bool {
			return !slices.ContainsFunc(those(c), func(r load.Request) bool {
				return s.isPending(r) && !(c.hangs && r == c.faulted)
			})
		}), nil
	})
}

// sendSecond sends the second driver of each order while the lease of the faulted driver
// expires.
func (s *strike) sendSecond(ctx context.Context) error {
	if err := s.awaitExpiry(ctx); err != nil {
		return err
	}
	if s.trail.service != nil && !wait.For(ctx, s.lease(s.cell)*11/10) { // it may refuse at once
		return context.Cause(ctx)
	}
	for _, c := range s.contests {
		s.bursts.Send(c.contenders[:1])
	}
	return nil
}

// sendThird sends the drivers that come after the faulted driver has released. They get the
// time for which the second driver is held.
func (s *strike) sendThird(ctx context.Context) error {
	sent := map[*contest]bool{}
	err := s.until(ctx, s.lease(s.cell)/2, func() (bool, error) {
		for _, c := range s.contests {
			if !sent[c] && s.isAnswered(c.faulted) {
				sent[c] = true
				s.bursts.Send(c.contenders[1:])
			}
		}
		claimed := s.claimed(ctx)
		err := s.freeContenders(ctx, claimed)
		return s.all(func(c *contest) bool {
			return c.freed || sent[c] && !slices.ContainsFunc(c.contenders[1:], s.isPending)
		}), err
	})
	for _, c := range s.contests {
		if !sent[c] {
			s.bursts.Send(c.contenders[1:])
		}
	}
	return err
}

// hangUp closes the connections of the faulted drivers, and returns when they are closed.
func (s *strike) hangUp(ctx context.Context) error {
	for _, c := range s.contests {
		s.bursts.HangUp(c.faulted)
	}
	err := s.until(ctx, arrivalTimeout, func() (bool, error) {
		return s.all(func(c *contest) bool { return s.isAnswered(c.faulted) }), nil
	})
	if err == nil && !wait.For(ctx, together) { // give their instance time to notice
		err = context.Cause(ctx)
	}
	for _, c := range s.contests {
		if s.isPending(c.faulted) {
			s.takeBack(c)
		}
	}
	return err
}

// all reports whether a condition is true for every order of the strike.
func (s *strike) all(holds func(*contest) bool) bool {
	return !slices.ContainsFunc(s.contests, func(c *contest) bool { return !holds(c) })
}

func (s *strike) isPending(r load.Request) bool { return !s.isAnswered(r) }

func (s *strike) isGrabbed(r load.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered[r] == grab.Grabbed
}

func (s *strike) isAnswered(r load.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.answered[r]
	return ok
}

// claimed returns a function that reports whether the driver of a request has claimed, by
// the ledger. If the ledger cannot be read, because the fault struck the database, it shows
// no claim.
func (s *strike) claimed(ctx context.Context) func(load.Request) bool {
	var rows []order.Grab
	if s.ledger && (s.trail.service == nil || s.cfg.Target.Database.Query != "") { // otherwise the struck instance would be asked
		rows, _ = s.orders.Ledger(ctx, s.contests[0].order, len(s.contests))
	}
	return func(r load.Request) bool {
		if !s.fleet.Ours && s.isGrabbed(r) { // the ledger of a foreign service may be late or missing
			return true
		}
		return slices.ContainsFunc(rows, func(g order.Grab) bool { return g.Order == r.Order && g.Driver == r.Driver })
	}
}

// until polls until the condition is true or the time is over. Running out of time is no
// error.
func (s *strike) until(ctx context.Context, within time.Duration, condition func() (bool, error)) error {
	_, err := wait.Until(ctx, pollInterval, within, condition)
	return err
}
