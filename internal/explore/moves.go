package explore

import (
	"slices"
	"time"

	"grablab/internal/schedule"
)

// Fault kinds, as -faults names them.
const (
	Expiry      = "expiry"       // a lease runs out while its holder's calls take their time
	Pause       = "pause"        // a process stops for as long as it likes
	Crash       = "crash"        // a process ends
	Cancel      = "cancel"       // a client hangs up
	Restart     = "restart"      // a lock server comes back empty
	Down        = "down"         // a lock server cannot be reached for a while
	ClientClock = "client-clock" // an instance's wall clock is off
	NodeClock   = "node-clock"   // a lock server's clock jumps
	LostReply   = "lost-reply"   // a call is carried out and its caller told of an error
	LateReply   = "late-reply"   // a call's reply, or the call itself, is late
)

// Faults lists every kind of fault.
var Faults = []string{Expiry, Pause, Crash, Cancel, Restart, Down, ClientClock, NodeClock, LostReply, LateReply}

// cost is what a schedule has used of the bounds.
type cost struct{ preemptions, faults int8 }

func (c cost) plus(d cost) cost {
	return cost{c.preemptions + d.preemptions, c.faults + d.faults}
}

// within says whether c uses no more than limit of anything.
func (c cost) within(limit cost) bool {
	return c.preemptions <= limit.preemptions && c.faults <= limit.faults
}

var (
	free      = cost{}
	preempted = cost{preemptions: 1}
	faulty    = cost{faults: 1}
)

// move is a step that could come next.
type move struct {
	schedule.Step
	cost cost
}

// menu collects the moves at one point, the one that costs nothing and goes on
// with what was under way first.
type menu struct {
	*world
	limits *limits
	left   cost
	moves  []move
	passed bool // over a call that commutes with the last one
}

// moves are the steps that could come next, of those that are within the
// limits. commuted says that there are more, which would lead to where other
// schedules lead. None at all: everything has ended.
func (w *world) moves(l *limits, used cost) (moves []move, commuted bool) {
	m := &menu{world: w, limits: l, left: cost{l.preemptions - used.preemptions, l.faults - used.faults}}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.waiting, compareCalls)
	slices.SortFunc(w.late, compareCalls)
	slices.SortFunc(w.strays, compareCalls)
	m.calls()
	m.begins()
	m.hears()
	m.resumes()
	m.time()
	m.heals()
	m.failures()
	return m.moves, m.passed
}

func (m *menu) add(c cost, s schedule.Step) {
	if c.within(m.left) {
		m.moves = append(m.moves, move{s, c})
	}
}

// fault adds a step of that kind of fault, if it is to be looked at.
func (m *menu) fault(kind string, s schedule.Step) {
	if m.limits.kinds[kind] {
		m.add(faulty, s)
	}
}

// enabled says whether the actor has a call that can go through.
func (w *world) enabled(a *actor) bool {
	return a != nil && !a.dead && !a.paused && slices.ContainsFunc(w.waiting, func(c *call) bool { return c.actor == a })
}

// anyEnabled says whether somebody has.
func (w *world) anyEnabled() bool { return slices.ContainsFunc(w.actors, w.enabled) }

// switching is the price of going on with a: who is under way and could go on
// is preempted.
func (w *world) switching(a *actor) cost {
	if a != w.current && w.enabled(w.current) {
		return preempted
	}
	return free
}

// calls lets the pending ones through, those of who is under way first.
func (m *menu) calls() {
	for _, own := range []bool{true, false} {
		for _, c := range m.waiting {
			switch {
			case (c.actor == m.current) != own || !m.enabled(c.actor):
			case m.mirrored(c):
			case m.commutes(c):
				m.passed = true
			default:
				m.add(m.switching(c.actor), c.step(schedule.Call))
			}
		}
	}
}

// commutes says whether a call would lead to where another schedule leads, in
// which it came before the last step. Two calls that one actor has under way at
// once, to two servers, are let through in one order; what happens to a server
// happens after the calls to others that were as cheap before.
func (m *menu) commutes(c *call) bool {
	if !m.limits.reduce || !slices.Contains(m.before, c) {
		return false
	}
	if m.struck != nil {
		return c.node != nil && c.node != m.struck
	}
	return m.last.actor == c.actor && m.last.phase == c.phase && m.last.target != c.target && compareCalls(c, m.last) < 0
}

// mirrored says whether a call differs from one of the same actor by the name of
// its server alone: nothing has told the two servers apart so far.
func (m *menu) mirrored(c *call) bool {
	return m.limits.reduce && c.node != nil && slices.ContainsFunc(m.nodes, func(n *node) bool {
		return n.name < c.node.name && m.alike(n, c.node)
	})
}

// alike says whether two servers have the same past, and the same calls before them.
func (w *world) alike(a, b *node) bool {
	return a.past == b.past && w.ahead(a) == w.ahead(b)
}

// ahead sums up the calls that a server has before it; nil: the database, and
// what only passes through the gate. In any order: a sum of sums is the same in all.
func (w *world) ahead(n *node) sum {
	var all sum
	for i, line := range [][]*call{w.waiting, w.late, w.strays} {
		for _, c := range line {
			if c.node == n {
				all += c.sum().number(int64(i))
			}
		}
	}
	return all
}

// begins lets the next actor begin. Which one comes first is a matter of names.
func (m *menu) begins() {
	for _, a := range m.actors {
		if !a.begun {
			m.add(m.switching(a), schedule.Step{Kind: schedule.Begins, Actor: a.name})
			return
		}
	}
}

func (m *menu) hears() {
	for _, c := range m.late {
		if !c.actor.dead && !c.actor.paused {
			m.add(m.switching(c.actor), c.step(schedule.Hears))
		}
	}
	for _, c := range m.strays {
		m.add(free, c.step(schedule.ArrivesLate))
	}
}

func (m *menu) resumes() {
	for _, a := range m.actors {
		if a.paused {
			m.add(free, schedule.Step{Kind: schedule.Resumes, Actor: a.name})
		}
	}
}

// time passes freely while nobody could do anything else. That a timer comes
// before a call which could go through preempts it; that a lease ends before it
// is the expiry.
func (m *menu) time() {
	// What goes on for longer goes on for ever, such as a renewal for nobody.
	timer, end := schedule.Step{Kind: schedule.NextTimer}, schedule.Step{Kind: schedule.LeaseEnd}
	if m.elapsed() > horizon*m.ttl+m.wait {
		return
	}
	leases := m.nextLeaseEnd() > 0 && m.unfinished()
	switch {
	case !m.anyEnabled():
		if m.sleepers() {
			m.add(free, timer)
		}
		if leases {
			m.add(free, end)
		}
	default:
		if m.sleepers() {
			m.add(preempted, timer)
		}
		if leases {
			m.fault(Expiry, end)
		}
	}
}

// unfinished says whether somebody has yet to begin, or to end.
func (w *world) unfinished() bool {
	return slices.ContainsFunc(w.actors, func(a *actor) bool { return !a.done && !a.dead })
}

// sleepers says whether somebody waits for something other than a step; a
// holder may have a renewal to make.
func (w *world) sleepers() bool {
	return slices.ContainsFunc(w.actors, func(a *actor) bool {
		if !a.begun || a.done || a.dead || a.paused {
			return false
		}
		return !w.enabled(a) || w.renews && a.granted && !a.leaving
	})
}

// nextLeaseEnd is for how long the next lease to end still runs; 0: there is none.
func (w *world) nextLeaseEnd() time.Duration {
	var next time.Duration
	for _, a := range w.actors {
		for _, l := range a.leases {
			if left := l.until.Sub(l.node.now()); left > 0 && !a.released && (next == 0 || left < next) {
				next = left
			}
		}
	}
	return next
}

func (m *menu) heals() {
	for _, n := range m.nodes {
		if n.down {
			m.add(free, schedule.Step{Kind: schedule.Up, Target: n.name})
		}
	}
}

// failures offers every fault, where it could make a difference.
func (m *menu) failures() {
	if m.left.faults == 0 {
		return
	}
	for _, c := range m.waiting {
		if c.node == nil || !m.enabled(c.actor) || c.flight != nil || m.mirrored(c) {
			continue
		}
		m.fault(LostReply, c.step(schedule.ReplyLost))
		m.fault(LateReply, c.step(schedule.ReplyLate))
		m.fault(LateReply, c.step(schedule.GivenUp))
	}
	for _, a := range m.actors {
		m.actorFailures(a)
	}
	for i, n := range m.nodes {
		if !slices.ContainsFunc(m.nodes[:i], func(o *node) bool { return m.limits.reduce && m.alike(o, n) }) {
			m.nodeFailures(n)
		}
	}
}

func (m *menu) actorFailures(a *actor) {
	if !a.begun || a.done || a.dead || a.paused {
		return
	}
	if m.enabled(a) {
		m.fault(Pause, schedule.Step{Kind: schedule.Paused, Actor: a.name})
		if !a.cancelled {
			m.fault(Cancel, schedule.Step{Kind: schedule.Cancelled, Actor: a.name})
		}
	}
	alone := true
	for _, b := range m.actors {
		alone = alone && (b == a || b.inst != a.inst || b.done || !b.begun)
	}
	if alone {
		m.fault(Crash, schedule.Step{Kind: schedule.Dies, Actor: a.name})
	} else {
		m.fault(Crash, schedule.Step{Kind: schedule.InstanceDies, Instance: a.inst.number})
	}
	if a.inst.asked && a.inst.ahead == 0 {
		m.fault(ClientClock, schedule.Step{Kind: schedule.ClientClock, Instance: a.inst.number, Duration: m.ttl})
	}
}

func (m *menu) nodeFailures(n *node) {
	holds := slices.ContainsFunc(m.actors, func(a *actor) bool {
		return slices.ContainsFunc(a.leases, func(l leaseOn) bool { return l.node == n && l.until.After(n.now()) })
	})
	if holds {
		m.fault(Restart, schedule.Step{Kind: schedule.Restarts, Target: n.name})
		m.fault(NodeClock, schedule.Step{Kind: schedule.NodeClock, Target: n.name, Duration: m.ttl})
	}
	if !n.down {
		m.fault(Down, schedule.Step{Kind: schedule.Down, Target: n.name})
	}
}
