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

// breaks notes a violation, the first of each property, and what is shown of it
// beside what the steps have shown.
func (x *execution) breaks(property string, shown catalog.Facts, why string, args ...any) {
	if slices.ContainsFunc(x.broken, func(v search.Violation) bool { return v.Property == property }) {
		return
	}
	shown |= x.shown | x.Guard.Shows()
	x.broken = append(x.broken, search.Violation{Property: property, Step: x.steps, Facts: shown, Why: fmt.Sprintf(why, args...)})
}

// judge checks the properties against what the instances recorded in the last step.
func (x *execution) judge() {
	x.mu.Lock()
	events := x.events
	x.events = x.events[len(x.events):]
	x.mu.Unlock()
	for _, e := range events {
		if !e.actor.dead { // what its goroutines do in this process is not done any more
			x.judgeEvent(e.actor, e.Event)
		}
	}
	for _, a := range x.actors {
		if !x.heldUp && a.rest > askAtOnce*askEvery*time.Duration(len(x.nodes)) {
			x.breaks(catalog.WaitsAsTold, 0, "%s asks for the lock again and again, with too short a pause", a.name)
		}
	}
	if x.strayRenewal != "" {
		x.breaks(catalog.RenewsOwn, 0, "%s", x.strayRenewal)
	}
	for _, a := range x.actors {
		if !x.notifiesLoss || !a.granted || a.releasing || a.knowsLoss || a.dead {
			continue
		}
		if !a.paused() && len(a.gone) > len(x.nodes)-x.quorum() && !x.unanswered(a, tap.Renew) {
			x.breaks(catalog.LossNotified, x.lost(a), "the renewal of %s has found its lease gone, and %s was not told", a.name, a.name)
		}
		if !a.inst.stopped.Load() && x.ranOut(a) {
			x.breaks(catalog.LossNotified, catalog.LeaseEnded, "the lease of %s has run out, and %s was not told", a.name, a.name)
		}
	}
}

// unanswered says whether servers have calls of the actor yet to answer.
func (x *execution) unanswered(a *actor, phase tap.Phase) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(x.waiting, x.late), func(c *call) bool {
		return c.actor == a && c.phase == phase && c.node != nil
	})
}

// ranOut says whether the actor's lease has ended by the passing of time alone.
func (x *execution) ranOut(a *actor) bool {
	return len(a.leases) > 0 && x.lost(a) == catalog.LeaseEnded
}

func (x *execution) judgeEvent(a *actor, e history.Event) {
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		a.granted, a.fence, a.token = true, e.Fence, e.Token
		a.releasing, a.released, a.knowsLoss, a.gone = false, false, false, nil
		x.inherit(a)
		x.noteGrant(a)
		x.judgeGrant(a)
		x.judgeOrder(a)
	case e.Op == history.Read && e.Kind == history.OK:
		a.inside = x.row().Status == order.Open
	case e.Op == history.Claim && e.Kind == history.OK:
		x.judgeClaim(a)
	case e.Op == history.Acquire && (e.Code == history.Taken || e.Code == grab.PerDriver): // it was told of the order, and not of a lock
	case e.Op == history.Acquire && e.Code == history.Busy:
		waited := x.elapsed() - a.begin
		alone := !slices.ContainsFunc(x.actors, func(b *actor) bool { return b != a && b.begun })
		if alone && x.nothingInTheWay() {
			x.breaks(catalog.WaitsAsTold, 0, "%s was told that the lock is taken, and nobody else has come", a.name)
		}
		if waited < x.Wait || !x.heldUp && !x.disturbed() && waited > x.Wait+x.TTL/20 {
			x.breaks(catalog.WaitsAsTold, 0, "%s gave up after %s, and was to wait for %s", a.name, waited.Round(time.Millisecond), x.Wait)
		}
	case e.Op == history.Acquire && e.Kind == history.Fail:
		if x.nothingInTheWay() {
			x.breaks(catalog.WaitsAsTold, 0, "the acquire of %s failed, and nothing was in its way", a.name)
		}
	case e.Op == history.Claim && e.Kind == history.Invoke:
		if a.knowsLoss && x.OnLost == grab.Abort {
			x.breaks(catalog.LossHeeded, x.lost(a), "%s began to write, and had been told that its lease is lost", a.name)
		}
	case e.Op == history.Lost:
		a.knowsLoss = true
		// A client that was held up or not answered may go by its own count, which began
		// earlier; for one lost reply it has time to ask again.
		if left := x.leaseLeft(a); x.leased() && !x.heldUp && (!x.disturbed() || x.oneReplyLost()) && left > x.TTL/4 && x.lost(a) == catalog.TakenOver {
			x.breaks(catalog.LossNotified, 0, "%s was told that its lease is lost, which has %s to run", a.name, left.Round(time.Millisecond))
		}
	case e.Op == history.Release && e.Kind == history.Invoke:
		a.releasing, a.inside = true, false
	case e.Op == history.Release:
		a.inTime = x.leaseLeft(a) > 0
		a.released = e.Kind == history.OK
	}
}

func (x *execution) ledger() []order.Grab {
	grabs, _ := x.db.Ledger(context.Background(), theOrder, 1) // fails only on a context that has ended
	return grabs
}

// row is the order as the database has it.
func (x *execution) row() order.Order {
	o, _ := x.db.Read(context.Background(), theOrder, 0) // fails only on a context that has ended
	return o
}

func (x *execution) judgeGrant(a *actor) {
	for i, b := range x.actors {
		if b == a || !b.granted {
			continue
		}
		if a.fence != 0 && (a.fence == b.fence || a.fence < b.fence && a.before&(1<<i) != 0) {
			how := x.between(a, b)
			if x.leaseLeft(a) <= 0 {
				how |= x.lost(a)
			}
			x.breaks(catalog.FenceMonotone, how, "%s got token %d after %s had got %d", a.name, a.fence, b.name, b.fence)
		}
		if b.releasing {
			continue
		}
		if x.leased() && x.leaseLeft(b) > 0 && x.leaseLeft(a) > 0 {
			x.breaks(catalog.LeaseExclusive, x.between(a, b), "%s got the lock while %s's lease had %s to run", a.name, b.name, x.leaseLeft(b).Round(time.Millisecond))
		}
		if x.storesNothing(a) && x.storesNothing(b) {
			x.breaks(catalog.LeaseExclusive, 0, "%s got the lock while %s had it, and no server stores anything of either", a.name, b.name)
		}
		if x.notifiesLoss && !b.knowsLoss && !b.paused() && !b.dead {
			x.breaks(catalog.LossNotified, x.between(a, b), "%s got the lock while %s believed to hold it", a.name, b.name)
		}
	}
}

// storesNothing says whether an actor holds a lock of which no server knows, although
// nothing has gone wrong: it locks nothing. The database's own locks are not looked at.
func (x *execution) storesNothing(a *actor) bool {
	return x.Strategy.Excludes == catalog.Global && x.Strategy.Needs&lock.SQLLocks == 0 && !x.faulted && len(a.leases) == 0
}

// judgeOrder is for an actor that has got the lock: those behind whom it came have had
// it, or wait no longer. A queue that a fault has disturbed promises nothing.
func (x *execution) judgeOrder(a *actor) {
	for i, b := range x.actors {
		waits := x.elapsed()-b.begin < x.Wait
		if waits && !x.disturbed() && a.behind&(1<<i) != 0 && !b.granted && !b.done && !b.dead && !b.paused() && !b.cancelled {
			x.breaks(catalog.OrderOfService, 0, "%s got the lock, and %s has waited for longer", a.name, b.name)
		}
	}
}

// nothingInTheWay says whether an acquire may be expected to have its answers: there was
// no fault, and none was later than the strategy promises to wait for.
func (x *execution) nothingInTheWay() bool {
	patience := time.Duration(x.Strategy.Promises.Patience * float64(x.TTL))
	return !x.faulted && (!x.heldUp || 0 < x.heldUpFor && x.heldUpFor < patience)
}

// disturbed says whether servers have forgotten what they stored, or messages were not
// answered at once.
func (x *execution) disturbed() bool { return x.forgot || x.shown&disturbances != 0 }

const disturbances = catalog.Unreachable | catalog.CutOff | catalog.WakeUpLost | catalog.ReplyWasLost | catalog.Delayed

// oneReplyLost says whether a reply was lost, and nothing else was in the clients' way.
func (x *execution) oneReplyLost() bool {
	return !x.forgot && x.shown&disturbances == catalog.ReplyWasLost
}

// queuesBehind are the actors that wait in order when another one comes, a bit each:
// those who have nothing more to say to a server.
func (x *execution) queuesBehind(a *actor) (behind uint8) {
	among := x.Strategy.Promises.InOrder
	for i, b := range x.actors {
		if among != catalog.Global && (among != catalog.PerProcess || a.inst != b.inst) {
			continue
		}
		busy := slices.ContainsFunc(slices.Concat(x.waiting, x.late, x.inFlight), func(c *call) bool {
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

func (x *execution) judgeClaim(a *actor) {
	ledger := x.ledger()
	if check.CountGrabs(ledger, x.Stock).DoubleGrabs > 0 {
		var shown catalog.Facts
		for i, b := range x.actors {
			if b != a && slices.ContainsFunc(ledger, b.won) {
				shown |= x.between(a, b)
			}
			for _, c := range x.actors[:i] { // of several units, who was inside with whom is between two others
				if x.units() > 1 && slices.ContainsFunc(ledger, b.won) && slices.ContainsFunc(ledger, c.won) {
					shown |= x.between(b, c)
				}
			}
		}
		what := "the order was given"
		if x.units() > 1 {
			what = fmt.Sprintf("of %d units %d were sold,", x.units(), len(ledger))
		}
		x.breaks(catalog.OneWinner, shown, "%s to %s", what, strings.Join(x.winners(ledger), " and to "))
	}
	for _, g := range ledger {
		if g.Fence > a.fence && a.fence != 0 {
			x.breaks(catalog.StaleWrite, x.lost(a), "%s wrote with token %d after token %d had been seen", a.name, a.fence, g.Fence)
		}
	}
	for _, b := range x.actors {
		if b != a && x.leased() && x.leaseLeft(a) <= 0 && b.granted && b.inside && !b.releasing {
			x.breaks(catalog.WriteAfterExpiry, x.between(a, b), "%s wrote after its lease had run out, and %s was inside", a.name, b.name)
		}
	}
}

// never is more steps than there are.
const never = search.MaxSteps + 1

// toGo is a lower bound of how many steps it takes until one of the properties can
// break. There is one for one-winner alone: until an actor more can have won than there
// are units.
func (x *execution) toGo(properties []string) int {
	if !slices.Equal(properties, []string{catalog.OneWinner}) {
		return 1
	}
	ledger := x.ledger()
	toWin := []int{never} // so that two can be added
	for _, a := range x.actors {
		toWin = append(toWin, x.toWin(a, ledger))
	}
	slices.Sort(toWin)
	steps := 0
	for i := range x.units() + 1 {
		steps = min(steps+toWin[min(i, len(toWin)-1)], never)
	}
	return steps
}

// toWin is a lower bound of how many steps it takes until an actor has won: 0 if it has.
func (x *execution) toWin(a *actor, ledger []order.Grab) int {
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
	steps := 2 + max(0, x.quorum()-len(a.leases))
	if !a.begun {
		steps++
	}
	return steps
}

// winners are the actors in the ledger. Two actors may have one driver, but not on
// one instance.
func (x *execution) winners(ledger []order.Grab) []string {
	names := make([]string, len(ledger))
	for i, g := range ledger {
		names[i] = cmp.Or(find(x.actors, func(a *actor) bool { return a.won(g) }), x.probe).name
	}
	return names
}

// won says whether the row of the ledger is the actor's.
func (a *actor) won(g order.Grab) bool {
	return a.driver == g.Driver && strconv.Itoa(a.inst.number) == g.Instance
}

// waitersForFreeLocked are the actors that wait for a lock which no actor has and
// no call is about.
func (x *execution) waitersForFreeLocked() []*actor {
	if x.queues() && x.disturbed() {
		return nil // a session that was cut off has to be taken up again first
	}
	up := slices.DeleteFunc(slices.Clone(x.nodes), func(n *node) bool { return n.down.Load() })
	if len(up) < x.quorum() {
		return nil
	}
	var waiters []*actor
	for _, a := range x.actors {
		own := func(c *call) bool { return c.actor == a }
		if a.paused() || a.hung || len(a.inst.cut) > 0 || !a.dead && slices.ContainsFunc(x.waiting, own) || slices.ContainsFunc(x.late, own) ||
			a.granted && !a.released || !a.granted && a.dead || x.leaseLeft(a) > 0 && !a.released && !x.isFirst(a) {
			return nil
		}
		if a.begun && !a.done && !a.granted && !x.hasSession(a.inst) {
			return nil // its client has to open a session before it can hear of the lock
		}
		if a.begun && !a.done && !a.granted {
			waiters = append(waiters, a)
		}
	}
	return waiters
}

// hasSession reports whether an instance has a session with every server that needs one.
func (x *execution) hasSession(inst *instance) bool {
	return !slices.ContainsFunc(x.nodes, func(n *node) bool {
		s, ok := n.lockServer.(sessioned)
		return ok && !s.connected(inst)
	})
}

// isFirst says whether a waiter is the first in the queue of a server, and does not know it.
func (x *execution) isFirst(a *actor) bool {
	return a.begun && !a.done && !a.granted && !a.dead && x.queues()
}

// queues says whether the strategy's waiters queue on a server: there the first has the
// lock.
func (x *execution) queues() bool {
	return x.Strategy.Needs&(lock.ZooKeeper|lock.Etcd) != 0
}

// judgeWait is for actors that have waited so long for a lock that was free.
func (x *execution) judgeWait(waiters []*actor) {
	bound := time.Duration(cmp.Or(x.Strategy.Promises.WakeUp, 0.5) * float64(x.TTL))
	if !x.disturbed() && !(x.queues() && x.heldUp) { // a session may have to be taken up again
		heard := cmp.Or(x.Strategy.Promises.Heard, 0.1)
		bound = min(bound, max(longestPause, time.Duration(heard*float64(x.TTL))))
	}
	if len(waiters) > 0 && x.freeFor >= bound {
		x.breaks(catalog.NoLostWakeup, 0, "%s waited %s for a lock that was free", waiters[0].name, x.freeFor.Round(time.Millisecond))
	}
}

// longestPause is that of the strategies which ask again and again.
const longestPause = 300 * time.Millisecond

// judgeEnd looks at what is left: at once, and when all leases have run out. A request
// that was late, or was not sent, excuses what it leaves until then, and no longer.
func (x *execution) judgeEnd() {
	x.judgeReleases()
	left := 0
	if !x.mayLeaveLock && !slices.ContainsFunc(x.actors, func(a *actor) bool { return a.hung || a.dead && a.onAnyNode() }) {
		x.judgeResidue()
		told := false
		if told, left = x.answered(); told {
			return
		}
		if left == 0 {
			x.judgeBusy()
		}
	}
	for range tries {
		time.Sleep(x.TTL)
		x.timePassed()
		told := false
		if told, left = x.answered(); told {
			x.judgeRemains()
			return
		}
	}
	if left > 0 {
		x.breaks(catalog.StuckOrder, 0, "a fresh driver is told that the order is taken, and the ledger has %d of its %s", x.units()-left, catalog.Plural(x.units(), "unit", "units"))
		return
	}
	x.breaks(catalog.StuckOrder, 0, "all leases have run out, and a fresh grab is neither grabbed nor taken")
}

// judgeReleases is for a lock that a server still has for an actor which has released
// it while its lease ran: it was told that it did, or its strategy promises to go on
// until it has. What was down has it until it is asked again.
func (x *execution) judgeReleases() {
	if x.shown&(catalog.Unreachable|catalog.CutOff) != 0 {
		return
	}
	for _, a := range x.actors {
		tried := a.granted && a.inTime && !a.dead && !a.cancelled && !a.arrivedLate && x.showsToken
		if tried && (a.released || x.Strategy.Promises.ReleaseRetried && x.leaseLeft(a) > 0) && x.stores(a.token) {
			x.breaks(catalog.ReleaseEffective, 0, "%s has released its lock while the lease ran, and a server still has it", a.name)
		}
	}
}

// leftByCut says whether an entry is of an actor whose release came to no reply, and which
// promised no other.
func (x *execution) leftByCut(e entry) bool {
	return !x.Strategy.Promises.ReleaseRetried && slices.ContainsFunc(x.actors, func(a *actor) bool {
		return a.releaseCut && !a.released && (!x.showsToken || mentions(e.line, a.token))
	})
}

// judgeRemains is for what still names an actor when all leases have run out.
func (x *execution) judgeRemains() {
	for _, e := range x.entries() {
		if !slices.Contains(x.residue, e.key) && strings.Contains(e.line, tokenPrefix) {
			x.breaks(catalog.NoResidue, 0, "all leases have run out, and %s still holds %s", e.node, e.line)
		}
	}
}

// tries is for how many leases a fresh grab is tried.
const tries = 3

// answered says whether a fresh grab gets an answer, and one that is true: fresh drivers
// are grabbed until one is told that the order is taken, and then none of its units may be
// left. How many are is returned with a false.
func (x *execution) answered() (told bool, left int) {
	for range x.units() {
		x.probes++
		answer := x.prober.service.Grab(context.Background(), grab.Request{Order: theOrder, Driver: x.probe.driver + int64(x.probes-1), TryOnce: true})
		switch answer.Outcome {
		case grab.Grabbed:
		case grab.Taken:
			left = max(0, x.units()-len(x.ledger()))
			return left == 0, left
		default:
			return false, 0
		}
	}
	return true, 0
}

// judgeBusy is for a lock that cannot be had although all actors have ended:
// either its holder has not released it, or it never had a holder.
func (x *execution) judgeBusy() {
	stays, never, dead, cut := false, false, false, false
	for _, a := range x.actors {
		dead = dead || a.dead
		cut = cut || a.releaseCut && !a.released && !x.Strategy.Promises.ReleaseRetried // and its driver was told so
		stays = stays || a.granted && a.inTime && (!a.released || x.showsToken && x.stores(a.token))
		never = never || a.begun && !a.granted
	}
	switch {
	case cut:
	case stays:
		x.breaks(catalog.ReleaseEffective, 0, "the lock was released while the lease ran, and cannot be had")
	case never && !dead:
		x.breaks(catalog.NoResidue, 0, "the lock cannot be had, and no actor has it")
	}
}

// judgeResidue compares what the servers hold with what a grab leaves that was not
// disturbed. It is not judged once a lease could run out: what there is may be left
// to its expiry.
func (x *execution) judgeResidue() {
	if x.elapsed() >= x.TTL {
		return
	}
	for _, e := range x.entries() {
		if !slices.Contains(x.residue, e.key) && !x.leftByCut(e) {
			x.breaks(catalog.NoResidue, 0, "%s still holds %s", e.node, e.line)
			return
		}
	}
}

// stores says whether a server has the token.
func (x *execution) stores(token string) bool {
	return slices.ContainsFunc(x.nodes, func(n *node) bool { return mentions(n.contents(), token) })
}

// entry is a line of what a server holds.
type entry struct{ node, key, line string }

// entries are what all servers hold.
func (x *execution) entries() []entry {
	var all []entry
	for _, n := range x.nodes {
		for line := range strings.Lines(n.contents()) {
			key, _, _ := strings.Cut(line, " = ")
			all = append(all, entry{n.name, key, strings.TrimSpace(line)})
		}
	}
	return all
}
