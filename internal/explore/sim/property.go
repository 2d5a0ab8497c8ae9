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
	"grablab/internal/history"
	"grablab/internal/order"
)

// breaks notes a violation, the first of each property.
func (x *execution) breaks(property, why string, args ...any) {
	if !slices.ContainsFunc(x.broken, func(v search.Violation) bool { return v.Property == property }) {
		x.broken = append(x.broken, search.Violation{Property: property, Step: x.steps, Why: fmt.Sprintf(why, args...)})
	}
}

// judge checks the properties against what the instances recorded in the last step.
func (x *execution) judge() {
	x.mu.Lock()
	events := x.events
	x.events = x.events[len(x.events):]
	x.mu.Unlock()
	for _, e := range events {
		x.judgeEvent(e.actor, e.Event)
	}
}

func (x *execution) judgeEvent(a *actor, e history.Event) {
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		a.granted, a.fence, a.token = true, e.Fence, e.Token
		a.releasing, a.released, a.knowsLoss = false, false, false
		x.inherit(a)
		x.judgeGrant(a)
	case e.Op == history.Read && e.Kind == history.OK:
		a.inside = len(x.ledger()) == 0
	case e.Op == history.Claim && e.Kind == history.OK:
		x.judgeClaim(a)
	case e.Op == history.Lost:
		a.knowsLoss = true
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

func (x *execution) judgeGrant(a *actor) {
	for i, b := range x.actors {
		if b == a || !b.granted {
			continue
		}
		if a.fence != 0 && (a.fence == b.fence || a.fence < b.fence && a.before&(1<<i) != 0) {
			x.breaks(catalog.FenceMonotone, "%s got token %d after %s had got %d", a.name, a.fence, b.name, b.fence)
		}
		if b.releasing {
			continue
		}
		if x.leased() && x.leaseLeft(b) > 0 && x.leaseLeft(a) > 0 {
			x.breaks(catalog.LeaseExclusive, "%s got the lock while %s's lease had %s to run", a.name, b.name, x.leaseLeft(b).Round(time.Millisecond))
		}
		if x.notifiesLoss && !b.knowsLoss && !b.paused && !b.dead {
			x.breaks(catalog.LossNotified, "%s got the lock while %s believed to hold it", a.name, b.name)
		}
	}
}

func (x *execution) judgeClaim(a *actor) {
	ledger := x.ledger()
	if check.CountGrabs(ledger).DoubleGrabs > 0 {
		x.breaks(catalog.OneWinner, "the order was given to %s", strings.Join(x.winners(ledger), " and to "))
	}
	for _, g := range ledger {
		if g.Fence > a.fence && a.fence != 0 {
			x.breaks(catalog.StaleWrite, "%s wrote with token %d after token %d had been seen", a.name, a.fence, g.Fence)
		}
	}
	for _, b := range x.actors {
		if b != a && x.leased() && x.leaseLeft(a) <= 0 && b.granted && b.inside && !b.releasing {
			x.breaks(catalog.WriteAfterExpiry, "%s wrote after its lease had run out, and %s was inside", a.name, b.name)
		}
	}
}

// never is more steps than there are.
const never = search.MaxSteps + 1

// toGo is a lower bound of how many steps it takes until one of the properties can
// break. There is one for one-winner alone: until a second actor can have won.
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
	return min(toWin[0]+toWin[1], never)
}

// toWin is a lower bound of how many steps it takes until an actor has won: 0 if it has.
func (x *execution) toWin(a *actor, ledger []order.Grab) int {
	switch {
	case slices.ContainsFunc(ledger, func(g order.Grab) bool { return g.Driver == a.driver }):
		return 0
	case a.done || a.dead || a.releasing:
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
		won := func(a *actor) bool { return a.driver == g.Driver && strconv.Itoa(a.inst.number) == g.Instance }
		names[i] = cmp.Or(find(x.actors, won), x.probe).name
	}
	return names
}

// waitersForFreeLocked are the actors that wait for a lock which no actor has and
// no call is about.
func (x *execution) waitersForFreeLocked() []*actor {
	var waiters []*actor
	for _, a := range x.actors {
		own := func(c *call) bool { return c.actor == a }
		if a.paused || !a.dead && slices.ContainsFunc(x.waiting, own) || slices.ContainsFunc(x.late, own) ||
			a.granted && !a.released || !a.granted && a.dead || x.leaseLeft(a) > 0 && !a.released {
			return nil
		}
		if a.begun && !a.done && !a.granted {
			waiters = append(waiters, a)
		}
	}
	return waiters
}

// judgeWait is for actors that have waited so long for a lock that was free: no
// poll is as rare as that.
func (x *execution) judgeWait(waiters []*actor, d time.Duration) {
	if len(waiters) > 0 && d >= x.TTL/2 {
		x.breaks(catalog.NoLostWakeup, "%s waited %s for a lock that was free", waiters[0].name, d.Round(time.Millisecond))
	}
}

// judgeEnd looks at what is left: at once, and when all leases have run out.
func (x *execution) judgeEnd() {
	if !x.mayLeaveLock && !slices.ContainsFunc(x.actors, func(a *actor) bool { return a.dead && x.leaseLeft(a) > 0 }) {
		x.judgeResidue()
		if x.answered() {
			return
		}
		x.judgeBusy()
	}
	for range tries {
		time.Sleep(x.TTL)
		x.timePassed()
		if x.answered() {
			return
		}
	}
	x.breaks(catalog.StuckOrder, "all leases have run out, and a fresh grab is neither grabbed nor taken")
}

// tries is for how many leases a fresh grab is tried.
const tries = 3

// answered says whether a fresh grab gets an answer.
func (x *execution) answered() bool {
	answer := x.prober.service.Grab(context.Background(), grab.Request{Order: theOrder, Driver: x.probe.driver, TryOnce: true})
	return answer.Outcome == grab.Grabbed || answer.Outcome == grab.Taken
}

// judgeBusy is for a lock that cannot be had although all actors have ended:
// either its holder has not released it, or it never had a holder.
func (x *execution) judgeBusy() {
	stays, never, dead := false, false, false
	for _, a := range x.actors {
		dead = dead || a.dead
		stays = stays || a.granted && a.inTime && (!a.released || x.showsToken && x.stores(a.token))
		never = never || a.begun && !a.granted
	}
	switch {
	case stays:
		x.breaks(catalog.ReleaseEffective, "the lock was released while the lease ran, and cannot be had")
	case never && !dead:
		x.breaks(catalog.NoResidue, "the lock cannot be had, and no actor has it")
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
		if !slices.Contains(x.residue, e.key) {
			x.breaks(catalog.NoResidue, "%s still holds %s", e.node, e.line)
			return
		}
	}
}

// stores says whether a server has the token.
func (x *execution) stores(token string) bool {
	return slices.ContainsFunc(x.nodes, func(n *node) bool { return strings.Contains(n.contents(), token) })
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
