package sim

import (
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
)

func (x *execution) breaks(property, why string, args ...any) {
	for _, v := range x.broken {
		if v.Property == property {
			return
		}
	}
	x.broken = append(x.broken, search.Violation{Property: property, Step: x.steps, Why: fmt.Sprintf(why, args...)})
}

// judge takes in what the last step has brought about.
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
		a.leaving, a.released, a.lostIt = false, false, false
		x.inherit(a)
		x.judgeGrant(a)
	case e.Op == history.Read && e.Kind == history.OK:
		a.inside = len(x.ledger()) == 0
	case e.Op == history.Claim && e.Kind == history.OK:
		x.judgeClaim(a)
	case e.Op == history.Lost:
		a.lostIt = true
	case e.Op == history.Release && e.Kind == history.Invoke:
		a.leaving, a.inside = true, false
	case e.Op == history.Release:
		a.ours = x.leaseLeft(a) > 0
		a.released = e.Kind == history.OK
	}
}

// inherit lets a have the lease of somebody on its instance who gives it up, if
// that still stands on the server and a has none: an instance may hand a lease
// on without a call.
func (x *execution) inherit(a *actor) {
	if !x.shows || x.leaseLeft(a) > 0 {
		return
	}
	for _, b := range x.actors {
		if b.inst != a.inst || b == a || b.granted && !b.leaving || x.leaseLeft(b) <= 0 {
			continue
		}
		for _, n := range x.nodes {
			if _, ok := n.names(b.stands); ok {
				a.stands, a.leases = b.stands, b.leases
				b.stands, b.leases = "", nil
				return
			}
		}
	}
}

func (x *execution) ledger() []order.Grab {
	grabs, _ := x.db.Ledger(context.Background(), theOrder, 1) // fails only on a context that has ended
	return grabs
}

// leased says whether the strategy's locks are leases of Redis servers.
func (x *execution) leased() bool { return len(x.nodes) > 0 }

func (x *execution) judgeGrant(a *actor) {
	for i, b := range x.actors {
		if b == a || !b.granted {
			continue
		}
		if a.fence != 0 && (a.fence == b.fence || a.fence < b.fence && a.early&(1<<i) != 0) {
			x.breaks(catalog.FenceMonotone, "%s got token %d after %s had got %d", a.name, a.fence, b.name, b.fence)
		}
		if b.leaving {
			continue
		}
		if x.leased() && x.leaseLeft(b) > 0 && x.leaseLeft(a) > 0 {
			x.breaks(catalog.LeaseExclusive, "%s got the lock while %s's lease had %s to run", a.name, b.name, x.leaseLeft(b).Round(time.Millisecond))
		}
		if x.tells && !b.lostIt && !b.paused && !b.dead {
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
		if b != a && x.leased() && x.leaseLeft(a) <= 0 && b.granted && b.inside && !b.leaving {
			x.breaks(catalog.WriteAfterExpiry, "%s wrote after its lease had run out, and %s was inside", a.name, b.name)
		}
	}
}

// never is more steps than there are.
const never = search.MaxSteps + 1

// toGo is how many steps it takes at the least until one of the properties can
// break: of most, there is nothing to be known.
func (x *execution) toGo(properties []string) int {
	if len(properties) > 1 || properties[0] != catalog.OneWinner {
		return 1
	}
	ledger := x.ledger()
	first, second := never, never
	for _, a := range x.actors {
		if n := x.toWin(a, ledger); n < first {
			first, second = n, first
		} else {
			second = min(second, n)
		}
	}
	return min(first+second, never)
}

// toWin is how many steps an actor has at the least until it has won: 0 if it has.
func (x *execution) toWin(a *actor, ledger []order.Grab) int {
	switch {
	case slices.ContainsFunc(ledger, func(g order.Grab) bool { return g.Driver == a.driver }):
		return 0
	case a.done || a.dead || a.leaving:
		return never
	case a.inside:
		return 1 // its claim
	case a.granted:
		return 2 // and its read
	}
	n := 2 + max(0, x.quorum()-len(a.leases))
	if !a.begun {
		n++
	}
	return n
}

// winners are the actors in the ledger, by the token of their attempts.
func (x *execution) winners(ledger []order.Grab) []string {
	names := make([]string, len(ledger))
	for i, g := range ledger {
		for _, a := range x.actors {
			if a.driver == g.Driver && strconv.Itoa(a.inst.number) == g.Instance {
				names[i] = a.name
			}
		}
	}
	return names
}

// freeForWaiters returns those who wait for a lock that nobody has, and for
// nothing that is under way. It is called with mu held.
func (x *execution) freeForWaiters() []*actor {
	var waiters []*actor
	for _, a := range x.actors {
		if slices.ContainsFunc(x.waiting, func(c *call) bool { return c.actor == a && !a.dead }) ||
			slices.ContainsFunc(x.late, func(c *call) bool { return c.actor == a }) || a.paused ||
			a.granted && !a.released || !a.granted && a.dead || x.leaseLeft(a) > 0 && !a.released {
			return nil
		}
		if a.begun && !a.done && !a.granted {
			waiters = append(waiters, a)
		}
	}
	return waiters
}

// waitedFor judges those who have waited for that long although nobody had the
// lock: no poll is as rare as that.
func (x *execution) waitedFor(waiters []*actor, d time.Duration) {
	if len(waiters) > 0 && d >= x.TTL/2 {
		x.breaks(catalog.NoLostWakeup, "%s waited %s for a lock that was search.Free", waiters[0].name, d.Round(time.Millisecond))
	}
}

// judgeEnd looks at what is left: at once, and when all leases have run out.
func (x *execution) judgeEnd() {
	if !x.excused && !slices.ContainsFunc(x.actors, func(a *actor) bool { return a.dead && x.leaseLeft(a) > 0 }) {
		x.judgeLeftOver()
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

// judgeBusy is for a lock that cannot be had although everybody has gone: it was
// not released by one who had it, or is there for one who never did.
func (x *execution) judgeBusy() {
	stays, never, dead := false, false, false
	for _, a := range x.actors {
		dead = dead || a.dead
		stays = stays || a.granted && a.ours && (!a.released || x.shows && x.stands(a.token))
		never = never || a.begun && !a.granted
	}
	switch {
	case stays:
		x.breaks(catalog.ReleaseEffective, "the lock was released while the lease ran, and cannot be had")
	case never && !dead:
		x.breaks(catalog.NoResidue, "the lock cannot be had, and it is nobody's")
	}
}

// stands says whether some server has the token.
func (x *execution) stands(token string) bool {
	return slices.ContainsFunc(x.nodes, func(n *node) bool { return strings.Contains(string(n.contents()), token) })
}

// tries is how many leases a fresh grab is tried for.
const tries = 3

// answered says whether a fresh grab gets an answer.
func (x *execution) answered() bool {
	answer := x.prober.service.Grab(context.Background(), grab.Request{Order: theOrder, Driver: x.probe.driver, TryOnce: true})
	return answer.Outcome == grab.Grabbed || answer.Outcome == grab.Taken
}

// judgeLeftOver compares with what a grab by itself leaves. Once a lease could
// run out, what is there may have been left to that.
func (x *execution) judgeLeftOver() {
	if x.elapsed() >= x.TTL {
		return
	}
	for _, n := range x.nodes {
		for line := range strings.Lines(string(n.contents())) {
			key, _, _ := strings.Cut(line, " = ")
			if !slices.Contains(x.baseline, key) {
				x.breaks(catalog.NoResidue, "%s still holds %s", n.name, strings.TrimSpace(line))
				return
			}
		}
	}
}

// learn finds out what a lease of the strategy is like. It is called inside of a
// bubble.
func (s *Cluster) learn() error {
	x, err := newExecution(s)
	defer x.stop()
	if err != nil {
		return err
	}
	x.open = true
	locker, err := x.Strategy.New(lock.Env{
		Node: "0", Redis: s.prober.redis, Redlock: s.prober.redlock, Orders: x.storeOf(s.prober),
		TTL: x.TTL, Now: time.Now, Token: func() string { return soloToken }, Rand: func() float64 { return jitter(0) }, Log: quiet,
	})
	if err != nil {
		return err
	}
	defer locker.Close()
	first, err := x.solo(locker, 1, func(lease lock.Lease) {
		s.tells = lease.Lost() != nil
		s.shows = x.stands(soloToken)
	})
	if err != nil {
		return err
	}
	second, err := x.solo(locker, 2, func(lock.Lease) {
		before := x.callsPassed()
		time.Sleep(x.TTL * 2 / 3)
		s.renews = x.callsPassed() > before
	})
	s.TokenIsDriver = first != second
	s.baseline = x.keys()
	return err
}

// soloToken is the token of who is alone.
const soloToken = "solo"

// solo holds the lock for a driver whom nobody disturbs. It returns what the
// servers held then.
func (x *execution) solo(l lock.Locker, driver int64, hold func(lock.Lease)) (held string, err error) {
	ctx := context.Background()
	lease, err := l.Acquire(lock.TryOnce(lock.WithDriver(ctx, driver)), grab.Key(x.Strategy.Name, theOrder))
	if err != nil {
		return "", fmt.Errorf("sim: %s does not lock what nobody has: %w", x.Strategy.Name, err)
	}
	for _, n := range x.nodes {
		held += string(n.contents())
	}
	hold(lease)
	if err := lease.Release(ctx); err != nil {
		return "", fmt.Errorf("sim: %s does not release what it has: %w", x.Strategy.Name, err)
	}
	x.timePassed()
	return held, nil
}

func (x *execution) callsPassed() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.passed
}

// keys are those that the servers hold.
func (x *execution) keys() []string {
	var keys []string
	for _, n := range x.nodes {
		for line := range strings.Lines(string(n.contents())) {
			key, _, _ := strings.Cut(line, " = ")
			keys = append(keys, key)
		}
	}
	return keys
}
