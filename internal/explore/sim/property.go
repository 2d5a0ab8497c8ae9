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

// oracle judges the properties. It receives the events that the instances recorded in a
// step, and reads the world, but changes nothing in it.
type oracle struct {
	cluster *Cluster
	world   *world
	gate    *gate
	leases  *leaseBook
	causes  *causes

	heldUp    bool          // time has passed while a call could go through or an actor was paused
	heldUpFor time.Duration // how much time passed while a call could go through
	faulted   bool          // a step was neither a call nor the passing of time
	freeFor   time.Duration // how long actors have waited for a lock that was free
	steps     int           // the number of steps made
	probes    int           // the number of fresh drivers that have grabbed at the end
	broken    []search.Violation
}

// breaks notes a violation, the first of each property, and what is shown of it
// beside what the steps have shown.
func (o *oracle) breaks(property string, shown catalog.Facts, why string, args ...any) {
	if slices.ContainsFunc(o.broken, func(v search.Violation) bool { return v.Property == property }) {
		return
	}
	shown |= o.causes.shown | o.cluster.Guard.Shows()
	o.broken = append(o.broken, search.Violation{Property: property, Step: o.steps, Facts: shown, Why: fmt.Sprintf(why, args...)})
}

// judge checks the properties against what the instances recorded in the last step.
func (o *oracle) judge() {
	o.gate.mu.Lock()
	events := o.world.events
	o.world.events = o.world.events[len(o.world.events):]
	o.gate.mu.Unlock()
	for _, e := range events {
		if !e.actor.dead { // what its goroutines do in this process is not done any more
			o.judgeEvent(e.actor, e.Event)
		}
	}
	for _, a := range o.world.actors {
		if !o.heldUp && a.rest > askAtOnce*askEvery*time.Duration(len(o.cluster.nodes)) {
			o.breaks(catalog.WaitsAsTold, 0, "%s asks for the lock again and again, with too short a pause", a.name)
		}
	}
	if o.leases.strayRenewal != "" {
		o.breaks(catalog.RenewsOwn, 0, "%s", o.leases.strayRenewal)
	}
	for _, a := range o.world.actors {
		if !o.cluster.notifiesLoss || !a.granted || a.releasing || a.knowsLoss || a.dead {
			continue
		}
		if !a.paused() && len(a.gone) > len(o.cluster.nodes)-o.leases.quorum() && !o.unanswered(a, tap.Renew) {
			o.breaks(catalog.LossNotified, o.causes.lost(a), "the renewal of %s has found its lease gone, and %s was not told", a.name, a.name)
		}
		if !a.inst.stopped.Load() && o.ranOut(a) {
			o.breaks(catalog.LossNotified, catalog.LeaseEnded, "the lease of %s has run out, and %s was not told", a.name, a.name)
		}
	}
}

// unanswered says whether servers have calls of the actor yet to answer.
func (o *oracle) unanswered(a *actor, phase tap.Phase) bool {
	o.gate.mu.Lock()
	defer o.gate.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(o.gate.waiting, o.gate.late), func(c *call) bool {
		return c.actor == a && c.phase == phase && c.node != nil
	})
}

// ranOut says whether the actor's lease has ended by the passing of time alone.
func (o *oracle) ranOut(a *actor) bool {
	return len(a.leases) > 0 && o.causes.lost(a) == catalog.LeaseEnded
}

func (o *oracle) judgeEvent(a *actor, e history.Event) {
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		a.granted, a.fence, a.token = true, e.Fence, e.Token
		a.releasing, a.released, a.knowsLoss, a.gone = false, false, false, nil
		o.leases.inherit(a)
		o.causes.noteGrant(a)
		o.freeFor = 0
		o.judgeGrant(a)
		o.judgeOrder(a)
	case e.Op == history.Read && e.Kind == history.OK:
		a.inside = o.world.row().Status == order.Open
	case e.Op == history.Claim && e.Kind == history.OK:
		o.judgeClaim(a)
	case e.Op == history.Acquire && (e.Code == history.Taken || e.Code == grab.PerDriver): // it was told of the order, and not of a lock
	case e.Op == history.Acquire && e.Code == history.Busy:
		waited := o.world.elapsed() - a.begin
		alone := !slices.ContainsFunc(o.world.actors, func(b *actor) bool { return b != a && b.begun })
		if alone && o.nothingInTheWay() {
			o.breaks(catalog.WaitsAsTold, 0, "%s was told that the lock is taken, and nobody else has come", a.name)
		}
		if waited < o.cluster.Wait || !o.heldUp && !o.causes.disturbed() && waited > o.cluster.Wait+o.cluster.TTL/20 {
			o.breaks(catalog.WaitsAsTold, 0, "%s gave up after %s, and was to wait for %s", a.name, waited.Round(time.Millisecond), o.cluster.Wait)
		}
	case e.Op == history.Acquire && e.Kind == history.Fail:
		if o.nothingInTheWay() {
			o.breaks(catalog.WaitsAsTold, 0, "the acquire of %s failed, and nothing was in its way", a.name)
		}
	case e.Op == history.Claim && e.Kind == history.Invoke:
		if a.knowsLoss && o.cluster.OnLost == grab.Abort {
			o.breaks(catalog.LossHeeded, o.causes.lost(a), "%s began to write, and had been told that its lease is lost", a.name)
		}
	case e.Op == history.Lost:
		a.knowsLoss = true
		// A client that was held up or not answered may go by its own count, which began
		// earlier; for one lost reply it has time to ask again.
		if left := o.leases.leaseLeft(a); o.leases.leased() && !o.heldUp && (!o.causes.disturbed() || o.causes.oneReplyLost()) && left > o.cluster.TTL/4 && o.causes.lost(a) == catalog.TakenOver {
			o.breaks(catalog.LossNotified, 0, "%s was told that its lease is lost, which has %s to run", a.name, left.Round(time.Millisecond))
		}
	case e.Op == history.Release && e.Kind == history.Invoke:
		a.releasing, a.inside = true, false
	case e.Op == history.Release:
		a.inTime = o.leases.leaseLeft(a) > 0
		a.released = e.Kind == history.OK
	}
}

func (w *world) ledger() []order.Grab {
	grabs, _ := w.db.Ledger(context.Background(), theOrder, 1) // fails only on a context that has ended
	return grabs
}

// row is the order as the database has it.
func (w *world) row() order.Order {
	o, _ := w.db.Read(context.Background(), theOrder, 0) // fails only on a context that has ended
	return o
}

func (o *oracle) judgeGrant(a *actor) {
	for i, b := range o.world.actors {
		if b == a || !b.granted {
			continue
		}
		if a.fence != 0 && (a.fence == b.fence || a.fence < b.fence && a.before&(1<<i) != 0) {
			how := o.causes.between(a, b)
			if o.leases.leaseLeft(a) <= 0 {
				how |= o.causes.lost(a)
			}
			o.breaks(catalog.FenceMonotone, how, "%s got token %d after %s had got %d", a.name, a.fence, b.name, b.fence)
		}
		if b.releasing {
			continue
		}
		if o.leases.leased() && o.leases.leaseLeft(b) > 0 && o.leases.leaseLeft(a) > 0 {
			o.breaks(catalog.LeaseExclusive, o.causes.between(a, b), "%s got the lock while %s's lease had %s to run", a.name, b.name, o.leases.leaseLeft(b).Round(time.Millisecond))
		}
		if o.storesNothing(a) && o.storesNothing(b) {
			o.breaks(catalog.LeaseExclusive, 0, "%s got the lock while %s had it, and no server stores anything of either", a.name, b.name)
		}
		if o.cluster.notifiesLoss && !b.knowsLoss && !b.paused() && !b.dead {
			o.breaks(catalog.LossNotified, o.causes.between(a, b), "%s got the lock while %s believed to hold it", a.name, b.name)
		}
	}
}

// storesNothing says whether an actor holds a lock of which no server knows, although
// nothing has gone wrong: it locks nothing. The database's own locks are not looked at.
func (o *oracle) storesNothing(a *actor) bool {
	return o.cluster.Strategy.Excludes == catalog.Global && o.cluster.Strategy.Needs&lock.SQLLocks == 0 && !o.faulted && len(a.leases) == 0
}

// judgeOrder is for an actor that has got the lock: those behind whom it came have had
// it, or wait no longer. A queue that a fault has disturbed promises nothing.
func (o *oracle) judgeOrder(a *actor) {
	for i, b := range o.world.actors {
		waits := o.world.elapsed()-b.begin < o.cluster.Wait
		if waits && !o.causes.disturbed() && a.behind&(1<<i) != 0 && !b.granted && !b.done && !b.dead && !b.paused() && !b.cancelled {
			o.breaks(catalog.OrderOfService, 0, "%s got the lock, and %s has waited for longer", a.name, b.name)
		}
	}
}

// nothingInTheWay says whether an acquire may be expected to have its answers: there was
// no fault, and none was later than the strategy promises to wait for.
func (o *oracle) nothingInTheWay() bool {
	patience := time.Duration(o.cluster.Strategy.Promises.Patience * float64(o.cluster.TTL))
	return !o.faulted && (!o.heldUp || 0 < o.heldUpFor && o.heldUpFor < patience)
}

// disturbed says whether servers have forgotten what they stored, or messages were not
// answered at once.
func (s *causes) disturbed() bool { return s.forgot || s.shown&disturbances != 0 }

const disturbances = catalog.Unreachable | catalog.CutOff | catalog.WakeUpLost | catalog.ReplyWasLost | catalog.Delayed

// oneReplyLost says whether a reply was lost, and nothing else was in the clients' way.
func (s *causes) oneReplyLost() bool {
	return !s.forgot && s.shown&disturbances == catalog.ReplyWasLost
}

// queuesBehind are the actors that wait in order when another one comes, a bit each:
// those who have nothing more to say to a server.
func (o *oracle) queuesBehind(a *actor) (behind uint8) {
	among := o.cluster.Strategy.Promises.InOrder
	for i, b := range o.world.actors {
		if among != catalog.Global && (among != catalog.PerProcess || a.inst != b.inst) {
			continue
		}
		busy := slices.ContainsFunc(slices.Concat(o.gate.waiting, o.gate.late, o.gate.inFlight), func(c *call) bool {
			return c.actor == b || c.actor.inst == b.inst && c.node != nil // which may be for b
		})
		if b != a && b.begun && !b.granted && !b.done && !b.dead && !b.paused() && !busy {
			behind |= 1 << i
		}
	}
	return behind
}

// lookedFor is whose lease a renewal was for, and whether it was gone.
type lookedFor struct {
	actor *actor
	gone  bool
}

// answerLocked notes what the reply to a renewal lets its actors know.
func (c *call) answerLocked() {
	for _, l := range c.gone {
		l.actor.gone = slices.DeleteFunc(l.actor.gone, func(n *node) bool { return n == c.node })
		if l.gone {
			l.actor.gone = append(l.actor.gone, c.node)
		}
	}
}

func (o *oracle) judgeClaim(a *actor) {
	ledger := o.world.ledger()
	if check.CountGrabs(ledger, o.cluster.Stock).DoubleGrabs > 0 {
		var shown catalog.Facts
		for i, b := range o.world.actors {
			if b != a && slices.ContainsFunc(ledger, b.won) {
				shown |= o.causes.between(a, b)
			}
			for _, c := range o.world.actors[:i] { // of several units, who was inside with whom is between two others
				if o.cluster.units() > 1 && slices.ContainsFunc(ledger, b.won) && slices.ContainsFunc(ledger, c.won) {
					shown |= o.causes.between(b, c)
				}
			}
		}
		what := "the order was given"
		if o.cluster.units() > 1 {
			what = fmt.Sprintf("of %d units %d were sold,", o.cluster.units(), len(ledger))
		}
		o.breaks(catalog.OneWinner, shown, "%s to %s", what, strings.Join(o.winners(ledger), " and to "))
	}
	for _, g := range ledger {
		if g.Fence > a.fence && a.fence != 0 {
			o.breaks(catalog.StaleWrite, o.causes.lost(a), "%s wrote with token %d after token %d had been seen", a.name, a.fence, g.Fence)
		}
	}
	for _, b := range o.world.actors {
		if b != a && o.leases.leased() && o.leases.leaseLeft(a) <= 0 && b.granted && b.inside && !b.releasing {
			o.breaks(catalog.WriteAfterExpiry, o.causes.between(a, b), "%s wrote after its lease had run out, and %s was inside", a.name, b.name)
		}
	}
}

// never is more steps than there are.
const never = search.MaxSteps + 1

// toGo is a lower bound of how many steps it takes until one of the properties can
// break. There is one for one-winner alone: until an actor more can have won than there
// are units.
func (o *oracle) toGo(properties []string) int {
	if !slices.Equal(properties, []string{catalog.OneWinner}) {
		return 1
	}
	ledger := o.world.ledger()
	toWin := []int{never} // so that two can be added
	for _, a := range o.world.actors {
		toWin = append(toWin, o.toWin(a, ledger))
	}
	slices.Sort(toWin)
	steps := 0
	for i := range o.cluster.units() + 1 {
		steps = min(steps+toWin[min(i, len(toWin)-1)], never)
	}
	return steps
}

// toWin is a lower bound of how many steps it takes until an actor has won: 0 if it has.
func (o *oracle) toWin(a *actor, ledger []order.Grab) int {
	switch {
	case slices.ContainsFunc(ledger, func(g order.Grab) bool { return g.Driver == a.driver }):
		return 0
	case a.done || a.dead || a.hung || a.releasing:
		return never
	case a.inside:
		return 1 // its claim
	case a.granted:
		return 2 // and its read
	}
	steps := 2 + max(0, o.leases.quorum()-len(a.leases))
	if !a.begun {
		steps++
	}
	return steps
}

// winners are the actors in the ledger. Two actors may have one driver, but not on
// one instance.
func (o *oracle) winners(ledger []order.Grab) []string {
	names := make([]string, len(ledger))
	for i, g := range ledger {
		names[i] = cmp.Or(find(o.world.actors, func(a *actor) bool { return a.won(g) }), o.world.probe).name
	}
	return names
}

// won says whether the row of the ledger is the actor's.
func (a *actor) won(g order.Grab) bool {
	return a.driver == g.Driver && strconv.Itoa(a.inst.number) == g.Instance
}

// waitersForFreeLocked are the actors that wait for a lock which no actor has and
// no call is about.
func (o *oracle) waitersForFreeLocked() []*actor {
	if o.world.queues() && o.causes.disturbed() {
		return nil // a session that was cut off has to be taken up again first
	}
	up := slices.DeleteFunc(slices.Clone(o.cluster.nodes), func(n *node) bool { return n.down.Load() })
	if len(up) < o.leases.quorum() {
		return nil
	}
	var waiters []*actor
	for _, a := range o.world.actors {
		own := func(c *call) bool { return c.actor == a }
		if a.paused() || a.hung || len(a.inst.cut) > 0 || !a.dead && slices.ContainsFunc(o.gate.waiting, own) || slices.ContainsFunc(o.gate.late, own) ||
			a.granted && !a.released || !a.granted && a.dead || o.leases.leaseLeft(a) > 0 && !a.released && !o.isFirst(a) {
			return nil
		}
		if a.begun && !a.done && !a.granted && !o.world.hasSession(a.inst) {
			return nil // its client has to open a session before it can hear of the lock
		}
		if a.begun && !a.done && !a.granted {
			waiters = append(waiters, a)
		}
	}
	return waiters
}

// hasSession reports whether an instance has a session with every server that needs one.
func (w *world) hasSession(inst *instance) bool {
	return !slices.ContainsFunc(w.cluster.nodes, func(n *node) bool {
		s, ok := n.lockServer.(sessioned)
		return ok && !s.connected(inst)
	})
}

// isFirst says whether a waiter is the first in the queue of a server, and does not know it.
func (o *oracle) isFirst(a *actor) bool {
	return a.begun && !a.done && !a.granted && !a.dead && o.world.queues()
}

// queues says whether the strategy's waiters queue on a server: there the first has the
// lock.
func (w *world) queues() bool {
	return w.cluster.Strategy.Needs&(lock.ZooKeeper|lock.Etcd) != 0
}

// judgeWait is for actors that have waited so long for a lock that was free.
func (o *oracle) judgeWait(waiters []*actor) {
	bound := time.Duration(cmp.Or(o.cluster.Strategy.Promises.WakeUp, 0.5) * float64(o.cluster.TTL))
	if !o.causes.disturbed() && !(o.world.queues() && o.heldUp) { // a session may have to be taken up again
		heard := cmp.Or(o.cluster.Strategy.Promises.Heard, 0.1)
		bound = min(bound, max(longestPause, time.Duration(heard*float64(o.cluster.TTL))))
	}
	if len(waiters) > 0 && o.freeFor >= bound {
		o.breaks(catalog.NoLostWakeup, 0, "%s waited %s for a lock that was free", waiters[0].name, o.freeFor.Round(time.Millisecond))
	}
}

// longestPause is that of the strategies which ask again and again.
const longestPause = 300 * time.Millisecond

// judgeEnd looks at what is left: at once, and when all leases have run out. A request
// that was late, or was not sent, excuses what it leaves until then, and no longer.
func (o *oracle) judgeEnd() {
	o.judgeReleases()
	left := 0
	if !o.gate.mayLeaveLock && !slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.hung || a.dead && a.onAnyNode() }) {
		o.judgeResidue()
		told := false
		if told, left = o.answered(); told {
			return
		}
		if left == 0 {
			o.judgeBusy()
		}
	}
	for range tries {
		time.Sleep(o.cluster.TTL)
		o.world.timePassed()
		told := false
		if told, left = o.answered(); told {
			o.judgeRemains()
			return
		}
	}
	if left > 0 {
		o.breaks(catalog.StuckOrder, 0, "a fresh driver is told that the order is taken, and the ledger has %d of its %s", o.cluster.units()-left, catalog.Plural(o.cluster.units(), "unit", "units"))
		return
	}
	o.breaks(catalog.StuckOrder, 0, "all leases have run out, and a fresh grab is neither grabbed nor taken")
}

// judgeReleases is for a lock that a server still has for an actor which has released
// it while its lease ran: it was told that it did, or its strategy promises to go on
// until it has. What was down has it until it is asked again.
func (o *oracle) judgeReleases() {
	if o.causes.shown&(catalog.Unreachable|catalog.CutOff) != 0 {
		return
	}
	for _, a := range o.world.actors {
		tried := a.granted && a.inTime && !a.dead && !a.cancelled && !a.arrivedLate && o.cluster.showsToken
		if tried && (a.released || o.cluster.Strategy.Promises.ReleaseRetried && o.leases.leaseLeft(a) > 0) && o.world.stores(a.token) {
			o.breaks(catalog.ReleaseEffective, 0, "%s has released its lock while the lease ran, and a server still has it", a.name)
		}
	}
}

// leftByCut says whether an entry is of an actor whose release came to no reply, and which
// promised no other.
func (o *oracle) leftByCut(e entry) bool {
	return !o.cluster.Strategy.Promises.ReleaseRetried && slices.ContainsFunc(o.world.actors, func(a *actor) bool {
		return a.releaseCut && !a.released && (!o.cluster.showsToken || mentions(e.line, a.token))
	})
}

// judgeRemains is for what still names an actor when all leases have run out.
func (o *oracle) judgeRemains() {
	for _, e := range o.world.entries() {
		if !slices.Contains(o.cluster.residue, e.key) && strings.Contains(e.line, tokenPrefix) {
			o.breaks(catalog.NoResidue, 0, "all leases have run out, and %s still holds %s", e.node, e.line)
		}
	}
}

// tries is for how many leases a fresh grab is tried.
const tries = 3

// answered says whether a fresh grab gets an answer, and one that is true: fresh drivers
// are grabbed until one is told that the order is taken, and then none of its units may be
// left. How many are is returned with a false.
func (o *oracle) answered() (told bool, left int) {
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

// judgeBusy is for a lock that cannot be had although all actors have ended:
// either its holder has not released it, or it never had a holder.
func (o *oracle) judgeBusy() {
	stays, never, dead, cut := false, false, false, false
	for _, a := range o.world.actors {
		dead = dead || a.dead
		cut = cut || a.releaseCut && !a.released && !o.cluster.Strategy.Promises.ReleaseRetried // and its driver was told so
		stays = stays || a.granted && a.inTime && (!a.released || o.cluster.showsToken && o.world.stores(a.token))
		never = never || a.begun && !a.granted
	}
	switch {
	case cut:
	case stays:
		o.breaks(catalog.ReleaseEffective, 0, "the lock was released while the lease ran, and cannot be had")
	case never && !dead:
		o.breaks(catalog.NoResidue, 0, "the lock cannot be had, and no actor has it")
	}
}

// judgeResidue compares what the servers hold with what a grab leaves that was not
// disturbed. It is not judged once a lease could run out: what there is may be left
// to its expiry.
func (o *oracle) judgeResidue() {
	if o.world.elapsed() >= o.cluster.TTL {
		return
	}
	for _, e := range o.world.entries() {
		if !slices.Contains(o.cluster.residue, e.key) && !o.leftByCut(e) {
			o.breaks(catalog.NoResidue, 0, "%s still holds %s", e.node, e.line)
			return
		}
	}
}

// stores says whether a server has the token.
func (w *world) stores(token string) bool {
	return slices.ContainsFunc(w.cluster.nodes, func(n *node) bool { return mentions(n.contents(), token) })
}

// entry is a line of what a server holds.
type entry struct{ node, key, line string }

// entries are what all servers hold.
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
