package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/explore/search"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/tap"
)

// oracle checks the properties after each step of a schedule. It reads events and state, but never
// changes them.
type oracle struct {
	cluster *Cluster
	world   *world
	gate    *gate
	leases  *leaseBook
	causes  *causes

	stopped   bool          // whether a process was paused
	heldUp    bool          // whether time passed while a call could have continued or a process was paused
	heldUpFor time.Duration // how much time passed while a call could have continued
	faulted   bool          // whether the schedule contains a step that only faults produce
	freeFor   time.Duration // how long actors have waited although the lock was free
	steps     int           // the number of steps made so far
	probes    int           // the number of grabs by new drivers at the end
	broken    []search.Violation
}

// recordViolation records the first violation of each property, and the facts that explain it. It
// ignores any further violation.
func (o *oracle) recordViolation(property string, shown catalog.Facts, why string, args ...any) {
	if slices.ContainsFunc(o.broken, func(v search.Violation) bool { return v.Property == property }) {
		return
	}
	shown |= o.causes.shown | o.cluster.Guard.Shows()
	o.broken = append(o.broken, search.Violation{Property: property, Step: o.steps, Facts: shown, Why: fmt.Sprintf(why, args...)})
}

func (o *oracle) judge() {
	o.gate.mu.Lock()
	events := o.world.events
	o.world.events = o.world.events[len(o.world.events):]
	o.gate.mu.Unlock()
	for _, e := range events {
		if !e.actor.dead { // a dead actor's goroutines still run in this process, but must have no effect
			o.judgeEvent(e.actor, e.Event)
		}
	}
	if o.cluster.mistake != "" {
		o.recordViolation(catalog.AnswersAgree, 0, "%s", o.cluster.mistake)
	}
	for _, a := range o.world.actors {
		if !o.heldUp && a.rest > askAtOnce*askEvery*time.Duration(len(o.cluster.nodes)) {
			o.recordViolation(catalog.WaitsAsTold, 0, "%s asks for the lock again and again, with too short a pause", a.name)
		}
	}
	if o.leases.strayRenewal != "" {
		o.recordViolation(catalog.RenewsOwn, 0, "%s", o.leases.strayRenewal)
	}
	if o.leases.tooLong != "" {
		o.recordViolation(catalog.LossNotified, 0, "%s", o.leases.tooLong)
	}
	jumped := slices.ContainsFunc(o.cluster.nodes, func(n *node) bool { return n.ahead != 0 }) // a lease may have ended before its TTL
	for _, a := range o.world.actors {
		// The TTL has passed, and no server has lost data.
		ranOut := len(a.leases) > 0 && o.causes.howLost(a) == catalog.LeaseEnded && !o.leases.countsTwice()
		if ranOut && o.cluster.renews && a.granted && !a.releasing && !a.dead && !o.stopped && !o.causes.isDisturbed() && !jumped {
			o.recordViolation(catalog.RenewsOwn, 0, "%s's lease has expired, although nothing prevented its renewal", a.name)
		}
		if !o.cluster.notifiesLoss || !a.granted || a.releasing || a.knowsLoss || a.dead {
			continue
		}
		if !a.lags() && len(a.missingOn) > len(o.cluster.nodes)-o.leases.quorum() && !o.awaitsRenewal(a) {
			for _, property := range []string{catalog.LossNotified, catalog.RenewsOwn} { // record both, because no claim about a fault covers the second property
				o.recordViolation(property, o.causes.howLost(a), "%s's renewal found that its lease was gone, but %s was not told", a.name, a.name)
			}
		}
		if !a.lags() && o.sessionExpired(a) {
			for _, property := range []string{catalog.LossNotified, catalog.RenewsOwn} {
				o.recordViolation(property, o.causes.howLost(a), "%s's client knew that its session had expired, but %s was not told", a.name, a.name)
			}
		}
		if !a.lags() && !a.paused() && a.believed != 0 && o.world.elapsed() > a.believed+time.Millisecond { // the extra millisecond allows for timers that start a few nanoseconds late
			o.recordViolation(catalog.LossHeeded, o.causes.howLost(a), "%s's lease has ended by its own clock, but %s was not told", a.name, a.name)
		}
		if !a.lags() && ranOut {
			o.recordViolation(catalog.LossNotified, catalog.LeaseEnded, "%s's lease has expired, but %s was not told", a.name, a.name)
		}
	}
}

// sessionExpired reports whether an actor's client was told that the session with the actor's lease
// had expired.
func (o *oracle) sessionExpired(a *actor) bool {
	for n, s := range o.cluster.zkServers() {
		if s.timesExpired(a.inst) == a.expiries {
			continue
		}
		if _, stored := n.leaseOf(a.value); !stored {
			return true
		}
	}
	return false
}

func (o *oracle) awaitsRenewal(a *actor) bool {
	o.gate.mu.Lock()
	defer o.gate.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(o.gate.waiting, o.gate.late), func(c *call) bool {
		return c.actor == a && c.phase == tap.Renew && c.node != nil
	})
}

func (o *oracle) judgeEvent(a *actor, e history.Event) {
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		a.granted, a.fence, a.token = true, e.Fence, e.Token
		a.releasing, a.released, a.knowsLoss, a.missingOn, a.askedOn, a.goneOn = false, false, false, nil, nil, nil
		o.leases.inherit(a)
		if a.held = a.value; len(catalog.Filter(o.cluster.nodes, func(n *node) bool { return mentions(n.contents(), a.value) })) < o.leases.quorum() {
			a.held = "" // its token is unknown
		}
		o.judgeStored(a)
		o.causes.noteGrant(a)
		o.freeFor = 0
		o.judgePatience(a)
		o.judgeGrant(a)
		o.judgeOrder(a)
	case e.Op == history.Read && e.Kind == history.OK:
		a.inside = o.world.row().Status == order.Open
	case e.Op == history.Claim && e.Kind == history.OK:
		o.judgeClaim(a)
	case e.Op == history.Acquire && (e.Code == history.Taken || e.Code == grab.PerDriver): // this outcome is about the order, not about the lock
	case e.Op == history.Acquire && e.Code == history.Busy:
		waited, wait := o.world.elapsed()-a.begin, o.wait()
		hungUp := a.cancelled && !o.world.othersBegan(a) // no other driver has left a lock
		if (o.isAlone(a) && !o.faulted || hungUp) && o.isUnimpeded(a) {
			o.recordViolation(catalog.WaitsAsTold, 0, "%s was told that the lock was taken, but no other driver wanted it", a.name)
		}
		if most := o.cluster.Strategy.Promises.GivesUpAfter; waited < wait && (most == 0 || waited < most) {
			o.recordViolation(catalog.WaitsAsTold, 0, "%s gave up after %s, but should have waited for %s", a.name, waited.Round(time.Millisecond), wait)
		}
		o.judgePatience(a)
	case e.Op == history.Acquire && e.Kind == history.Fail:
		if o.mustSucceed(a) {
			o.recordViolation(catalog.WaitsAsTold, 0, "%s's acquire failed, although nothing prevented it", a.name)
		}
		onlyOutages := !o.causes.dataLost && !o.heldUp && o.causes.shown&disturbances == catalog.Unreachable
		// A session or a lease cannot have ended so soon.
		if o.world.queues() && onlyOutages && !a.cancelled && a.value != "" && o.world.elapsed()-a.begin < min(o.cluster.Wait, o.cluster.TTL) {
			o.recordViolation(catalog.WaitsAsTold, 0, "%s gave up in an outage, although the server still had its place in the queue", a.name)
		}
	case e.Op == history.Claim && e.Kind == history.Invoke:
		if a.knowsLoss && o.cluster.OnLost == grab.Abort {
			o.recordViolation(catalog.LossHeeded, o.causes.howLost(a), "%s began to write after it had been told that its lease was lost", a.name)
		}
		if o.cluster.notifiesLoss && o.cluster.OnLost == grab.Abort && a.believed != 0 && e.T > a.believed {
			o.recordViolation(catalog.LossHeeded, o.causes.howLost(a), "%s began to write %s after its lease had ended by its own clock", a.name, (e.T - a.believed).Round(time.Millisecond))
		}
	case e.Op == history.Lost:
		a.knowsLoss = true
		// A client counts the TTL from its request, so it may report a loss too early after a late
		// or lost reply. After only one lost reply, it still has time for another request.
		if left := o.leases.leaseLeft(a); o.leases.usesLeases() && !o.heldUp && (!o.causes.isDisturbed() || o.causes.oneReplyLost()) && left > o.cluster.TTL/4 && o.causes.howLost(a) == catalog.TakenOver {
			o.recordViolation(catalog.LossNotified, 0, "%s was told that its lease was lost, but it was valid for another %s", a.name, left.Round(time.Millisecond))
		}
	case e.Op == history.Grab && e.Kind != history.Invoke:
		o.judgeAnswer(a, e)
	case e.Op == history.Release && e.Kind == history.Invoke:
		a.releasing, a.inside = true, false
	case e.Op == history.Release:
		a.inTime = o.leases.leaseLeft(a) > 0
		a.released = e.Kind == history.OK
		answered := !a.releaseCut && !a.arrivedLate // otherwise, an earlier copy of the release may explain the result
		if a.released && !o.isBlind() && answered && len(a.goneOn) > len(o.cluster.nodes)-o.leases.quorum() {
			o.recordViolation(catalog.AnswersAgree, 0, "%s was told that it had released its lock, but the lease was already gone", a.name)
		}
		if e.Code == history.LeaseLost && o.cluster.showsToken && o.keptLease(a) {
			o.recordViolation(catalog.LossNotified, 0, "%s was told at its release that its lease was lost, but the lease was valid", a.name)
		}
	}
}

// isBlind reports whether the lock has a failure mode in which a release frees another driver's lock.
func (o *oracle) isBlind() bool {
	return slices.ContainsFunc([]string{"F5", "F6", "F35", "F36"}, func(id string) bool { return slices.Contains(o.cluster.Strategy.Breaks, id) })
}

// isAlone reports whether no other driver has asked for the lock since the actor began.
func (o *oracle) isAlone(a *actor) bool {
	return a.met == 0 && !slices.ContainsFunc(o.world.actors, func(b *actor) bool { return b.begun && b.begin > a.begin })
}

// keptLease reports whether an actor certainly kept its lease until its release had ended.
func (o *oracle) keptLease(a *actor) bool {
	return !o.heldUp && !o.causes.isDisturbed() && a.inTime && !a.knowsLoss && o.causes.howLost(a) == catalog.TakenOver
}

// wait returns how long an acquire may wait for the lock.
func (o *oracle) wait() time.Duration {
	if o.cluster.Strategy.Promises.TriesOnce {
		return 0
	}
	return o.cluster.Wait
}

// judgePatience checks that an actor has not waited for longer than its wait time, even if it has
// acquired the lock several times. It also checks this after data loss, which makes no call slower.
func (o *oracle) judgePatience(a *actor) {
	waited, wait := o.world.elapsed()-a.begin, o.wait()
	if !o.stopped && o.causes.shown&disturbances == 0 && !o.world.sessionEnded() && waited > wait+o.heldUpFor+time.Millisecond { // the extra millisecond allows for timers that start a few nanoseconds late
		o.recordViolation(catalog.WaitsAsTold, 0, "%s waited for %s, but should have given up after %s", a.name, waited.Round(time.Millisecond), wait)
	}
}

// judgeAnswer checks that a driver's response agrees with the ledger.
func (o *oracle) judgeAnswer(a *actor, e history.Event) {
	ledger := o.world.ledger()
	won := slices.ContainsFunc(ledger, a.won)
	otherTry := slices.ContainsFunc(o.world.actors, func(b *actor) bool { return b != a && b.driver == a.driver && b.begun && (!b.done || b.dead) })
	bought := slices.ContainsFunc(ledger, func(g order.Grab) bool { return g.Driver == a.driver })
	switch {
	case won && e.Kind == history.Fail && !otherTry:
		o.recordViolation(catalog.AnswersAgree, 0, "%s was told that it had not won (%s), but the ledger has its row", a.name, e.Note)
	case !won && e.Kind == history.OK:
		o.recordViolation(catalog.AnswersAgree, 0, "%s was told that it had won, but the ledger does not have its row", a.name)
	case e.Code == history.Taken && len(ledger) == 0 && o.cluster.locks():
		o.recordViolation(catalog.AnswersAgree, 0, "%s was told that the order was taken, but the ledger is empty", a.name)
	case e.Code == grab.PerDriver && !bought && !otherTry && (o.cluster.locks() || !o.faulted): // a fault may lose a reserved unit
		o.recordViolation(catalog.AnswersAgree, 0, "%s was told that its driver had enough units, but the ledger has none of them", a.name)
	}
	o.judgeReason(a, e)
}

// judgeReason checks that the reason of a failed grab matches what has happened. It accepts any
// deadline error, because a lock may set timeouts for its own calls.
func (o *oracle) judgeReason(a *actor, e history.Event) {
	failed := e.Kind == history.Info || e.Kind == history.Fail && e.Code != history.Taken && e.Code != grab.PerDriver
	switch {
	case e.Code == grab.Cancelled && !a.cancelled:
		o.recordViolation(catalog.AnswersAgree, 0, "%s was told that its grab was cancelled, but its driver had not hung up", a.name)
	case e.Code == history.LeaseLost && o.keptLease(a):
		o.recordViolation(catalog.AnswersAgree, 0, "%s was told that its lease was lost, but the lease was valid until its release", a.name)
	case failed && a.granted && (a.inTime || !o.leases.usesLeases()) && o.mustSucceed(a):
		o.recordViolation(catalog.AnswersAgree, 0, "%s's grab failed after it had acquired the lock (%s), although nothing prevented it", a.name, e.Note)
	}
}

func (w *world) ledger() []order.Grab {
	grabs, _ := w.db.Ledger(context.Background(), theOrder, 1) // fails only after the context has ended
	return grabs
}

// row reads the order from the database.
func (w *world) row() order.Order {
	o, _ := w.db.Read(context.Background(), theOrder, 0) // fails only after the context has ended
	return o
}

func (o *oracle) judgeGrant(a *actor) {
	for i, b := range o.world.actors {
		if b == a || !b.granted {
			continue
		}
		if a.fence != 0 && (a.fence == b.fence || a.fence < b.fence && a.before&(1<<i) != 0) {
			how := o.causes.whyBoth(a, b)
			if o.leases.leaseLeft(a) <= 0 {
				how |= o.causes.howLost(a)
			}
			o.recordViolation(catalog.FenceMonotone, how, "%s got token %d after %s had got %d", a.name, a.fence, b.name, b.fence)
		}
		if b.releasing {
			continue
		}
		if o.leases.usesLeases() && o.leases.leaseLeft(b) > 0 && o.leases.leaseLeft(a) > 0 {
			o.recordViolation(catalog.LeaseExclusive, o.causes.whyBoth(a, b), "%s got the lock while %s's lease was valid for another %s", a.name, b.name, o.leases.leaseLeft(b).Round(time.Millisecond))
		}
		if o.storesNothing(a) && o.storesNothing(b) {
			o.recordViolation(catalog.LeaseExclusive, 0, "%s got the lock while %s had it, and the servers store nothing about either of them", a.name, b.name)
		}
		if o.cluster.notifiesLoss && !b.knowsLoss && !b.lags() && !b.dead {
			o.recordViolation(catalog.LossNotified, o.causes.whyBoth(a, b), "%s got the lock while %s believed that it held the lock", a.name, b.name)
		}
	}
}

// judgeStored checks that a majority of servers stores a new lease, and that a server has issued
// its fencing token.
func (o *oracle) judgeStored(a *actor) {
	stored := len(a.leases) // without tokens, this only counts the servers that the holder has asked
	if o.cluster.showsToken {
		stored = o.leases.timesStored(a)
	}
	expired := o.leases.leaseLeft(a) <= 0 && (len(a.leases) > 0 || o.world.queues())
	gone := expired || a.freed != 0 || o.causes.dataLost
	if o.leases.usesLeases() && stored < o.leases.quorum() && !o.leases.countsTwice() && !gone {
		o.recordViolation(catalog.LeaseExclusive, 0, "%s got the lock, but only %d of %d servers store its lease", a.name, stored, len(o.cluster.nodes))
	}
	if issued := o.world.issued(); a.fence > issued && issued > 0 && !o.causes.dataLost {
		o.recordViolation(catalog.FenceMonotone, 0, "%s got token %d, but the server has issued only tokens up to %d", a.name, a.fence, issued)
	}
}

// issued returns the highest value of a counter in Redis, or 0 if the lock leaves no counter there.
func (w *world) issued() (highest uint64) {
	for _, n := range w.cluster.nodes {
		if r, ok := n.lockServer.(*redisServer); ok {
			for _, c := range r.counters {
				text, _ := r.redis.Get(c.key)
				number, _ := strconv.ParseUint(text, 10, 64) // 0 if the counter is gone
				highest = max(highest, number)
			}
		}
	}
	return highest
}

// storesNothing reports whether no server stores the actor's lock although no fault has occurred.
// If so, the lock cannot exclude other drivers.
func (o *oracle) storesNothing(a *actor) bool {
	return o.cluster.Strategy.Excludes == catalog.Global && o.cluster.Strategy.Needs&lock.SQLLocks == 0 && !o.faulted && len(a.leases) == 0
}

// judgeOrder checks that actors get the lock in order of arrival. It accepts another order if a
// fault or a pause may have caused it.
func (o *oracle) judgeOrder(a *actor) {
	if o.world.queues() && o.heldUp {
		return
	}
	for i, b := range o.world.actors {
		waits := o.world.elapsed()-b.begin < o.cluster.Wait
		if waits && !o.causes.isDisturbed() && a.behind&(1<<i) != 0 && !b.granted && !b.done && !b.dead && !b.paused() && !b.cancelled {
			o.recordViolation(catalog.OrderOfService, 0, "%s got the lock, but %s had waited longer", a.name, b.name)
		}
	}
}

// mustSucceed reports whether an actor's calls must succeed.
func (o *oracle) mustSucceed(a *actor) bool { return !a.cancelled && o.isUnimpeded(a) }

// isUnimpeded reports whether no fault or long delay has affected an actor's calls. It allows for
// timers that fire a little early.
func (o *oracle) isUnimpeded(a *actor) bool {
	patience := time.Duration(o.cluster.Strategy.Promises.Patience * float64(o.cluster.TTL))
	return !a.impeded && (!o.heldUp || 0 < o.heldUpFor && o.heldUpFor < patience-time.Millisecond)
}

// isCalmLocked reports whether no fault lasts, and none has left anything behind that may make a
// new actor's calls fail.
func (o *oracle) isCalmLocked() bool {
	disturbed := func(n *node) bool {
		r, ok := n.lockServer.(*redisServer)
		return n.down.Load() || n.ahead != 0 || ok && len(r.messages.held) > 0
	}
	broken := func(inst *instance) bool {
		return inst.stopped.Load() || inst.awake != nil || len(inst.cut) > 0 || inst.ahead != 0 || !o.world.hasSession(inst)
	}
	return !o.causes.dataLost && len(o.gate.late)+len(o.gate.inFlight) == 0 && !slices.ContainsFunc(o.cluster.nodes, disturbed) &&
		!slices.ContainsFunc(o.cluster.instances[:Instances], broken) && !slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.hung })
}

// isDisturbed reports whether a fault has affected data, messages or connections, for example by
// losing a reply.
func (s *causes) isDisturbed() bool { return s.dataLost || s.shown&disturbances != 0 }

// mayMissMessage reports whether a fault may have made a connected client miss a message. Clients
// that an outage disconnected do not count, because they know that they may have missed messages.
// A lost reply to a call does not count, because messages arrive on a connection of their own.
func (s *causes) mayMissMessage() bool {
	return s.dataLost || s.shown&disturbances&^(catalog.Unreachable|catalog.ReplyWasLost) != 0
}

// slowing contains the facts that can make a clean-up wait for replies.
const slowing = catalog.Unreachable | catalog.CutOff | catalog.Delayed

const disturbances = catalog.Unreachable | catalog.CutOff | catalog.WakeUpLost | catalog.ReplyWasLost | catalog.Delayed

// oneReplyLost reports whether lost replies are the only disturbance so far.
func (s *causes) oneReplyLost() bool {
	return !s.dataLost && s.shown&disturbances == catalog.ReplyWasLost
}

// queuesBehind returns a bit set of the actors that must get the lock before actor a.
func (o *oracle) queuesBehind(a *actor) (behind uint8) {
	among := o.cluster.Strategy.Promises.InOrder
	for i, b := range o.world.actors {
		first := among == catalog.Global || among == catalog.PerProcess && a.inst == b.inst || a.inst.rivals&(1<<i) != 0
		if b != a && first && o.gate.isQueuedLocked(b) {
			behind |= 1 << i
		}
	}
	return behind
}

// isQueuedLocked reports whether an actor waits for the lock without a pending call, which may
// change its place in the queue.
func (g *gate) isQueuedLocked(a *actor) bool {
	return a.begun && !a.granted && !a.done && !a.dead && !a.paused() &&
		!g.hasCallLocked(func(c *call) bool {
			return c.actor == a || c.actor.inst == a.inst && c.node != nil // its call, or a background call of its instance, which may be for it
		})
}

// lookedFor records whether a renewal found the lease that it tried to extend.
type lookedFor struct {
	actor   *actor
	missing bool
}

// answerLocked records which leases a renewal found on the server. A lost reply tells the client
// nothing, so call answerLocked only when the client gets the reply.
func (c *call) answerLocked() {
	for _, l := range c.renewed {
		l.actor.missingOn = slices.DeleteFunc(l.actor.missingOn, func(n *node) bool { return n == c.node })
		if l.missing {
			l.actor.missingOn = append(l.actor.missingOn, c.node)
		}
	}
	c.actor.inst.rivals |= c.waiters
}

func (o *oracle) judgeClaim(a *actor) {
	ledger := o.world.ledger()
	if check.CountGrabs(ledger, o.cluster.Stock).DoubleGrabs > 0 {
		var shown catalog.Facts
		for i, b := range o.world.actors {
			if b != a && slices.ContainsFunc(ledger, b.won) {
				shown |= o.causes.whyBoth(a, b)
			}
			// If the order has several units, two earlier winners may have held the lock at the
			// same time too.
			for _, c := range o.world.actors[:i] {
				if o.cluster.units() > 1 && slices.ContainsFunc(ledger, b.won) && slices.ContainsFunc(ledger, c.won) {
					shown |= o.causes.whyBoth(b, c)
				}
			}
		}
		what := "the order was given"
		if o.cluster.units() > 1 {
			what = fmt.Sprintf("an order of %d units was sold %d times,", o.cluster.units(), len(ledger))
		}
		o.recordViolation(catalog.OneWinner, shown, "%s to %s", what, strings.Join(o.winners(ledger), " and to "))
	}
	for _, g := range ledger {
		if g.Fence > a.fence && a.fence != 0 {
			o.recordViolation(catalog.StaleWrite, o.causes.howLost(a), "%s wrote with token %d after token %d had been seen", a.name, a.fence, g.Fence)
		}
	}
	for _, b := range o.world.actors {
		if b != a && o.leases.usesLeases() && o.leases.leaseLeft(a) <= 0 && b.granted && b.inside && !b.releasing {
			o.recordViolation(catalog.WriteAfterExpiry, o.causes.whyBoth(a, b), "%s wrote after its lease had expired, while %s was inside", a.name, b.name)
		}
	}
}

// neverSteps is the step count for an event that can never happen.
const neverSteps = search.MaxSteps + 1

// minSteps returns a lower bound on the number of steps before a property can break. The bound is 1
// unless one-winner is the only property.
func (o *oracle) minSteps(properties []string) int {
	if !slices.Equal(properties, []string{catalog.OneWinner}) {
		return 1
	}
	ledger := o.world.ledger()
	toWin := []int{neverSteps} // include an imaginary actor that can never win
	for _, a := range o.world.actors {
		toWin = append(toWin, o.minStepsToWin(a, ledger))
	}
	slices.Sort(toWin)
	steps := 0
	for i := range o.cluster.units() + 1 {
		steps = min(steps+toWin[min(i, len(toWin)-1)], neverSteps)
	}
	return steps
}

// minStepsToWin returns a lower bound on the number of steps before an actor has won.
func (o *oracle) minStepsToWin(a *actor, ledger []order.Grab) int {
	switch {
	case slices.ContainsFunc(ledger, func(g order.Grab) bool { return g.Driver == a.driver }):
		return 0
	case a.done || a.dead || a.hung || a.releasing:
		return neverSteps
	case a.inside:
		return 1 // it only has to claim the order
	case a.granted:
		return 2 // it has to read and claim the order
	}
	steps := 2 + max(0, o.leases.quorum()-len(a.leases))
	if !a.begun {
		steps++
	}
	return steps
}

// winners returns the names of the actors that have won. Two actors can have the same driver, so it
// compares instances as well as drivers.
func (o *oracle) winners(ledger []order.Grab) []string {
	return catalog.Map(ledger, func(g order.Grab) string {
		return cmp.Or(catalog.First(o.world.actors, func(a *actor) bool { return a.won(g) }), o.world.probe).name
	})
}

func (a *actor) won(g order.Grab) bool {
	return a.driver == g.Driver && strconv.Itoa(a.inst.number) == g.Instance
}

// waitersForFreeLocked returns the actors that are waiting for a free lock. It returns nil if a
// pending call could still change who has the lock.
func (o *oracle) waitersForFreeLocked() []*actor {
	if o.world.queues() && o.causes.isDisturbed() {
		return nil // a disconnected client must resume its session first
	}
	up := slices.DeleteFunc(slices.Clone(o.cluster.nodes), func(n *node) bool { return n.down.Load() || o.keepsReleased(n) })
	onItsWay := func(c *call) bool { return c.phase == tap.Release && c.node != nil } // the lock is not free until this call arrives
	if len(up) < o.leases.quorum() || o.lateLockStored() || slices.ContainsFunc(o.gate.inFlight, onItsWay) {
		return nil
	}
	var waiters []*actor
	for _, a := range o.world.actors {
		own := func(c *call) bool { return c.actor == a }
		if a.paused() || a.hung || len(a.inst.cut) > 0 || !a.dead && slices.ContainsFunc(o.gate.waiting, own) || slices.ContainsFunc(o.gate.late, own) ||
			a.granted && !a.released || !a.granted && a.dead || o.leases.leaseLeft(a) > 0 && !a.released && !o.waitsInQueue(a) && !o.undoesLate(a) {
			return nil
		}
		if a.begun && !a.done && !a.granted && !o.world.hasSession(a.inst) {
			return nil // the actor's client needs a session before it can learn that the lock is free
		}
		if a.begun && !a.done && !a.granted {
			waiters = append(waiters, a)
		}
	}
	return waiters
}

// keepsReleased reports whether a server cannot grant a free lock. Either it still stores a
// released lock, or the strategy has never used it.
func (o *oracle) keepsReleased(n *node) bool {
	return len(o.cluster.nodes) > 1 && (n.eventHash == search.EmptyFingerprint || slices.ContainsFunc(o.world.actors, func(a *actor) bool {
		_, stored := n.leaseOf(a.value)
		return stored && a.released
	}))
}

// undoesLate reports whether a late request may have created a lock that its client promises to
// remove.
func (o *oracle) undoesLate(a *actor) bool {
	return o.cluster.Strategy.Promises.LateUndone && a.arrivedLate && !a.granted
}

// lateLockStored reports whether a late request has created a lock that stays until it expires.
func (o *oracle) lateLockStored() bool {
	return !o.cluster.Strategy.Promises.LateUndone && slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.arrivedLate }) &&
		slices.ContainsFunc(o.world.entries(), func(e entry) bool { return !slices.Contains(o.cluster.residue, e.key) })
}

// hasSession reports whether an instance is connected to every server that requires a session.
func (w *world) hasSession(inst *instance) bool {
	for _, s := range w.cluster.zkServers() {
		if !s.connected(inst) {
			return false
		}
	}
	return true
}

// waitsInQueue reports whether the actor is waiting in a queue on the server. An actor at the head
// of the queue may have the lock without knowing it.
func (o *oracle) waitsInQueue(a *actor) bool {
	return a.begun && !a.done && !a.granted && !a.dead && o.world.queues()
}

// sessionEnded reports whether a server has ended a session early. Its client connects again only
// after a second.
func (w *world) sessionEnded() bool {
	for n := range w.cluster.zkServers() {
		if n.ahead != 0 {
			return true
		}
	}
	return false
}

// queues reports whether the servers keep clients in a queue, whose first entry owns the lock.
func (w *world) queues() bool {
	return w.cluster.Strategy.Needs&(lock.ZooKeeper|lock.Etcd) != 0
}

// judgeWait checks that no actor waits too long for a free lock.
func (o *oracle) judgeWait(waiters []*actor) {
	bound := time.Duration(cmp.Or(o.cluster.Strategy.Promises.WakeUp, 0.5) * float64(o.cluster.TTL))
	if !o.causes.mayMissMessage() && !(o.world.queues() && o.heldUp) { // otherwise, a client may have to resume its session first
		heard := cmp.Or(o.cluster.Strategy.Promises.Heard, 0.1)
		bound = min(bound, time.Duration(heard*float64(o.cluster.TTL)))
	}
	bound = max(bound, longestPause)
	if len(waiters) > 0 && o.freeFor > bound+time.Millisecond { // the extra millisecond allows for timers that start a few nanoseconds late
		o.recordViolation(catalog.NoLostWakeup, 0, "%s waited %s for a lock that was free", waiters[0].name, o.freeFor.Round(time.Millisecond))
	}
}

func (a *actor) canProceed() bool { return !a.done && !a.dead && !a.hung && !a.paused() }

// lingeringLocked returns the actors that are still running after their clients have disconnected.
// It omits actors that wait for a reply or for a new session.
func (o *oracle) lingeringLocked() []*actor {
	return slices.DeleteFunc(slices.Clone(o.world.actors), func(a *actor) bool {
		own := func(c *call) bool { return c.actor == a }
		return !a.cancelled || !a.canProceed() || !o.world.hasSession(a.inst) || slices.ContainsFunc(slices.Concat(o.gate.waiting, o.gate.late), own)
	})
}

// judgeLingering checks that actors end soon after their clients have disconnected.
func (o *oracle) judgeLingering(lingering []*actor, passed time.Duration) {
	for _, a := range lingering {
		if a.lingered += passed; a.lingered > longestGoodbye && o.causes.shown&slowing == 0 {
			o.recordViolation(catalog.WaitsAsTold, 0, "%s continued for %s after its driver had hung up", a.name, a.lingered.Round(time.Millisecond))
		}
	}
}

// stragglingLocked returns the actors that wait only for slow servers, although a quorum has
// answered.
func (o *oracle) stragglingLocked() []*actor {
	if o.cluster.Strategy.Promises.Grace == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.world.actors), func(a *actor) bool {
		own := func(c *call) bool { return c.actor == a }
		if !a.begun || !a.canProceed() || len(a.inst.cut) > 0 || a.granted && !a.releasing || slices.ContainsFunc(o.gate.waiting, own) {
			return true
		}
		var silent []*node
		for _, c := range o.gate.late {
			if own(c) && c.node != nil && !slices.Contains(silent, c.node) {
				silent = append(silent, c.node)
			}
		}
		return len(silent) == 0 || len(silent) > len(o.cluster.nodes)-o.leases.quorum()
	})
}

// judgeStraggling checks that an actor does not wait longer than promised after a quorum has
// answered. An actor with competitors may also be pausing before its next attempt.
func (o *oracle) judgeStraggling(straggling []*actor, passed time.Duration) {
	for _, a := range o.world.actors {
		if !slices.Contains(straggling, a) {
			a.straggled = 0
			continue
		}
		limit := o.cluster.Strategy.Promises.Grace + time.Millisecond
		if !a.releasing && o.cluster.Wait > 0 && o.world.othersBegan(a) {
			limit += longestPause
		}
		if a.straggled += passed; a.straggled > limit {
			o.recordViolation(catalog.WaitsAsTold, 0, "%s waited %s for the other servers after a quorum had answered", a.name, a.straggled.Round(time.Millisecond))
		}
	}
}

// longestGoodbye is how long a strategy may continue after its client has disconnected. It allows
// for a ZooKeeper lock, which needs several tenths of a second to retry its clean-up.
const longestGoodbye = time.Second

// longestPause is how long a strategy may sleep between two requests for the lock.
const longestPause = 300 * time.Millisecond

// judgeEnd checks that the lock is free after all actors have ended. A lock left behind by a failed
// call may remain until it expires.
func (o *oracle) judgeEnd() {
	o.judgeReleases()
	o.judgeListeners()
	o.judgeContainers()
	told, left := false, 0
	if !o.gate.mayLeaveLock && !slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.hung || a.dead && slices.ContainsFunc(a.leases, serverLease.isValid) }) {
		o.judgeResidue()
		if told, left = o.probeUntilTaken(); !told && left == 0 {
			o.judgeBusy()
		}
	}
	expired := !told
	for i := 0; i < probeTries && !told; i++ {
		o.leaseTimePasses()
		told, left = o.probeUntilTaken()
	}
	switch {
	case told:
		o.judgeLimits()
		if o.judgeProcesses(); !expired {
			o.leaseTimePasses()
		}
		o.judgeRemains()
	case left > 0:
		o.recordViolation(catalog.StuckOrder, 0, "a new driver is told that the order is taken, but the ledger has only %d of its %s", o.cluster.units()-left, catalog.Plural(o.cluster.units(), "unit", "units"))
	default:
		o.recordViolation(catalog.StuckOrder, 0, "all leases have expired, but a new driver is told neither grabbed nor taken")
	}
}

// leaseTimePasses lets all leases expire that no one renews.
func (o *oracle) leaseTimePasses() {
	time.Sleep(o.cluster.TTL)
	o.world.timePassed()
}

// judgeListeners checks that a grab leaves no session, subscription or watch behind.
func (o *oracle) judgeListeners() {
	o.gate.mu.Lock()
	running := slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.begun && !a.done })
	o.gate.mu.Unlock()
	if running {
		return
	}
	if n := o.world.db.Sessions(); n > 0 {
		o.recordViolation(catalog.NoResidue, 0, "all drivers are done, but the database still has %s", catalog.Plural(n, "session", "sessions"))
	}
	key := grab.Key(o.cluster.Strategy.Name, theOrder)
	for _, n := range o.cluster.nodes {
		if s, ok := n.lockServer.(notifier); ok && s.listeners(key) > 0 {
			o.recordViolation(catalog.NoResidue, 0, "all drivers are done, but %s still notifies a client of changes to the lock", n.name)
		}
	}
}

// judgeContainers checks that ZooKeeper will remove every container. A container that never had a
// child stays forever, unless a later driver uses it. Only a crash may leave one behind. After an outage,
// the clean-up may still be waiting for its next attempt.
func (o *oracle) judgeContainers() {
	o.gate.mu.Lock()
	calls := o.gate.hasCallLocked(func(*call) bool { return true })
	o.gate.mu.Unlock()
	if calls || o.causes.shown&(catalog.Unreachable|catalog.CutOff) != 0 || slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.dead || a.hung }) {
		return
	}
	for _, e := range o.world.entries() {
		if z, ok := o.world.node(e.node).lockServer.(*zkServer); ok && z.keeps(e.key) {
			o.recordViolation(catalog.NoResidue, 0, "%s keeps %s forever", e.node, e.line)
		}
	}
}

// judgeReleases checks that servers no longer store released locks. If the strategy promises to
// retry failed releases, it checks these locks too.
func (o *oracle) judgeReleases() {
	if o.causes.shown&(catalog.Unreachable|catalog.CutOff) != 0 {
		return
	}
	for _, a := range o.world.actors {
		tried := a.granted && a.inTime && !a.dead && !a.cancelled && !a.arrivedLate && o.cluster.showsToken
		if tried && (a.released || o.cluster.Strategy.Promises.ReleaseRetried && o.leases.leaseLeft(a) > 0) && o.world.stores(a.token) {
			o.recordViolation(catalog.ReleaseEffective, 0, "%s released its lock while the lease was valid, but a server still has the lock", a.name)
		}
	}
}

// leftByCut reports whether an entry may remain because the release got no reply.
func (o *oracle) leftByCut(e entry) bool {
	return !o.cluster.Strategy.Promises.ReleaseRetried && slices.ContainsFunc(o.world.actors, func(a *actor) bool {
		return a.releaseCut && !a.released && (!o.cluster.showsToken || mentions(e.line, a.token))
	})
}

// judgeRemains checks, after all leases have expired, that no server stores a token, and that all
// Redis keys expire. Third-party locks may keep a fencing counter on purpose.
func (o *oracle) judgeRemains() {
	_, err := lock.Find(o.cluster.Strategy.Name)
	for _, e := range o.world.entries() {
		r, isRedis := o.world.node(e.node).lockServer.(*redisServer)
		if !slices.Contains(o.cluster.residue, e.key) && strings.Contains(e.line, tokenPrefix) {
			o.recordViolation(catalog.NoResidue, 0, "all leases have expired, but %s still holds %s", e.node, e.line)
		}
		if isRedis && err == nil && r.redis.TTL(e.key) == 0 {
			o.recordViolation(catalog.NoResidue, 0, "%s keeps %s forever", e.node, e.line)
		}
	}
}

// probeTries is how many times judgeEnd retries its grab, waiting for one TTL before each retry.
const probeTries = 3

// probeUntilTaken grabs the order with new drivers until one of them learns that the order is
// taken. told reports whether all units are sold by then. If not, left is the number of unsold
// units.
func (o *oracle) probeUntilTaken() (told bool, left int) {
	for range o.cluster.units() {
		o.probes++
		answer := o.cluster.prober.service.Grab(context.Background(), grab.Request{Order: theOrder, Driver: o.world.probe.driver + int64(o.probes-1), TryOnce: true})
		switch answer.Outcome {
		case grab.Grabbed:
		case grab.Taken:
			left = max(0, o.cluster.units()-len(o.world.ledger()))
			return left == 0, left
		default:
			return false, 0
		}
	}
	return true, 0
}

// judgeLimits checks that only units which a driver really has count against the driver's limit. It
// skips locks, because they count only the units in the ledger.
func (o *oracle) judgeLimits() {
	ledger := o.world.ledger()
	for _, a := range o.world.actors {
		if o.cluster.locks() || slices.ContainsFunc(ledger, func(g order.Grab) bool { return g.Driver == a.driver }) {
			continue
		}
		answer := o.cluster.prober.service.Grab(context.Background(), grab.Request{Order: theOrder, Driver: a.driver, TryOnce: true})
		if answer.Reason == grab.PerDriver {
			o.recordViolation(catalog.StuckOrder, 0, "%s's driver has no unit, but is told that it has enough units", a.name)
		}
	}
}

// judgeProcesses checks that each process in which a driver did not get the lock can still get it.
// The process has one TTL to recover.
func (o *oracle) judgeProcesses() {
	for _, inst := range o.cluster.instances[:Instances] {
		own := catalog.Filter(o.world.actors, func(a *actor) bool { return a.inst == inst && a.begun })
		running := slices.ContainsFunc(own, func(a *actor) bool { return !a.done })
		if running || !slices.ContainsFunc(own, func(a *actor) bool { return !a.granted }) || o.grabsOn(inst) {
			continue
		}
		if time.Sleep(o.cluster.TTL); !o.grabsOn(inst) {
			o.recordViolation(catalog.StuckOrder, 0, "no driver of instance %d can get the lock, although no driver has it", inst.number)
		}
	}
}

// grabsOn reports whether a new driver can grab the order at an instance, or is told that the order
// is taken.
func (o *oracle) grabsOn(inst *instance) bool {
	o.probes++
	answer := inst.service.Grab(context.Background(), grab.Request{Order: theOrder, Driver: o.world.probe.driver + int64(o.probes-1), TryOnce: true})
	return answer.Outcome == grab.Taken || answer.Outcome == grab.Grabbed
}

// judgeBusy records a violation if no one can get the lock after all actors have ended.
func (o *oracle) judgeBusy() {
	stays, never, dead, cut := false, false, false, false
	for _, a := range o.world.actors {
		dead = dead || a.dead
		// If the driver knows that its release has failed, the lock may remain.
		cut = cut || a.releaseCut && !a.released && !o.cluster.Strategy.Promises.ReleaseRetried
		stays = stays || a.granted && a.inTime && (!a.released || o.cluster.showsToken && o.world.stores(a.token))
		never = never || a.begun && !a.granted
	}
	switch {
	case cut:
	case stays:
		o.recordViolation(catalog.ReleaseEffective, 0, "the lock was released while the lease was valid, but no driver can get it")
	case never && !dead:
		o.recordViolation(catalog.NoResidue, 0, "no driver can get the lock, although no actor has it")
	}
}

// judgeResidue checks that the servers store nothing that a release should have removed. It does so
// only during the first TTL, because later a lock may have expired instead.
func (o *oracle) judgeResidue() {
	if o.world.elapsed() >= o.cluster.TTL {
		return
	}
	for _, e := range o.world.entries() {
		if !slices.Contains(o.cluster.residue, e.key) && !o.leftByCut(e) {
			o.recordViolation(catalog.NoResidue, 0, "%s still holds %s", e.node, e.line)
			return
		}
	}
}

func (w *world) stores(token string) bool {
	return slices.ContainsFunc(w.cluster.nodes, func(n *node) bool { return mentions(n.contents(), token) })
}

// An entry is one line of a server's contents, usually a key and its value.
type entry struct{ node, key, line string }

func (w *world) entries() []entry {
	var all []entry
	for _, n := range w.cluster.nodes {
		for line := range strings.Lines(n.contents()) {
			key, _, _ := strings.Cut(line, " = ")
			all = append(all, entry{n.name, key, strings.TrimSpace(line)})
		}
	}
	return all
}
