package sim

import (
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/grab/lock"
	"grablab/internal/tap"
)

// enabledSteps collects the possible next steps of a schedule. Callers of its methods must hold
// gate.mu.
type enabledSteps struct {
	x           *execution
	limits      *Limits
	left        search.Cost // how many more preemptions and faults the schedule may use
	transitions []search.Transition
	commuted    bool // whether a step was skipped because another schedule covers it
}

// transitions returns the possible next steps. commuted is true if it has skipped a step because
// another schedule covers it.
func (x *execution) transitions(l *Limits, used search.Cost) (transitions []search.Transition, commuted bool) {
	m := &enabledSteps{x: x, limits: l, left: l.Bounds.Minus(used)}
	x.gate.mu.Lock()
	defer x.gate.mu.Unlock()
	slices.SortFunc(x.gate.waiting, compareCalls)
	slices.SortFunc(x.gate.late, compareCalls)
	slices.SortFunc(x.gate.inFlight, compareCalls)
	m.calls()
	m.begins()
	m.hears()
	m.resumes()
	m.time()
	m.heals()
	m.failures()
	return m.transitions, m.commuted
}

func (m *enabledSteps) add(c search.Cost, s schedule.Step) {
	if c.Within(m.left) {
		m.transitions = append(m.transitions, search.Transition{Step: s, Cost: c})
	}
}

// fault adds a step that injects a fault, if the search includes faults of this kind.
func (m *enabledSteps) fault(kind catalog.Fault, s schedule.Step) {
	if slices.Contains(m.limits.Faults, kind) {
		m.add(search.Faulty, s)
	}
}

func (c *call) canGo() bool {
	a := c.actor
	return !a.dead && !a.paused() && (!a.hung || c.phase == tap.Renew) && !a.inst.cut[c.network()] && !c.unsent()
}

// network returns the name of the call's network. One network leads to the database, and the other
// to the lock servers.
func (c *call) network() string {
	if c.target == schedule.DB {
		return schedule.DB
	}
	return schedule.Locks
}

// enabledLocked reports whether one of the actor's waiting calls could continue.
func (g *gate) enabledLocked(a *actor) bool {
	return slices.ContainsFunc(g.waiting, func(c *call) bool { return c.actor == a && c.canGo() })
}

func (g *gate) anyEnabledLocked() bool { return slices.ContainsFunc(g.world.actors, g.enabledLocked) }

// switchCostLocked returns the cost of switching to another actor. If the previous actor could have
// continued, the switch is a preemption.
func (x *execution) switchCostLocked(a *actor) search.Cost {
	if a != x.current && x.gate.enabledLocked(x.current) {
		return search.Preempted
	}
	return search.Free
}

// calls adds the waiting calls that could continue, beginning with the previous actor's calls.
func (m *enabledSteps) calls() {
	for _, own := range []bool{true, false} {
		for _, c := range m.x.gate.waiting {
			switch {
			case (c.actor == m.x.current) != own || !c.canGo():
			case m.x.reducer.isMirrored(c):
			case m.x.reducer.commutes(c):
				m.commuted = true
			default:
				m.add(m.x.switchCostLocked(c.actor), c.step(schedule.Call))
			}
		}
	}
}

// begins adds the start of the next actor. Actors differ only in their names, so there is no need
// to also try the others here.
func (m *enabledSteps) begins() {
	for _, a := range m.x.world.actors {
		if !a.begun && !a.paused() {
			m.add(m.x.switchCostLocked(a), schedule.Step{Kind: schedule.Begins, Actor: a.name})
			return
		}
	}
}

func (m *enabledSteps) hears() {
	for _, c := range m.x.gate.late {
		if c.canGo() {
			m.add(m.x.switchCostLocked(c.actor), c.step(schedule.Hears))
		}
	}
	for _, c := range m.x.gate.inFlight {
		switch {
		case c.actor.inst.cut[schedule.Locks] || m.x.reducer.isMirrored(c):
		case m.x.reducer.arrivesEarlier(c):
			m.commuted = true
		default:
			m.add(search.Free, c.step(schedule.ArrivesLate))
		}
	}
}

func (m *enabledSteps) resumes() {
	for _, inst := range m.x.cluster.instances {
		if inst.stopped.Load() {
			m.add(search.Free, schedule.Step{Kind: schedule.Resumes, Actor: inst.pausedAs.name})
		}
	}
}

// time adds the steps in which only time passes. If a call could continue instead, a time step
// counts as a preemption or a fault.
func (m *enabledSteps) time() {
	if m.x.world.elapsed()-m.x.progressAt > horizon*m.x.cluster.TTL+m.x.cluster.Wait+m.x.cluster.Work {
		return // the remaining goroutines never end, for example a renewal whose holder has died
	}
	if slices.ContainsFunc(m.x.cluster.instances, m.x.leases.renewalDueLocked) {
		return
	}
	cut := slices.ContainsFunc(m.x.cluster.instances, func(inst *instance) bool { return len(inst.cut) > 0 })
	if cut && m.x.world.elapsed() > m.x.cutAt+cutsLast*m.x.cluster.TTL {
		return
	}
	timer, end := schedule.Step{Kind: schedule.NextTimer}, schedule.Step{Kind: schedule.LeaseEnd}
	busy, cost := m.x.gate.anyEnabledLocked(), search.Free
	if busy {
		cost = search.Preempted
	}
	if m.x.sleepersLocked() {
		m.add(cost, timer)
	}
	if len(m.x.gate.late) > 0 && !m.x.stillLate {
		m.add(cost, schedule.Step{Kind: schedule.Passes, Duration: shortDelay})
	}
	unfinished := slices.ContainsFunc(m.x.world.actors, func(a *actor) bool { return !a.done && !a.dead && !a.hung })
	holder, _ := m.x.leases.nextLeaseEndLocked()
	switch {
	case !unfinished || holder == nil:
	case busy && len(holder.inst.cut) > 0: // a partition may outlast the lease, as in real runs
		m.add(cost, end)
	case busy:
		m.fault(catalog.Slow, end)
	default:
		m.add(search.Free, end)
	}
}

// shortDelay delays a reply that still arrives in time. It exposes clients that count the TTL from
// the reply instead of from the request.
const shortDelay = 10 * time.Millisecond

// cutsLast is the maximum duration of a network partition, as a multiple of the TTL.
const cutsLast = 2

// sleepersLocked reports whether an actor may be waiting for a timer, such as its renewal timer.
func (x *execution) sleepersLocked() bool {
	return slices.ContainsFunc(x.world.actors, func(a *actor) bool {
		if !a.begun || a.done || a.dead || a.paused() {
			return false
		}
		renews := x.cluster.renews && a.granted && !a.releasing
		return !x.gate.enabledLocked(a) && !a.hung || renews || x.leases.quorum() > 1
	})
}

func (m *enabledSteps) heals() {
	for _, n := range m.x.cluster.nodes {
		if n.down.Load() {
			m.add(search.Free, schedule.Step{Kind: schedule.Up, Target: n.name})
		}
		if r, ok := n.lockServer.(*redisServer); ok && len(r.messages.held) > 0 {
			m.add(search.Free, schedule.Step{Kind: schedule.MessagesArrive, Target: n.name})
		}
	}
	for _, inst := range m.x.cluster.instances {
		for _, target := range []string{schedule.DB, schedule.Locks} {
			if inst.cut[target] {
				m.add(search.Free, schedule.Step{Kind: schedule.Reaches, Instance: inst.number, Target: target})
			}
		}
	}
}

// failures adds the possible next faults, except faults that have no effect in this state.
func (m *enabledSteps) failures() {
	if m.left.Faults == 0 {
		return
	}
	for _, c := range m.x.gate.waiting {
		if c.node == nil && c.phase == tap.Claim && c.canGo() {
			m.fault(catalog.PartitionDB, c.step(schedule.ReplyLost)) // the connection breaks before the reply
		}
		if c.node == nil || !c.canGo() || c.deliver != nil || m.x.reducer.isMirrored(c) {
			continue
		}
		m.fault(catalog.ReplyLost, c.step(schedule.ReplyLost))
		if _, ok := c.node.lockServer.(*redisServer); ok && !c.node.down.Load() && !c.isTransaction() {
			m.fault(catalog.SentTwice, c.step(schedule.SentTwice))
			if c.phase == tap.Acquire && m.x.cluster.locks() && !m.x.leases.storesAnyOf(c) {
				m.fault(catalog.ReplyLost, c.step(schedule.RequestLost)) // the connection breaks before the request arrives
			}
		}
		m.fault(catalog.Latency, c.step(schedule.ReplyLate))
		if _, ok := c.node.lockServer.(latecomer); ok {
			m.fault(catalog.Latency, c.step(schedule.GivenUp))
		}
		if r, ok := c.node.lockServer.(*redisServer); ok && r.subscriberCount() > 0 {
			m.fault(catalog.MessageLost, c.step(schedule.MessageLost))
			m.fault(catalog.MessageLost, c.step(schedule.MessageTwice))
			m.fault(catalog.MessageLost, c.step(schedule.MessageLate))
		}
	}
	for _, a := range m.x.world.actors {
		m.actorFailures(a)
	}
	for _, inst := range m.x.cluster.instances {
		m.networkFailures(inst)
	}
	if m.x.cluster.Strategy.Needs&lock.SQLLocks != 0 && slices.ContainsFunc(m.x.world.actors, func(a *actor) bool { return a.begun && !a.done && !a.dead }) {
		m.fault(catalog.DBRestart, schedule.Step{Kind: schedule.Restarts, Target: schedule.DB})
	}
	for i, n := range m.x.cluster.nodes {
		if !slices.ContainsFunc(m.x.cluster.nodes[:i], func(o *node) bool { return m.limits.Reduce && m.x.reducer.equalLocked(o, n) }) {
			m.nodeFailures(n)
		}
	}
}

// actorFailures adds the faults that can hit an actor now, such as a crash or a pause.
func (m *enabledSteps) actorFailures(a *actor) {
	if !a.begun || a.done || a.dead || a.paused() || a.hung {
		return
	}
	if slices.ContainsFunc(m.x.gate.waiting, func(c *call) bool { return c.actor == a && c.canGo() && c.phase == tap.Claim }) {
		m.fault(catalog.Hang, schedule.Step{Kind: schedule.Hangs, Actor: a.name})
	}
	if m.x.gate.enabledLocked(a) {
		if first := catalog.First(m.x.world.actors, func(b *actor) bool {
			return b.inst == a.inst && m.x.gate.enabledLocked(b) && b.begun && !b.done && !b.hung
		}); a == first {
			m.fault(catalog.Pause, schedule.Step{Kind: schedule.Paused, Actor: a.name})
		}
	}
	if !a.cancelled && (m.x.gate.enabledLocked(a) || !a.granted) { // an actor without a call may be waiting for the lock
		m.fault(catalog.Cancel, schedule.Step{Kind: schedule.Cancelled, Actor: a.name})
	}
	dies := schedule.Step{Kind: schedule.Dies, Actor: a.name}
	if slices.ContainsFunc(m.x.world.actors, func(b *actor) bool { return b != a && b.inst == a.inst && b.begun && !b.done }) {
		dies = schedule.Step{Kind: schedule.InstanceDies, Instance: a.inst.number}
	}
	m.fault(catalog.Crash, dies)
	if a.inst.askedTime.Load() && a.inst.ahead == 0 {
		m.fault(catalog.ClientClock, schedule.Step{Kind: schedule.ClientClock, Instance: a.inst.number, Duration: m.x.cluster.TTL})
	}
}

// networkFailures cuts the instance off from the database or the lock servers. It does so only if
// the instance holds a lock or has a waiting call.
func (m *enabledSteps) networkFailures(inst *instance) {
	waits := func(fits func(*call) bool) bool {
		return slices.ContainsFunc(m.x.gate.waiting, func(c *call) bool { return c.actor.inst == inst && c.canGo() && fits(c) })
	}
	locks := schedule.Step{Kind: schedule.CutOff, Instance: inst.number, Target: schedule.Locks}
	db := schedule.Step{Kind: schedule.CutOff, Instance: inst.number, Target: schedule.DB}
	holds := slices.ContainsFunc(m.x.world.actors, func(a *actor) bool { return a.inst == inst && a.granted && !a.releasing && !a.done && !a.dead })
	if len(m.x.cluster.nodes) > 0 && (holds || waits(func(c *call) bool { return c.network() == schedule.Locks })) && !inst.cut[schedule.Locks] {
		m.fault(catalog.Partition, locks)
	}
	sessions := m.x.cluster.Strategy.Needs&lock.SQLLocks != 0 // a new actor needs a session
	if waits(func(c *call) bool { return c.network() == schedule.DB }) ||
		sessions && !inst.cut[schedule.DB] && slices.ContainsFunc(m.x.world.actors, func(a *actor) bool { return a.inst == inst && !a.begun }) {
		m.fault(catalog.PartitionDB, db)
	}
	if waits(func(c *call) bool { return c.network() == schedule.DB && c.phase == tap.Claim }) && !slices.Contains(m.limits.Faults, catalog.PartitionDB) {
		m.fault(catalog.SlowDB, db)
	}
}

// nodeFailures adds the outage of a server. If the server stores a lock, nodeFailures also adds
// faults that may lose the lock, such as a restart.
func (m *enabledSteps) nodeFailures(n *node) {
	_, forgets := n.lockServer.(*redisServer)
	holds := slices.ContainsFunc(m.x.world.actors, func(a *actor) bool {
		setAside := !m.x.cluster.locks() && a.granted && !a.releasing && !a.done && !a.dead
		return setAside || slices.ContainsFunc(a.leases, func(l serverLease) bool { return l.node == n && l.isValid() })
	})
	_, expires := n.lockServer.(shortener)
	if holds && forgets {
		m.fault(catalog.RedisRestart, schedule.Step{Kind: schedule.Restarts, Target: n.name})
	}
	if holds && (forgets || expires) {
		m.fault(catalog.NodeClock, schedule.Step{Kind: schedule.NodeClock, Target: n.name, Duration: m.x.cluster.TTL})
	}
	if holds && forgets {
		m.fault(catalog.Failover, schedule.Step{Kind: schedule.FailsOver, Target: n.name})
		m.fault(catalog.RedisFull, schedule.Step{Kind: schedule.Evicts, Target: n.name})
		if len(m.x.cluster.nodes) > 1 && !slices.Contains(m.limits.Faults, catalog.RedisRestart) {
			m.fault(catalog.Amnesia, schedule.Step{Kind: schedule.Restarts, Target: n.name})
		}
	}
	if !n.down.Load() {
		m.fault(catalog.RedisDown, schedule.Step{Kind: schedule.Down, Target: n.name})
	}
}
