package sim

import (
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// isBlind reports whether the lock has a failure mode in which a release frees another driver's lock.
func (set Setting) isBlind() bool {
	return slices.ContainsFunc([]string{"F5", "F6", "F35", "F36"}, func(id string) bool { return slices.Contains(set.Strategy.Breaks, id) })
}

// isEndless reports whether the lock has the failure mode that its leases never expire, or only after a day.
func (set Setting) isEndless() bool { return slices.Contains(set.Strategy.Breaks, "F3") }

// isAlone reports whether no other driver has asked for the lock since the actor began.
func (s *causes) isAlone(a *actor) bool {
	return a.met == 0 && !slices.ContainsFunc(s.world.actors, func(b *actor) bool { return b.begun && b.begin > a.begin })
}

// keptLease reports whether an actor certainly kept its lease until its release had ended.
func (s *causes) keptLease(a *actor) bool {
	return !s.heldUp && !s.isDisturbedSince(a.begin) && a.inTime && !a.knowsLoss && s.howLost(a) == catalog.TakenOver
}

// mustSucceed reports whether an actor's calls must succeed.
func (s *causes) mustSucceed(a *actor) bool { return !a.cancelled && s.isUnimpeded(a) }

// isUnimpeded reports whether no fault or long delay has affected an actor's calls. It allows for
// timers that fire a little early.
func (s *causes) isUnimpeded(a *actor) bool {
	patience := time.Duration(s.cluster.Strategy.Promises.Patience * float64(s.cluster.TTL))
	return !a.impeded && (!s.heldUp || 0 < s.heldUpFor && s.heldUpFor < patience-time.Millisecond)
}

// isCalmLocked reports whether nothing can make the actor's calls fail. No fault of a server or of the
// actor's instance may last, and none may have left anything behind that has this effect. A fault of
// another instance may keep the lock taken, but makes no call of this instance fail.
func (s *causes) isCalmLocked(a *actor) bool {
	inst := a.inst
	ours := func(b *actor) bool { return b.inst == inst && b.hung }
	return !s.losesFence(a) && !slices.ContainsFunc(slices.Concat(s.world.gate.late, s.world.gate.inFlight), func(c *call) bool { return c.actor.inst == inst }) &&
		!slices.ContainsFunc(s.cluster.nodes, (*node).isDisturbed) && !slices.ContainsFunc(s.world.actors, ours) &&
		!inst.stopped.Load() && inst.awake == nil && len(inst.cut) == 0 && inst.ahead == 0 && s.world.hasSession(inst)
}

// losesFence reports whether a server had lost its data when an actor began, so that the database may
// refuse the actor's write. If the database checks the token at the read, the service raises the counter
// and tries again. The database can then refuse the write only if a driver from before the loss reads with
// a higher token.
func (s *causes) losesFence(a *actor) bool {
	return s.dataLost && (a.met != 0 || s.cluster.Guard == order.FenceWrite || !s.cluster.locks())
}

// mayMissRenewal reports whether a fault may have prevented the last renewals of a lease, which ends after
// the time left. If a lock promises to repeat failed renewals, a fault is no excuse if it had ended long
// before. If a server's clock has jumped, the lease may have ended before its TTL.
func (s *causes) mayMissRenewal(left time.Duration) bool {
	if slices.ContainsFunc(s.cluster.nodes, func(n *node) bool { return n.ahead != 0 }) {
		return true
	}
	since := time.Duration(0)
	if part := s.cluster.Strategy.Promises.RenewalRetried; part > 0 {
		since = s.world.elapsed() + left - time.Duration(part*float64(s.cluster.TTL))
	}
	return s.isDisturbedSince(since)
}

// isDisturbed reports whether a fault has affected data, messages or connections, for example by
// losing a reply.
func (s *causes) isDisturbed() bool { return s.isDisturbedSince(0) }

// isDisturbedSince is like isDisturbed, but ignores faults whose effect on messages and connections had
// ended before the given time.
func (s *causes) isDisturbedSince(then time.Duration) bool {
	return s.dataLost || s.showsSince(disturbances, then)
}

// showsSince reports whether any of the facts occurred, and disturbances had an effect at the given time or
// later.
func (s *causes) showsSince(facts catalog.Facts, then time.Duration) bool {
	return s.shown&facts != 0 && s.disturbedAt >= then
}

// mayMissMessage reports whether a fault may have made a connected client miss a message. Clients
// that an outage disconnected do not count, because they know that they may have missed messages.
// A lost reply to a call does not count, because messages arrive on a connection of their own.
func (s *causes) mayMissMessage() bool {
	return s.dataLost || s.shown&disturbances&^(catalog.Unreachable|catalog.ReplyWasLost) != 0
}

// slowing contains the facts that can make a clean-up wait for replies.
const slowing = catalog.Unreachable | catalog.CutOff | catalog.Delayed

const disturbances = catalog.Unreachable | catalog.CutOff | catalog.WakeUpLost | catalog.ReplyWasLost | catalog.Delayed

// oneReplyLost reports whether lost replies are the only disturbance so far.
func (s *causes) oneReplyLost() bool {
	return !s.dataLost && s.shown&disturbances == catalog.ReplyWasLost
}

// hasSession reports whether an instance is connected to every server that requires a session.
func (w *world) hasSession(inst *instance) bool {
	return !slices.ContainsFunc(serversOf[*zkServer](w.cluster), func(s *zkServer) bool { return !s.connected(inst) })
}

// sessionEnded reports whether a server has ended a session early. Its client connects again only
// after a second.
func (w *world) sessionEnded() bool {
	return slices.ContainsFunc(serversOf[*zkServer](w.cluster), func(s *zkServer) bool { return s.ahead != 0 })
}

// queues reports whether the servers keep clients in a queue, whose first entry owns the lock.
func (w *world) queues() bool {
	return w.cluster.Strategy.Needs&(lock.ZooKeeper|lock.Etcd) != 0
}
