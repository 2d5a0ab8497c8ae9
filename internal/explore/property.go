package explore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
)

// The properties, as -property names them.
const (
	OneWinner     = "one-winner"     // the ledger has one row at most
	LiveOverlap   = "live-overlap"   // no lease is granted while another runs that nobody has released
	LateHolder    = "late-holder"    // nobody writes after his lease while another is inside
	StaleWrite    = "stale-write"    // no write has an older token than one before it
	Fence         = "fence"          // tokens only grow
	Stuck         = "stuck"          // when all leases have run out, a fresh grab is answered
	Progress      = "progress"       // whoever waits for a lock that is free gets it soon
	PromptRelease = "prompt-release" // a lock that was released can be had at once
	LeftOver      = "left-over"      // nothing stays of a grab that has ended
	Told          = "told"           // a holder knows of his loss before another holds
)

// Survives is looked at in any case: the strategy neither ends nor hangs its
// process.
const Survives = "survives"

// Properties lists every property that can be chosen, the one that matters first.
var Properties = []string{
	OneWinner, LiveOverlap, LateHolder, StaleWrite, Fence, Stuck, Progress, PromptRelease, LeftOver, Told,
}

// violation is a property that a step has broken.
type violation struct {
	Property string
	Step     int // the number of steps made by then
	Why      string
}

func (w *world) breaks(property, why string, args ...any) {
	for _, v := range w.broken {
		if v.Property == property {
			return
		}
	}
	w.broken = append(w.broken, violation{property, w.steps, fmt.Sprintf(why, args...)})
}

// judge takes in what the last step has brought about.
func (w *world) judge() {
	w.mu.Lock()
	events := w.events
	w.events = w.events[len(w.events):]
	w.mu.Unlock()
	for _, e := range events {
		w.judgeEvent(e.actor, e.Event)
	}
}

func (w *world) judgeEvent(a *actor, e history.Event) {
	switch {
	case e.Op == history.Acquire && e.Kind == history.OK:
		a.granted, a.fence, a.token = true, e.Fence, e.Token
		a.leaving, a.released, a.lostIt = false, false, false
		w.inherit(a)
		w.judgeGrant(a)
	case e.Op == history.Read && e.Kind == history.OK:
		a.inside = len(w.ledger()) == 0
	case e.Op == history.Claim && e.Kind == history.OK:
		w.judgeClaim(a)
	case e.Op == history.Lost:
		a.lostIt = true
	case e.Op == history.Release && e.Kind == history.Invoke:
		a.leaving, a.inside = true, false
	case e.Op == history.Release:
		a.ours = w.leaseLeft(a) > 0
		a.released = e.Kind == history.OK
	}
}

// inherit lets a have the lease of somebody on its instance who gives it up, if
// that still stands on the server and a has none: an instance may hand a lease
// on without a call.
func (w *world) inherit(a *actor) {
	if !w.shows || w.leaseLeft(a) > 0 {
		return
	}
	for _, b := range w.actors {
		if b.inst != a.inst || b == a || b.granted && !b.leaving || w.leaseLeft(b) <= 0 {
			continue
		}
		for _, n := range w.nodes {
			if _, ok := n.names(b.stands); ok {
				a.stands, a.leases = b.stands, b.leases
				b.stands, b.leases = "", nil
				return
			}
		}
	}
}

func (w *world) ledger() []order.Grab {
	grabs, _ := w.db.Ledger(context.Background(), theOrder, 1) // fails only on a context that has ended
	return grabs
}

// leased says whether the strategy's locks are leases of Redis servers.
func (w *world) leased() bool { return len(w.nodes) > 0 }

func (w *world) judgeGrant(a *actor) {
	for i, b := range w.actors {
		if b == a || !b.granted {
			continue
		}
		if a.fence != 0 && (a.fence == b.fence || a.fence < b.fence && a.early&(1<<i) != 0) {
			w.breaks(Fence, "%s got token %d after %s had got %d", a.name, a.fence, b.name, b.fence)
		}
		if b.leaving {
			continue
		}
		if w.leased() && w.leaseLeft(b) > 0 && w.leaseLeft(a) > 0 {
			w.breaks(LiveOverlap, "%s got the lock while %s's lease had %s to run", a.name, b.name, w.leaseLeft(b).Round(time.Millisecond))
		}
		if w.tells && !b.lostIt && !b.paused && !b.dead {
			w.breaks(Told, "%s got the lock while %s believed to hold it", a.name, b.name)
		}
	}
}

func (w *world) judgeClaim(a *actor) {
	ledger := w.ledger()
	if check.CountGrabs(ledger).DoubleGrabs > 0 {
		w.breaks(OneWinner, "the order was given to %s", strings.Join(w.winners(ledger), " and to "))
	}
	for _, g := range ledger {
		if g.Fence > a.fence && a.fence != 0 {
			w.breaks(StaleWrite, "%s wrote with token %d after token %d had been seen", a.name, a.fence, g.Fence)
		}
	}
	for _, b := range w.actors {
		if b != a && w.leased() && w.leaseLeft(a) <= 0 && b.granted && b.inside && !b.leaving {
			w.breaks(LateHolder, "%s wrote after its lease had run out, and %s was inside", a.name, b.name)
		}
	}
}

// never is more steps than there are.
const never = maxSteps + 1

// toGo is how many steps it takes at the least until one of the properties can
// break: of most, there is nothing to be known.
func (w *world) toGo(properties []string) int {
	if len(properties) > 1 || properties[0] != OneWinner {
		return 1
	}
	ledger := w.ledger()
	first, second := never, never
	for _, a := range w.actors {
		if n := w.toWin(a, ledger); n < first {
			first, second = n, first
		} else {
			second = min(second, n)
		}
	}
	return min(first+second, never)
}

// toWin is how many steps an actor has at the least until it has won: 0 if it has.
func (w *world) toWin(a *actor, ledger []order.Grab) int {
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
	n := 2 + max(0, w.quorum()-len(a.leases))
	if !a.begun {
		n++
	}
	return n
}

// winners are the actors in the ledger, by the token of their attempts.
func (w *world) winners(ledger []order.Grab) []string {
	names := make([]string, len(ledger))
	for i, g := range ledger {
		for _, a := range w.actors {
			if a.driver == g.Driver && strconv.Itoa(a.inst.number) == g.Instance {
				names[i] = a.name
			}
		}
	}
	return names
}

// freeForWaiters returns those who wait for a lock that nobody has, and for
// nothing that is under way. It is called with mu held.
func (w *world) freeForWaiters() []*actor {
	var waiters []*actor
	for _, a := range w.actors {
		if slices.ContainsFunc(w.waiting, func(c *call) bool { return c.actor == a && !a.dead }) ||
			slices.ContainsFunc(w.late, func(c *call) bool { return c.actor == a }) || a.paused ||
			a.granted && !a.released || !a.granted && a.dead || w.leaseLeft(a) > 0 && !a.released {
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
func (w *world) waitedFor(waiters []*actor, d time.Duration) {
	if len(waiters) > 0 && d >= w.ttl/2 {
		w.breaks(Progress, "%s waited %s for a lock that was free", waiters[0].name, d.Round(time.Millisecond))
	}
}

// judgeEnd looks at what is left: at once, and when all leases have run out.
func (w *world) judgeEnd() {
	if !w.excused && !slices.ContainsFunc(w.actors, func(a *actor) bool { return a.dead && w.leaseLeft(a) > 0 }) {
		w.judgeLeftOver()
		if w.answered() {
			return
		}
		w.judgeBusy()
	}
	for range tries {
		time.Sleep(w.ttl)
		w.timePassed()
		if w.answered() {
			return
		}
	}
	w.breaks(Stuck, "all leases have run out, and a fresh grab is neither grabbed nor taken")
}

// judgeBusy is for a lock that cannot be had although everybody has gone: it was
// not released by one who had it, or is there for one who never did.
func (w *world) judgeBusy() {
	stays, never, dead := false, false, false
	for _, a := range w.actors {
		dead = dead || a.dead
		stays = stays || a.granted && a.ours && (!a.released || w.shows && w.stands(a.token))
		never = never || a.begun && !a.granted
	}
	switch {
	case stays:
		w.breaks(PromptRelease, "the lock was released while the lease ran, and cannot be had")
	case never && !dead:
		w.breaks(LeftOver, "the lock cannot be had, and it is nobody's")
	}
}

// stands says whether some server has the token.
func (w *world) stands(token string) bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return strings.Contains(string(n.contents()), token) })
}

// tries is how many leases a fresh grab is tried for.
const tries = 3

// answered says whether a fresh grab gets an answer.
func (w *world) answered() bool {
	answer := w.prober.service.Grab(context.Background(), grab.Request{Order: theOrder, Driver: w.probe.driver, TryOnce: true})
	return answer.Outcome == grab.Grabbed || answer.Outcome == grab.Taken
}

// judgeLeftOver compares with what a grab by itself leaves. Once a lease could
// run out, what is there may have been left to that.
func (w *world) judgeLeftOver() {
	if w.elapsed() >= w.ttl {
		return
	}
	for _, n := range w.nodes {
		for line := range strings.Lines(string(n.contents())) {
			key, _, _ := strings.Cut(line, " = ")
			if !slices.Contains(w.baseline, key) {
				w.breaks(LeftOver, "%s still holds %s", n.name, strings.TrimSpace(line))
				return
			}
		}
	}
}

// learn finds out what a lease of the strategy is like. It is called inside of a
// bubble.
func (s *stage) learn(set setting) error {
	w, err := newWorld(s, set)
	defer w.stop()
	if err != nil {
		return err
	}
	w.open = true
	locker, err := w.strategy.New(lock.Env{
		Node: "0", Redis: s.prober.redis, Redlock: s.prober.redlock, Orders: store{w.db, s.prober},
		TTL: w.ttl, Now: time.Now, Token: func() string { return soloToken }, Rand: func() float64 { return jitter(0) }, Log: quiet,
	})
	if err != nil {
		return err
	}
	defer locker.Close()
	first, err := w.solo(locker, 1, func(lease lock.Lease) {
		s.tells = lease.Lost() != nil
		s.shows = w.stands(soloToken)
	})
	if err != nil {
		return err
	}
	second, err := w.solo(locker, 2, func(lock.Lease) {
		before := w.callsPassed()
		time.Sleep(w.ttl * 2 / 3)
		s.renews = w.callsPassed() > before
	})
	s.borrowed = first != second
	s.baseline = w.keys()
	return err
}

// soloToken is the token of who is alone.
const soloToken = "solo"

// solo holds the lock for a driver whom nobody disturbs. It returns what the
// servers held then.
func (w *world) solo(l lock.Locker, driver int64, hold func(lock.Lease)) (held string, err error) {
	ctx := context.Background()
	lease, err := l.Acquire(lock.TryOnce(lock.WithDriver(ctx, driver)), grab.Key(w.strategy.Name, theOrder))
	if err != nil {
		return "", fmt.Errorf("explore: %s does not lock what nobody has: %w", w.strategy.Name, err)
	}
	for _, n := range w.nodes {
		held += string(n.contents())
	}
	hold(lease)
	if err := lease.Release(ctx); err != nil {
		return "", fmt.Errorf("explore: %s does not release what it has: %w", w.strategy.Name, err)
	}
	w.timePassed()
	return held, nil
}

func (w *world) callsPassed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.passed
}

// keys are those that the servers hold.
func (w *world) keys() []string {
	var keys []string
	for _, n := range w.nodes {
		for line := range strings.Lines(string(n.contents())) {
			key, _, _ := strings.Cut(line, " = ")
			keys = append(keys, key)
		}
	}
	return keys
}
