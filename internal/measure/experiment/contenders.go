package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/wait"
)

// contention lets the contenders compete for the orders of a strike while the fault is active.
type contention struct {
	in       *injection
	contests []*contest
	holds    breakpoints
}

func (s *strike) contention() contention { return contention{s.in, s.contests, s.holds} }

// contending turns a method of contention into a step of a test.
func contending(do func(contention, context.Context) error) step {
	return func(s *strike, ctx context.Context) error { return do(s.contention(), ctx) }
}

// send sends the contenders, unless they would come too late.
func (s contention) send(ctx context.Context) error {
	s.beginContest()
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
		if c.heldSince.IsZero() { // no call was stopped, because the fault was injected at a fixed time
			c.heldSince = time.Now()
		}
	}
	if !s.in.w.fleet.Ours { // read the ledger now: if it keeps only the last winner, it still names the first one
		s.in.claimed(ctx, s.contests)
	}
	for _, c := range s.contests {
		s.in.bursts.Send(c.contenders)
	}
	return nil
}

// beginContest records that the contenders are about to start.
func (s contention) beginContest() {
	for _, c := range s.contests {
		c.contendedSince = time.Now()
	}
}

// giveUp ends an order's test if contenders would compete too late, for example because the service
// was slow to reconnect. By then, the paused driver's lease may have expired, so that a contender
// could win even with a working lock. Therefore, giveUp lets the paused driver continue and starts no
// contenders.
func (s contention) giveUp(ctx context.Context, c *contest) error {
	c.gaveUp, c.contenders = true, nil
	within := s.recoversIn(s.in.lease())
	late, advice := "the service did not reconnect to its servers within %v, so its lock may have expired", "set a longer lease, or pass {ttl_ms} to the service as its lock TTL"
	if s.in.w.cfg.setsTTL() {
		advice = "set a longer -ttl"
	}
	switch {
	case s.in.w.fleet.Ours:
		late, advice = "the other drivers came so late that the lease of %v may have expired", "repeat the run on a less busy machine"
	case c.variation == otherRestarts:
		late = "start-up code was not tested, because the restarted instance made no grab within %v"
		advice += ". If a single worker makes all grabs, or all orders share one lock, a grab waits for the stopped driver, so this cannot be tested"
	case s.neverExpires():
		late, advice = "the service did not reconnect to its servers within %v, so no other driver could compete", "let its clients reconnect sooner, or set a longer lease"
	}
	c.cancel(fmt.Sprintf(late+": %s", within, advice))
	return s.holds.releaseDriver(ctx, c)
}

// neverExpires reports whether the lock of a user's service lasts as long as its driver is stopped. This is so if
// the user says it, or if a database session holds the lock and no Redis key with a TTL is part of it.
func (s contention) neverExpires() bool {
	t := s.in.trail.service
	return s.in.w.cfg.Target.NoExpiry || t != nil && !t.leased && s.in.trail.locksSession()
}

// recoversIn returns how long to wait for a service to reconnect. A lock that expires allows only the given time.
func (s contention) recoversIn(allowed time.Duration) time.Duration {
	if s.neverExpires() {
		return max(s.in.lease(), serviceArrives)
	}
	return allowed
}

// isTooLate reports whether the paused driver's lease ends before contenders can compete for the
// lock, for example because a server restarted too slowly.
func (s contention) isTooLate(c *contest) bool {
	held := s.in.fault.Course == fault.AfterHeal || s.in.fault.Course == fault.BeforeHeal
	needed := s.contendFor()
	if c.variation == worksLong { // the lock must also outlive the work, or a late driver could win with an expired lock
		needed += longWork
	}
	if t := s.in.trail.service; t != nil { // the paused driver must also finish in time
		needed += t.takes
	}
	valid := s.in.lease() // of our own strategies, we know when it began
	if !s.in.w.fleet.Ours {
		valid = valid * 9 / 10
	}
	stopped := c.struck && !c.heldSince.IsZero() // otherwise, the fault was injected at a fixed time
	return held && s.in.fault.ContendFor < 1 && stopped && !s.neverExpires() && time.Since(c.heldSince)+needed > valid
}

// awaitExpiry waits until the paused drivers' leases have expired. It does nothing if the strategy
// itself makes contenders wait for that. The user's service probably does so too, but its waiting
// drivers may extend the lock. Therefore, if the fault is injected twice into such a service,
// awaitExpiry waits in the second injection.
func (s contention) awaitExpiry(ctx context.Context) error {
	waits := len(s.in.trail.calls[fault.Waiting]) > 0 || s.in.strategy.Excludes != catalog.Global
	if s.in.traits.unknownLock {
		waits = !every(s.contests, func(c *contest) bool { return c.variation == affectedFirst })
	}
	if waits || s.in.fault.ContendFor < 1 {
		return nil
	}
	if s.in.traits.unknownLock {
		s.noteEarly(s.in.claimed(ctx, s.contests)) // if a grab is a single call, its driver has written when that call is answered
	}
	wait.For(ctx, s.in.lease()*11/10)
	return context.Cause(ctx)
}

// awaitRecovery waits until the instance that the fault does not hit has reconnected to its servers. It
// gives up after half a lease. Once the lease has expired, a contender may win even with a working
// lock, so the test would show nothing. A lock that never expires leaves more time.
func (s contention) awaitRecovery(ctx context.Context) error {
	if !s.in.traits.reconnects || !s.in.fault.Severs {
		return nil
	}
	if err := s.in.awaitGrab(ctx, s.in.other, s.recoversIn(s.in.lease()/2)); err != nil && ctx.Err() == nil {
		for _, c := range s.contests {
			if err := s.giveUp(ctx, c); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// contendFor returns how long contenders compete while the fault lasts. If bothOrders asks for two
// injections, it doubles the time for the one in which the affected driver writes last. The service may
// remove old locks only from time to time, so the contenders may have to wait longer.
func (s contention) contendFor() time.Duration {
	d := time.Duration(s.in.fault.ContendFor * float64(s.in.lease()))
	if slices.ContainsFunc(s.contests, func(c *contest) bool { return c.variation != affectedFirst && s.in.bothOrders(c.point) }) {
		d *= 2
	}
	return d
}

// await waits until the contenders have won every unit, have stopped before they write,
// or have run out of time. If the service refuses drivers at once, it sends new ones.
func (s contention) await(ctx context.Context) error {
	began, extra := time.Now(), time.Duration(0)
	if s.in.traits.unknownLock && s.in.outlasts() {
		extra = s.in.lease()
	}
	err := until(ctx, s.contendFor()+extra, func() (bool, error) {
		claimed := s.in.claimed(ctx, s.contests)
		if err := s.gate().free(ctx, claimed); err != nil {
			return false, err
		}
		s.noteEarly(claimed)
		over := time.Since(began) >= s.contendFor()
		return every(s.contests, func(c *contest) bool {
			switch {
			case c.gaveUp:
				return true
			case over && (s.awaitsOther(c) || s.in.competed(c)):
				return true
			case !c.contenderHeldSince.IsZero() && !c.contenderFreed || s.in.atLeastUnits(c.contenders, claimed):
				return true
			case s.awaitsOther(c):
				return false
			case claimed(c.affected) && !(s.in.traits.unknownLock && s.in.trail.changesAfter(c.point)):
				return true
			case !s.in.traits.unknownLock && (!s.in.outlasts() || s.in.competed(c)):
				return true
			}
			s.sendAgain(c)
			return false
		}), nil
	})
	return errors.Join(err, s.noteTries(ctx))
}

// noteTries records how far the contenders of a user's service have got before the fault ends.
func (s contention) noteTries(ctx context.Context) (err error) {
	var m heldCalls
	if s.in.trail.service != nil {
		m, err = s.holds.heldCalls(ctx)
	}
	work := s.in.trail.work.Phase
	for _, c := range s.contests {
		c.tries = catalog.Map(m.other[holdName(callsHold, c)], func(h control.Held) control.Call { return h.Call })
		// A refused driver may write to the same table, for example to count its tries. A call that contains
		// the driver cannot be compared, because its name differs between the drivers.
		worked := strings.Contains(string(work), "{driver}") || slices.ContainsFunc(c.tries, func(o control.Call) bool { return o.Phase == work })
		c.foundSold = s.in.responses.anyHears(c.contenders, grab.Taken)
		wrote := len(catalog.Filter(c.tries, s.in.trail.onlyHolders))
		if s.allRefused(c) {
			c.refusedWrites = wrote
		}
		stopped := !c.contenderHeldSince.IsZero() && c.refusedWrites == 0
		c.passed = c.othersPassed || s.in.responses.anyHears(c.contenders, grab.Grabbed) ||
			worked && !s.allRefused(c) && (stopped || wrote > c.refusedWrites)
	}
	return err
}

// allRefused reports whether the lock has refused every contender so far. A refused driver may read the order,
// and count its try in the same table, although it never had the lock. Only a later write can then be that of a driver
// who got past the lock.
func (s contention) allRefused(c *contest) bool {
	return len(c.contenders) > 0 && !slices.ContainsFunc(c.contenders, func(r load.Request) bool {
		a, _ := s.in.responses.of(r) // without a response, the outcome is empty
		return a.outcome != grab.Busy
	})
}

func (s contention) awaitsOther(c *contest) bool {
	return slices.ContainsFunc(c.contenders, func(r load.Request) bool { return r.Target == s.in.other.URL && s.in.responses.isPending(r) })
}

// noteEarly records which affected drivers finished before their leases ended. If such a driver's
// order has two winners, an expired lease is not the cause.
func (s contention) noteEarly(claimed func(load.Request) bool) {
	for _, c := range s.contests {
		inTime := time.Since(c.heldSince) < s.in.lease()
		c.endedInTime = c.endedInTime || inTime && (claimed(c.affected) || s.in.responses.isAnswered(c.affected))
	}
}

// sendAgain sends one more request for the order, shortly after all other drivers have their
// responses.
func (s contention) sendAgain(c *contest) {
	if c.retriedAt.IsZero() {
		c.retriedAt = time.Now()
	}
	if time.Since(c.retriedAt) < max(s.in.lease()/20, simultaneous) {
		return
	}
	c.retriedAt = time.Time{}
	s.sendFresh(c)
}

func (s contention) sendFresh(c *contest) {
	r := load.Request{Target: s.in.other.URL, Order: c.order, Driver: int64(s.in.w.cfg.strikeDrivers() + len(c.contenders))}
	c.contenders = append(c.contenders, r)
	s.in.bursts.Send([]load.Request{r})
}

// repeatsFor limits how long a simulated outage lasts while the client keeps retrying. With default
// settings, ioredis gives up after 11 s, redis-rs after 8 s, and redis-py after 7 s.
const repeatsFor = 20 * time.Second

// contendInOutage is how long contenders compete during an outage if the first response comes sooner. It
// is short, because some clients try to reconnect after one second and, if that fails, not again for a
// minute.
const contendInOutage = 300 * time.Millisecond

// awaitFailedTries keeps an outage going until one contender of each order has won or has its response.
// This shows what the service does without its lock. Without a response, the injection does not count.
func (s contention) awaitFailedTries(ctx context.Context) error {
	var claimed func(load.Request) bool
	tried := func(c *contest) bool {
		return slices.ContainsFunc(c.contenders, func(r load.Request) bool { return s.in.responses.isAnswered(r) || claimed(r) })
	}
	err := until(ctx, repeatsFor, func() (bool, error) {
		claimed = s.in.claimed(ctx, s.contests)
		return every(s.contests, tried), nil
	})
	for _, c := range s.contests {
		if err == nil && !tried(c) {
			c.cancel(fmt.Sprintf("no other driver got a response while Redis could not be reached for %v: let the client give up sooner", repeatsFor))
		}
	}
	return err
}

// awaitFailedRelease keeps an outage going until the client has given up releasing its lock.
// Otherwise, the client could still succeed, and the order would not get stuck.
func (s contention) awaitFailedRelease(ctx context.Context) error {
	if !s.in.traits.reconnects || !s.in.fault.Lasts {
		return nil
	}
	return untilEvery(ctx, s.contests, repeatsFor, func(c *contest) bool {
		return !c.struck || c.point.After || c.point.Part != tap.Release || s.in.responses.isAnswered(c.affected)
	})
}

// keepCompeting makes a contender compete for each order when the fault ends and the delayed writes
// arrive. A service may have given up such a write and released its lock. A contender that reads the
// order before the write arrives, and writes afterwards, then wins too. If the delayed write has locked
// the row, such a contender waits for the database, so keepCompeting waits until it does. A contender
// may instead wait for the lock, which cannot be seen, so keepCompeting gives up after some time.
func (s contention) keepCompeting(ctx context.Context) error {
	if !s.in.traits.unknownLock || !s.in.outlasts() || s.in.fault.Lasts {
		return nil
	}
	for _, c := range s.contests {
		if !s.awaitsOther(c) {
			s.sendFresh(c)
		}
	}
	began := time.Now()
	err := until(ctx, 5*simultaneous, func() (bool, error) {
		for _, c := range s.contests {
			if !s.awaitsOther(c) {
				s.sendAgain(c)
			}
		}
		return time.Since(began) >= simultaneous && s.in.other.AwaitsDatabase != nil && s.in.other.AwaitsDatabase(simultaneous/2), nil
	})
	return errors.Join(err, s.noteTries(ctx))
}

func (s contention) release(ctx context.Context) error {
	var claimed func(load.Request) bool
	err := until(ctx, s.in.lease()*2/3, func() (bool, error) {
		claimed = s.in.claimed(ctx, s.contests)
		err := s.gate().free(ctx, claimed)
		return every(s.contests, func(c *contest) bool {
			return c.contenderFreed || c.contenderHeldSince.IsZero() && (!s.gate().mustClaimFirst(c) || s.gate().mayFree(c, claimed))
		}), err
	})
	for _, c := range s.contests {
		if !c.contenderFreed {
			s.gate().cancelUnlessFirst(c, claimed)
		}
		err = errors.Join(err, s.holds.remove(ctx, c, contenderHold)) // also remove the breakpoints that have not stopped a call yet
	}
	return err
}

// sendSecond sends a second attempt of the same driver to each order when its lease expires.
func (s contention) sendSecond(ctx context.Context) error {
	s.beginContest()
	if err := s.awaitExpiry(ctx); err != nil {
		return err
	}
	if s.in.traits.unknownLock && !wait.For(ctx, s.in.lease()*11/10) { // a service may refuse its drivers at once instead of making them wait
		return context.Cause(ctx)
	}
	for _, c := range s.contests {
		s.in.bursts.Send(c.contenders[:1])
	}
	return nil
}

// sendThird sends the remaining drivers after the first driver has released its lock. They should
// finish before the second driver writes.
func (s contention) sendThird(ctx context.Context) error {
	sent := map[*contest]bool{}
	err := until(ctx, s.in.lease()/2, func() (bool, error) {
		for _, c := range s.contests {
			if !sent[c] && s.in.responses.isAnswered(c.affected) {
				sent[c] = true
				s.in.bursts.Send(c.contenders[1:])
			}
		}
		claimed := s.in.claimed(ctx, s.contests)
		err := s.gate().free(ctx, claimed)
		return every(s.contests, func(c *contest) bool {
			return c.contenderFreed || sent[c] && !slices.ContainsFunc(c.contenders[1:], s.in.responses.isPending)
		}), err
	})
	for _, c := range s.contests {
		if !sent[c] {
			s.in.bursts.Send(c.contenders[1:])
		}
	}
	return err
}
