package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// endOracle checks what the actors leave behind. For this, it makes a few grabs with new drivers.
type endOracle struct {
	cluster  *Cluster
	world    *world
	causes   *causes
	findings *findings

	probes int // the number of grabs by new drivers
}

// probeTries is how many times judge retries its grab, waiting for one TTL before each retry.
const probeTries = 3

// judge checks that the lock is free after all actors have ended. A lock left behind by a failed
// call may remain until it expires.
func (o *endOracle) judge() {
	o.judgeReleases()
	o.judgeListeners()
	o.judgeContainers()
	told, left := false, 0
	if !o.world.gate.mayLeaveLock && !slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.hung || a.dead && slices.ContainsFunc(a.leases, serverLease.isValid) }) {
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
		o.findings.record(catalog.StuckOrder, 0, "a new driver is told that the order is taken, but the ledger has only %d of its %s", o.cluster.units()-left, catalog.Plural(o.cluster.units(), "unit", "units"))
	default:
		o.findings.record(catalog.StuckOrder, 0, "all leases have expired, but a new driver is told neither grabbed nor taken")
	}
}

// leaseTimePasses lets all leases expire that no one renews.
func (o *endOracle) leaseTimePasses() {
	time.Sleep(o.cluster.TTL)
	o.world.timePassed()
}

// judgeListeners checks that a grab leaves no session, subscription or watch behind.
func (o *endOracle) judgeListeners() {
	o.world.gate.mu.Lock()
	running := slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.begun && !a.done })
	o.world.gate.mu.Unlock()
	if running {
		return
	}
	if n := o.world.db.Sessions(); n > 0 {
		o.findings.record(catalog.NoResidue, 0, "all drivers are done, but the database still has %s", catalog.Plural(n, "session", "sessions"))
	}
	key := o.cluster.key()
	for _, n := range o.cluster.nodes {
		if s, ok := n.lockServer.(notifier); ok && s.listeners(key) > 0 {
			o.findings.record(catalog.NoResidue, 0, "all drivers are done, but %s still notifies a client of changes to the lock", n.name)
		}
	}
}

// judgeContainers checks that ZooKeeper will remove every container. A container that never had a
// child stays forever, unless a later driver uses it. Only a crash may leave one behind. After an outage,
// the clean-up may still be waiting for its next attempt.
func (o *endOracle) judgeContainers() {
	o.world.gate.mu.Lock()
	calls := o.world.gate.hasCallLocked(func(*call) bool { return true })
	o.world.gate.mu.Unlock()
	if calls || o.causes.shown&(catalog.Unreachable|catalog.CutOff) != 0 || slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.dead || a.hung }) {
		return
	}
	for _, e := range o.world.entries() {
		if z, ok := o.world.node(e.node).lockServer.(*zkServer); ok && z.keeps(e.key) {
			o.findings.record(catalog.NoResidue, 0, "%s keeps %s forever", e.node, e.line)
		}
	}
}

// judgeReleases checks that servers no longer store released locks. If the strategy promises to
// retry failed releases, it checks these locks too.
func (o *endOracle) judgeReleases() {
	for _, a := range o.world.actors {
		if o.causes.showsSince(catalog.Unreachable|catalog.CutOff, a.begin) {
			continue
		}
		tried := a.granted && a.inTime && !a.dead && !a.cancelled && !a.arrivedLate && o.cluster.showsToken
		if tried && (a.released || o.cluster.Strategy.Promises.ReleaseRetried && o.world.leases.leaseLeft(a) > 0) && o.world.stores(a.token) {
			o.findings.record(catalog.ReleaseEffective, 0, "%s released its lock while the lease was valid, but a server still has the lock", a.name)
		}
	}
}

// leftByCut reports whether an entry may remain because the release got no reply.
func (o *endOracle) leftByCut(e entry) bool {
	return !o.cluster.Strategy.Promises.ReleaseRetried && slices.ContainsFunc(o.world.actors, func(a *actor) bool {
		return a.releaseCut && !a.released && (!o.cluster.showsToken || mentions(e.line, a.token))
	})
}

// judgeRemains checks, after all leases have expired, that no server stores a token, and that all
// Redis keys expire. Third-party locks may keep a fencing counter on purpose.
func (o *endOracle) judgeRemains() {
	_, err := lock.Find(o.cluster.Strategy.Name)
	for _, e := range o.world.entries() {
		r, isRedis := o.world.node(e.node).lockServer.(*redisServer)
		if !slices.Contains(o.cluster.residue, e.key) && strings.Contains(e.line, tokenPrefix) {
			o.findings.record(catalog.NoResidue, 0, "all leases have expired, but %s still holds %s", e.node, e.line)
		}
		if isRedis && err == nil && r.redis.TTL(e.key) == 0 {
			o.findings.record(catalog.NoResidue, 0, "%s keeps %s forever", e.node, e.line)
		}
	}
}

// probeUntilTaken grabs the order with new drivers until one of them learns that the order is
// taken. told reports whether all units are sold by then. If not, left is the number of unsold
// units.
func (o *endOracle) probeUntilTaken() (told bool, left int) {
	for range o.cluster.units() {
		switch o.grab(o.cluster.prober).Outcome {
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

// judgeLimits checks that only units that a driver really has count against the driver's limit. It
// skips strategies with a lock, because these count only the units in the ledger.
func (o *endOracle) judgeLimits() {
	ledger := o.world.ledger()
	for _, a := range o.world.actors {
		if o.cluster.locks() || slices.ContainsFunc(ledger, func(g order.Grab) bool { return g.Driver == a.driver }) {
			continue
		}
		if o.grabAs(o.cluster.prober, a.driver).Reason == grab.PerDriver {
			o.findings.record(catalog.StuckOrder, 0, "%s's driver has no unit, but is told that it has enough units", a.name)
		}
	}
}

// judgeProcesses checks that each process in which a driver did not get the lock can still get it.
// The process has one TTL to recover.
func (o *endOracle) judgeProcesses() {
	for _, inst := range o.cluster.instances[:Instances] {
		o.world.gate.mu.Lock()
		own := catalog.Filter(o.world.actors, func(a *actor) bool { return a.inst == inst && a.begun })
		running := slices.ContainsFunc(own, func(a *actor) bool { return !a.done })
		lost := slices.ContainsFunc(own, func(a *actor) bool { return !a.granted })
		o.world.gate.mu.Unlock()
		if running || !lost || o.grabsOn(inst) {
			continue
		}
		if time.Sleep(o.cluster.TTL); !o.grabsOn(inst) {
			o.findings.record(catalog.StuckOrder, 0, "no driver of instance %d can get the lock, although no driver has it", inst.number)
		}
	}
}

// grabsOn reports whether a new driver can grab the order at an instance, or is told that the order
// is taken.
func (o *endOracle) grabsOn(inst *instance) bool {
	answer := o.grab(inst)
	return answer.Outcome == grab.Taken || answer.Outcome == grab.Grabbed
}

// grab tries once to grab the order, with a new driver.
func (o *endOracle) grab(inst *instance) grab.Answer {
	o.probes++
	return o.grabAs(inst, o.world.probe.driver+int64(o.probes-1))
}

func (o *endOracle) grabAs(inst *instance, driver int64) grab.Answer {
	return inst.service.Grab(context.Background(), grab.Request{Order: theOrder, Driver: driver, TryOnce: true})
}

// judgeBusy records a violation if no one can get the lock after all actors have ended.
func (o *endOracle) judgeBusy() {
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
		o.findings.record(catalog.ReleaseEffective, 0, "the lock was released while the lease was valid, but no driver can get it")
	case never && !dead:
		o.findings.record(catalog.NoResidue, 0, "no driver can get the lock, although no actor has it")
	}
}

// judgeResidue checks that the servers store nothing that a release should have removed. It does so
// only during the first TTL, because later a lock may have expired instead.
func (o *endOracle) judgeResidue() {
	if o.world.elapsed() >= o.cluster.TTL {
		return
	}
	for _, e := range o.world.entries() {
		if !slices.Contains(o.cluster.residue, e.key) && !o.leftByCut(e) {
			o.findings.record(catalog.NoResidue, 0, "%s still holds %s", e.node, e.line)
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
