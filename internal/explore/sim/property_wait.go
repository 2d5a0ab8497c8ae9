package sim

import (
	"cmp"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/search"
	"grablab/internal/tap"
)

// waitOracle checks how long and in which order the actors wait for the lock. oracle calls it for
// each acquire that succeeds or is refused, and execution calls it for each step to the next timer.
type waitOracle struct {
	cluster  *Cluster
	world    *world
	causes   *causes
	findings *findings

	freeFor time.Duration // how long actors have waited although the lock was free
}

// longestWait returns how long an acquire may wait for the lock.
func (set Setting) longestWait() time.Duration {
	if set.Strategy.Promises.TriesOnce {
		return 0
	}
	return set.Wait
}

// judgePatience checks that an actor has not waited for longer than its wait time, even if it has
// acquired the lock several times. It also checks this after data loss, which makes no call slower.
func (o *waitOracle) judgePatience(a *actor) {
	waited, wait := o.world.elapsed()-a.begin, o.cluster.longestWait()
	if !o.causes.stopped && !o.causes.showsSince(disturbances, a.begin) && !o.world.sessionEnded() && waited > wait+o.causes.heldUpFor+time.Millisecond { // the extra millisecond allows for timers that start a few nanoseconds late
		o.findings.record(catalog.WaitsAsTold, 0, "%s waited for %s, but should have given up after %s", a.name, waited.Round(time.Millisecond), wait)
	}
}

// judgeOrder checks that actors get the lock in order of arrival. It accepts another order if a
// fault or a pause may have caused it.
func (o *waitOracle) judgeOrder(a *actor) {
	if o.world.queues() && o.causes.heldUp {
		return
	}
	for _, b := range o.world.actors {
		waits := o.world.elapsed()-b.begin < o.cluster.Wait
		if waits && !o.causes.isDisturbed() && a.behind.has(b) && !b.granted && !b.done && !b.dead && !b.paused() && !b.cancelled {
			o.findings.record(catalog.OrderOfService, 0, "%s got the lock, but %s had waited longer", a.name, b.name)
		}
	}
}

// queuesBehind returns the actors that must get the lock before actor a.
func (o *waitOracle) queuesBehind(a *actor) actorSet {
	among := o.cluster.Strategy.Promises.InOrder
	return o.world.actorsThat(func(b *actor) bool {
		first := among == catalog.Global || among == catalog.PerProcess && a.inst == b.inst || a.inst.rivals.has(b)
		return b != a && first && o.world.gate.isQueuedLocked(b)
	})
}

// isQueuedLocked reports whether an actor waits for the lock without a pending call, which may
// change its place in the queue.
func (g *gate) isQueuedLocked(a *actor) bool {
	return a.begun && !a.granted && !a.done && !a.dead && !a.paused() &&
		!g.hasCallLocked(func(c *call) bool {
			return c.actor == a || c.actor.inst == a.inst && c.node != nil // a background call of the instance may be for the actor
		})
}

// waitersForFreeLocked returns the actors that are waiting for a free lock. It returns nil if a
// pending call could still change who has the lock.
func (o *waitOracle) waitersForFreeLocked() []*actor {
	gate, leases := o.world.gate, o.world.leases
	if o.world.queues() && o.causes.isDisturbed() {
		return nil // a disconnected client must resume its session first
	}
	up := slices.DeleteFunc(slices.Clone(o.cluster.nodes), func(n *node) bool { return n.down.Load() || o.keepsReleased(n) })
	onItsWay := func(c *call) bool { return c.phase == tap.Release && c.node != nil } // the lock is not free until this call arrives
	if len(up) < leases.quorum() || o.lateLockStored() || slices.ContainsFunc(gate.inFlight, onItsWay) {
		return nil
	}
	var waiters []*actor
	for _, a := range o.world.actors {
		if a.paused() || a.hung || len(a.inst.cut) > 0 || !a.dead && slices.ContainsFunc(gate.waiting, a.sent) || slices.ContainsFunc(gate.late, a.sent) ||
			a.granted && !a.released || !a.granted && a.dead || leases.leaseLeft(a) > 0 && !a.released && !o.waitsInQueue(a) && !o.undoesLate(a) {
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

// keepsReleased reports whether server n would not grant the lock although it is free. This is so if n
// still stores a released lock, or if no actor has ever contacted n.
func (o *waitOracle) keepsReleased(n *node) bool {
	return len(o.cluster.nodes) > 1 && (n.eventHash == search.EmptyFingerprint || slices.ContainsFunc(o.world.actors, func(a *actor) bool {
		_, stored := n.leaseOf(a.value)
		return stored && a.released
	}))
}

// undoesLate reports whether a late request may have created a lock that its client promises to
// remove.
func (o *waitOracle) undoesLate(a *actor) bool {
	return o.cluster.Strategy.Promises.LateUndone && a.arrivedLate && !a.granted
}

// lateLockStored reports whether a late request has created a lock that stays until it expires.
func (o *waitOracle) lateLockStored() bool {
	return !o.cluster.Strategy.Promises.LateUndone && slices.ContainsFunc(o.world.actors, func(a *actor) bool { return a.arrivedLate }) &&
		slices.ContainsFunc(o.world.entries(), func(e entry) bool { return !slices.Contains(o.cluster.residue, e.key) })
}

// waitsInQueue reports whether the actor is waiting in a queue on the server. An actor at the head
// of the queue may have the lock without knowing it.
func (o *waitOracle) waitsInQueue(a *actor) bool {
	return a.begun && !a.done && !a.granted && !a.dead && o.world.queues()
}

// judgeWait checks that no actor waits too long for a free lock.
func (o *waitOracle) judgeWait(waiters []*actor) {
	bound := time.Duration(cmp.Or(o.cluster.Strategy.Promises.WakeUp, 0.5) * float64(o.cluster.TTL))
	if !o.causes.mayMissMessage() && !(o.world.queues() && o.causes.heldUp) { // otherwise, a client may have to resume its session first
		bound = min(bound, o.cluster.TTL/10)
	}
	bound = max(bound, longestPause)
	if len(waiters) > 0 && o.freeFor > bound+time.Millisecond { // the extra millisecond allows for timers that start a few nanoseconds late
		o.findings.record(catalog.NoLostWakeup, 0, "%s waited %s for a lock that was free", waiters[0].name, o.freeFor.Round(time.Millisecond))
	}
}

func (a *actor) canProceed() bool { return !a.done && !a.dead && !a.hung && !a.paused() }

// lingeringLocked returns the actors that are still running after their clients have disconnected.
// It omits actors that wait for a reply or for a new session.
func (o *waitOracle) lingeringLocked() []*actor {
	return slices.DeleteFunc(slices.Clone(o.world.actors), func(a *actor) bool {
		return !a.cancelled || !a.canProceed() || !o.world.hasSession(a.inst) || slices.ContainsFunc(slices.Concat(o.world.gate.waiting, o.world.gate.late), a.sent)
	})
}

// judgeLingering checks that actors end soon after their clients have disconnected.
func (o *waitOracle) judgeLingering(lingering []*actor, passed time.Duration) {
	for _, a := range lingering {
		if a.lingered += passed; a.lingered > longestGoodbye && !o.causes.showsSince(slowing, a.begin) {
			o.findings.record(catalog.WaitsAsTold, 0, "%s continued for %s after its driver had hung up", a.name, a.lingered.Round(time.Millisecond))
		}
	}
}

// stragglingLocked returns the actors that wait only for slow servers, although a quorum has
// answered.
func (o *waitOracle) stragglingLocked() []*actor {
	if o.cluster.Strategy.Promises.Grace == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.world.actors), func(a *actor) bool {
		if !a.begun || !a.canProceed() || len(a.inst.cut) > 0 || a.granted && !a.releasing || slices.ContainsFunc(o.world.gate.waiting, a.sent) {
			return true
		}
		var silent []*node
		for _, c := range o.world.gate.late {
			if a.sent(c) && c.node != nil && !slices.Contains(silent, c.node) {
				silent = append(silent, c.node)
			}
		}
		return len(silent) == 0 || len(silent) > len(o.cluster.nodes)-o.world.leases.quorum()
	})
}

// judgeStraggling checks that an actor does not wait longer than promised after a quorum has
// answered. An actor with competitors may also be pausing before its next attempt.
func (o *waitOracle) judgeStraggling(straggling []*actor, passed time.Duration) {
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
			o.findings.record(catalog.WaitsAsTold, 0, "%s waited %s for the other servers after a quorum had answered", a.name, a.straggled.Round(time.Millisecond))
		}
	}
}

// longestGoodbye is how long a strategy may continue after its client has disconnected. It allows
// for a ZooKeeper lock, which needs several tenths of a second to retry its clean-up.
const longestGoodbye = time.Second

// longestPause is how long a strategy may sleep between two requests for the lock.
const longestPause = 300 * time.Millisecond
