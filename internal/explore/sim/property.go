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

// MistakeProperty is the property that every schedule breaks if the lock or its guard has a mistake that needs
// no schedule.
const MistakeProperty = catalog.AnswersAgree

// findings contains the violations that an execution has shown so far.
type findings struct {
	causes *causes
	steps  int // the number of steps made so far
	broken []search.Violation
}

// record records the first violation of each property, and the facts that explain it. It ignores any
// further violation.
func (f *findings) record(property string, shown catalog.Facts, why string, args ...any) {
	if slices.ContainsFunc(f.broken, func(v search.Violation) bool { return v.Property == property }) {
		return
	}
	shown |= f.causes.shown | f.causes.cluster.Guard.Shows()
	f.broken = append(f.broken, search.Violation{Property: property, Step: f.steps, Facts: shown, Why: fmt.Sprintf(why, args...)})
}

// oracle checks the holders and the responses after each step of a schedule. It reads the step's events,
// and records in each actor how far its grab has got. A waitOracle checks the waiters, and an endOracle
// checks what the actors leave behind.
type oracle struct {
	cluster  *Cluster
	world    *world
	gate     *gate
	leases   *leaseBook
	causes   *causes
	findings *findings
	waits    *waitOracle
}

func newOracle(s *causes) *oracle {
	w, f := s.world, &findings{causes: s}
	return &oracle{
		cluster: s.cluster, world: w, gate: w.gate, leases: w.leases, causes: s, findings: f,
		waits: &waitOracle{cluster: s.cluster, world: w, causes: s, findings: f},
	}
}

// judge checks the events and the state after a step.
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
	if known := o.cluster.KnownMistake(); known != "" {
		o.findings.record(MistakeProperty, 0, "%s", known)
	}
	for _, a := range o.world.actors {
		if !o.causes.heldUp && a.rest > askAtOnce*askEvery*time.Duration(len(o.cluster.nodes)) {
			o.findings.record(catalog.WaitsAsTold, 0, "%s asks for the lock or renews its lease again and again, with too short a pause", a.name)
		}
	}
	if o.leases.strayRenewal != "" {
		o.findings.record(catalog.RenewsOwn, 0, "%s", o.leases.strayRenewal)
	}
	if o.leases.tooLong != "" {
		o.findings.record(catalog.LossNotified, 0, "%s", o.leases.tooLong)
	}
	for _, a := range o.world.actors {
		o.judgeHolder(a)
	}
}

// judgeHolder checks that an actor's lease is not too long, that it is renewed, and that the actor is told
// when it is lost.
func (o *oracle) judgeHolder(a *actor) {
	for _, l := range a.leases {
		if left := l.until.Sub(l.node.now()); left > o.cluster.TTL+time.Millisecond && !o.cluster.isEndless() {
			o.findings.record(catalog.RenewsOwn, 0, "%s's lease on %s lasts for %s, which is longer than the TTL", a.name, l.node.name, left.Round(time.Millisecond))
		}
	}
	// The TTL has passed, and no server has lost data.
	ranOut := len(a.leases) > 0 && o.causes.howLost(a) == catalog.LeaseEnded && !o.leases.countsTwice()
	if ranOut && o.cluster.renews && a.granted && !a.releasing && !a.dead && !o.causes.stopped && !o.causes.mayMissRenewal(o.leases.leaseLeft(a)) {
		o.findings.record(catalog.RenewsOwn, 0, "%s's lease has expired, although nothing prevented its renewal", a.name)
	}
	if !o.cluster.notifiesLoss || !a.granted || a.releasing || a.knowsLoss || a.dead || a.lags() {
		return
	}
	known := ""
	switch {
	case len(a.missingOn) > len(o.cluster.nodes)-o.leases.quorum() && !o.gate.awaitsRenewal(a):
		known = "renewal found that its lease was gone"
	case o.world.sessionExpired(a):
		known = "client knew that its session had expired"
	}
	if known != "" { // record two properties, because no claim about a fault covers the second one
		o.findings.record(catalog.LossNotified, o.causes.howLost(a), "%s's %s, but %s was not told", a.name, known, a.name)
		o.findings.record(catalog.RenewsOwn, o.causes.howLost(a), "%s's %s, but %s was not told", a.name, known, a.name)
	}
	if !a.paused() && a.believed != 0 && o.world.elapsed() > a.believed+time.Millisecond { // the extra millisecond allows for timers that start a few nanoseconds late
		o.findings.record(catalog.LossHeeded, o.causes.howLost(a), "%s's lease has ended by its own clock, but %s was not told", a.name, a.name)
	}
	if ranOut {
		o.findings.record(catalog.LossNotified, catalog.LeaseEnded, "%s's lease has expired, but %s was not told", a.name, a.name)
	}
}

// judgeLost checks a holder that learns that its lease is lost. The lease must really be lost, and a fault
// must explain why the lease was not renewed.
func (o *oracle) judgeLost(a *actor) {
	a.knowsLoss = true
	how := o.causes.howLost(a)
	// A client counts the TTL from its request, so it may report a loss too early after a late
	// or lost reply. After only one lost reply, it still has time for another request.
	if left := o.leases.leaseLeft(a); o.leases.usesLeases() && !o.causes.heldUp && (!o.causes.isDisturbed() || o.causes.oneReplyLost()) && left > o.cluster.TTL/4 && how == catalog.TakenOver {
		o.findings.record(catalog.LossNotified, 0, "%s was told that its lease was lost, but it was valid for another %s", a.name, left.Round(time.Millisecond))
	}
	if o.cluster.Strategy.Promises.RenewalRetried > 0 && (how == catalog.TakenOver || how == catalog.LeaseEnded) && !o.causes.stopped && !o.causes.mayMissRenewal(0) {
		o.findings.record(catalog.RenewsOwn, how, "%s's lease was not renewed, although no fault had prevented that for half of the TTL", a.name)
	}
}

// sessionExpired reports whether an actor's client was told that the session with the actor's lease
// had expired.
func (w *world) sessionExpired(a *actor) bool {
	return slices.ContainsFunc(serversOf[*zkServer](w.cluster), func(s *zkServer) bool {
		if s.timesExpired(a.inst) == a.expiries {
			return false
		}
		_, stored := s.leaseOf(a.value)
		return !stored
	})
}

func (g *gate) awaitsRenewal(a *actor) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(g.waiting, g.late), func(c *call) bool {
		return c.actor == a && c.phase == tap.Renew && c.node != nil
	})
}

// judgeEvent checks one event of an actor's grab.
func (o *oracle) judgeEvent(a *actor, e history.Event) {
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		o.judgeAcquired(a, e)
	case e.Op == history.Read && e.Kind == history.OK:
		a.inside = o.world.row().Status == order.Open
	case e.Op == history.Claim && e.Kind == history.OK:
		o.judgeClaim(a)
	case e.Op == history.Acquire && (e.Code == history.Taken || e.Code == grab.PerDriver): // this outcome is about the order, not about the lock
	case e.Op == history.Acquire && e.Code == history.Busy:
		o.judgeRefusal(a)
	case e.Op == history.Acquire && e.Kind == history.Fail:
		o.judgeFailedAcquire(a)
	case e.Op == history.Claim && e.Kind == history.Invoke:
		o.judgeWrite(a, e)
	case e.Op == history.Lost:
		o.judgeLost(a)
	case e.Op == history.Grab && e.Kind != history.Invoke:
		o.judgeAnswer(a, e)
	case e.Op == history.Release && e.Kind == history.Invoke:
		a.releasing, a.inside = true, false
	case e.Op == history.Release:
		o.judgeRelease(a, e)
	}
}

// judgeAcquired records that an actor got the lock, and checks whether it may have it.
func (o *oracle) judgeAcquired(a *actor, e history.Event) {
	a.granted, a.fence, a.token = true, e.Fence, e.Token
	a.releasing, a.released, a.knowsLoss, a.missingOn, a.askedOn, a.goneOn = false, false, false, nil, nil, nil
	o.leases.inherit(a)
	if a.held = a.value; len(catalog.Filter(o.cluster.nodes, func(n *node) bool { return mentions(n.contents(), a.value) })) < o.leases.quorum() {
		a.held = "" // its token is unknown
	}
	o.judgeStored(a)
	o.causes.noteGrant(a)
	o.waits.freeFor = 0
	o.waits.judgePatience(a)
	o.judgeGrant(a)
	o.waits.judgeOrder(a)
}

// judgeRefusal checks that an actor who was told that the lock is taken had a competitor, and waited
// long enough.
func (o *oracle) judgeRefusal(a *actor) {
	waited, wait := o.world.elapsed()-a.begin, o.cluster.longestWait()
	hungUp := a.cancelled && !o.world.othersBegan(a) // no other driver has left a lock
	if (o.causes.isAlone(a) && !o.causes.faulted || hungUp) && o.causes.isUnimpeded(a) {
		o.findings.record(catalog.WaitsAsTold, 0, "%s was told that the lock was taken, but no other driver wanted it", a.name)
	}
	if most := o.cluster.Strategy.Promises.GivesUpAfter; waited < wait && (most == 0 || waited < most) {
		o.findings.record(catalog.WaitsAsTold, 0, "%s gave up after %s, but should have waited for %s", a.name, waited.Round(time.Millisecond), wait)
	}
	o.waits.judgePatience(a)
}

// judgeFailedAcquire checks that a fault explains why an actor's acquire failed.
func (o *oracle) judgeFailedAcquire(a *actor) {
	if o.causes.mustSucceed(a) {
		o.findings.record(catalog.WaitsAsTold, 0, "%s's acquire failed, although nothing prevented it", a.name)
	}
	onlyOutages := !o.causes.dataLost && !o.causes.heldUp && o.causes.shown&disturbances == catalog.Unreachable
	// In such a short time, the server cannot have ended a session or a lease.
	if o.world.queues() && onlyOutages && !a.cancelled && a.value != "" && o.world.elapsed()-a.begin < min(o.cluster.Wait, o.cluster.TTL) {
		o.findings.record(catalog.WaitsAsTold, 0, "%s gave up in an outage, although the server still had its place in the queue", a.name)
	}
}

// judgeWrite checks an actor that begins to write. The actor must not know that its lease is lost, and its
// driver must not have hung up.
func (o *oracle) judgeWrite(a *actor, e history.Event) {
	if a.cancelled {
		o.findings.record(catalog.WaitsAsTold, 0, "%s began to write after its driver had hung up", a.name)
	}
	if a.knowsLoss && o.cluster.OnLost == grab.Abort {
		o.findings.record(catalog.LossHeeded, o.causes.howLost(a), "%s began to write after it had been told that its lease was lost", a.name)
	}
	if o.cluster.notifiesLoss && o.cluster.OnLost == grab.Abort && a.believed != 0 && e.T > a.believed {
		o.findings.record(catalog.LossHeeded, o.causes.howLost(a), "%s began to write %s after its lease had ended by its own clock", a.name, (e.T - a.believed).Round(time.Millisecond))
	}
}

// judgeRelease checks that the result of a release agrees with what the servers store.
func (o *oracle) judgeRelease(a *actor, e history.Event) {
	a.inTime = o.leases.leaseLeft(a) > 0
	a.released = e.Kind == history.OK
	answered := !a.releaseCut && !a.arrivedLate // otherwise, an earlier copy of the release may explain the result
	if a.released && answered && len(a.goneOn) > len(o.cluster.nodes)-o.leases.quorum() {
		o.findings.record(catalog.AnswersAgree, 0, "%s was told that it had released its lock, but the lease was already gone", a.name)
	}
	if e.Code == history.LeaseLost && o.cluster.showsToken && o.causes.keptLease(a) {
		o.findings.record(catalog.LossNotified, 0, "%s was told at its release that its lease was lost, but the lease was valid", a.name)
	}
}

// judgeAnswer checks that a driver's response agrees with the ledger.
func (o *oracle) judgeAnswer(a *actor, e history.Event) {
	ledger := o.world.ledger()
	won := slices.ContainsFunc(ledger, a.won)
	otherTry := slices.ContainsFunc(o.world.actors, func(b *actor) bool { return b != a && b.driver == a.driver && b.begun && (!b.done || b.dead) })
	bought := len(catalog.Filter(ledger, func(g order.Grab) bool { return g.Driver == a.driver }))
	limited := o.cluster.units() > 1 && o.cluster.Guard.LimitsDrivers()
	switch {
	case won && e.Kind == history.Fail && !otherTry:
		o.findings.record(catalog.AnswersAgree, 0, "%s was told that it had not won (%s), but the ledger has its row", a.name, e.Note)
	case !won && e.Kind == history.OK:
		o.findings.record(catalog.AnswersAgree, 0, "%s was told that it had won, but the ledger does not have its row", a.name)
	case e.Kind == history.OK && limited && bought > 1:
		o.findings.record(catalog.AnswersAgree, 0, "%s was told that it had won, but its driver already had a unit", a.name)
	case e.Code == history.Taken && len(ledger) == 0 && o.cluster.locks():
		o.findings.record(catalog.AnswersAgree, 0, "%s was told that the order was taken, but the ledger is empty", a.name)
	case e.Code == grab.PerDriver && bought == 0 && !otherTry && (o.cluster.locks() || !o.causes.faulted || o.causes.onlyRepeated): // other faults may lose a reserved unit
		o.findings.record(catalog.AnswersAgree, 0, "%s was told that its driver had enough units, but the ledger has none of them", a.name)
	}
	o.judgeReason(a, e)
}

// judgeReason checks that the reason of a failed grab matches what has happened. It accepts any
// deadline error, because a lock may set timeouts for its own calls.
func (o *oracle) judgeReason(a *actor, e history.Event) {
	failed := e.Kind == history.Info || e.Kind == history.Fail && e.Code != history.Taken && e.Code != grab.PerDriver
	switch {
	case e.Code == grab.Cancelled && !a.cancelled:
		o.findings.record(catalog.AnswersAgree, 0, "%s was told that its grab was cancelled, but its driver had not hung up", a.name)
	case e.Code == history.LeaseLost && o.causes.keptLease(a):
		o.findings.record(catalog.AnswersAgree, 0, "%s was told that its lease was lost, but the lease was valid until its release", a.name)
	case failed && a.granted && (a.inTime || !o.leases.usesLeases()) && o.causes.mustSucceed(a):
		o.findings.record(catalog.AnswersAgree, 0, "%s's grab failed after it had acquired the lock (%s), although nothing prevented it", a.name, e.Note)
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

// judgeGrant checks an actor's new grant against all other actors that have or had the lock. It
// compares their fencing tokens, leases and beliefs.
func (o *oracle) judgeGrant(a *actor) {
	for _, b := range o.world.actors {
		if b == a || !b.granted {
			continue
		}
		if a.fence != 0 && (a.fence == b.fence || a.fence < b.fence && a.before.has(b)) {
			how := o.causes.whyBoth(a, b)
			if o.leases.leaseLeft(a) <= 0 {
				how |= o.causes.howLost(a)
			}
			o.findings.record(catalog.FenceMonotone, how, "%s got token %d after %s had got %d", a.name, a.fence, b.name, b.fence)
		}
		if b.releasing {
			continue
		}
		if o.leases.usesLeases() && o.leases.leaseLeft(b) > 0 && o.leases.leaseLeft(a) > 0 {
			o.findings.record(catalog.LeaseExclusive, o.causes.whyBoth(a, b), "%s got the lock while %s's lease was valid for another %s", a.name, b.name, o.leases.leaseLeft(b).Round(time.Millisecond))
		}
		if o.storesNothing(a) && o.storesNothing(b) {
			o.findings.record(catalog.LeaseExclusive, 0, "%s got the lock while %s had it, and the servers store nothing about either of them", a.name, b.name)
		}
		if o.cluster.notifiesLoss && !b.knowsLoss && !b.lags() && !b.dead {
			o.findings.record(catalog.LossNotified, o.causes.whyBoth(a, b), "%s got the lock while %s believed that it held the lock", a.name, b.name)
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
		o.findings.record(catalog.LeaseExclusive, 0, "%s got the lock, but only %d of %d servers store its lease", a.name, stored, len(o.cluster.nodes))
	}
	if o.cluster.Strategy.Fences && a.fence == 0 {
		o.findings.record(catalog.FenceMonotone, 0, "%s got the lock without a fencing token", a.name)
	}
	if issued := o.world.issued(); a.fence > issued && issued > 0 && !o.causes.dataLost {
		o.findings.record(catalog.FenceMonotone, 0, "%s got token %d, but the server has issued only tokens up to %d", a.name, a.fence, issued)
	}
}

// issued returns the highest value of a counter in Redis, or 0 if the lock leaves no counter there.
func (w *world) issued() (highest uint64) {
	for _, r := range serversOf[*redisServer](w.cluster) {
		for _, c := range r.counters {
			text, _ := r.redis.Get(c.key)
			number, _ := strconv.ParseUint(text, 10, 64) // 0 if the counter is gone
			highest = max(highest, number)
		}
	}
	return highest
}

// storesNothing reports whether no server stores the actor's lock although no fault has occurred.
// If so, the lock cannot exclude other drivers.
func (o *oracle) storesNothing(a *actor) bool {
	return o.cluster.Strategy.Excludes == catalog.Global && o.cluster.Strategy.Needs&lock.SQLLocks == 0 && !o.causes.faulted && len(a.leases) == 0
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

// judgeClaim checks the ledger after an actor's claim has succeeded. It looks for a second winner,
// a stale fencing token, and a write after the lease expired.
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
		o.findings.record(catalog.OneWinner, shown, "%s to %s", what, strings.Join(o.world.winners(ledger), " and to "))
	}
	for _, g := range ledger {
		if g.Fence > a.fence && a.fence != 0 {
			o.findings.record(catalog.StaleWrite, o.causes.howLost(a), "%s wrote with token %d after token %d had been seen", a.name, a.fence, g.Fence)
		}
	}
	for _, b := range o.world.actors {
		if b != a && o.leases.usesLeases() && o.leases.leaseLeft(a) <= 0 && b.granted && b.inside && !b.releasing {
			o.findings.record(catalog.WriteAfterExpiry, o.causes.whyBoth(a, b), "%s wrote after its lease had expired, while %s was inside", a.name, b.name)
		}
	}
}

// winners returns the names of the actors that have won. Two actors can have the same driver, so it
// compares instances as well as drivers.
func (w *world) winners(ledger []order.Grab) []string {
	return catalog.Map(ledger, func(g order.Grab) string {
		return cmp.Or(catalog.First(w.actors, func(a *actor) bool { return a.won(g) }), w.probe).name
	})
}

func (a *actor) won(g order.Grab) bool {
	return a.driver == g.Driver && strconv.Itoa(a.inst.number) == g.Instance
}
