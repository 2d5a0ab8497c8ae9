package sim

import (
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/tap"
)

// causes collects facts that explain or excuse a violation, such as how an actor lost its lock.
type causes struct {
	cluster *Cluster
	world   *world
	leases  *leaseBook

	shown    catalog.Facts // the facts from the steps so far
	dataLost bool          // whether a server has lost its data
	grants   int           // the number of successful acquires
	// disturbedAt is when a disturbance last had an effect. It means nothing if shown contains no
	// disturbance.
	disturbedAt time.Duration
	lasting     bool // whether a fault lasted when the current step began

	stopped   bool          // whether a process was paused
	heldUp    bool          // whether time passed while a call could have continued or a process was paused
	heldUpFor time.Duration // how much time passed while a call could have continued
	faulted   bool          // whether the schedule contains a step that only faults produce
	// onlyRepeated means that every fault so far was a client that sent a call again. A repeated call has
	// the same effect as one call, so no reserved unit is lost.
	onlyRepeated bool
}

// noteDisturbance records the time of a step that disturbs messages or connections, and of every step
// during such a disturbance.
func (s *causes) noteDisturbance(step schedule.Step) {
	if step.Kind.Shows()&disturbances != 0 || s.lasting || s.faultLasts() {
		s.disturbedAt = s.world.elapsed()
	}
}

// faultLasts reports whether a server, a network or a session has failed, or a call or a message is late.
func (s *causes) faultLasts() bool {
	s.world.gate.mu.Lock()
	defer s.world.gate.mu.Unlock()
	return len(s.world.gate.late)+len(s.world.gate.inFlight) > 0 || slices.ContainsFunc(s.cluster.nodes, (*node).isDisturbed) ||
		slices.ContainsFunc(s.cluster.instances[:Instances], func(inst *instance) bool { return len(inst.cut) > 0 || !s.world.hasSession(inst) })
}

// noteGrant records how an actor could get the lock while other actors may still have had it.
func (s *causes) noteGrant(a *actor) {
	s.grants++
	// own is how many times servers lost this actor's lease before a majority had granted it.
	own := a.timesForgotten
	a.grant, a.freed, a.timesForgotten, a.lostTo = s.grants, 0, 0, 0
	a.got = map[*actor]catalog.Facts{}
	for _, b := range s.world.actors {
		if b == a {
			continue
		}
		if inside := b.granted && !b.releasing; inside && s.leases.usesLeases() && s.leases.leaseLeft(a) <= 0 {
			a.got[b] = catalog.GrantLate
		} else if inside {
			a.got[b] = s.howLost(b)
			if own > 0 && a.got[b]&catalog.Forgotten != 0 {
				a.got[b] |= catalog.ForgottenTwice
			}
		}
		if s.dataLost && a.fence != 0 && a.fence <= b.fence {
			a.got[b] |= catalog.FenceFell
		}
	}
}

// howLost returns facts that explain how actor b lost the lock before it released it.
func (s *causes) howLost(b *actor) catalog.Facts {
	switch {
	case !s.leases.usesLeases():
		return 0
	case b.freed != 0:
		return b.freed
	case b.lostTo != 0:
		return b.lostTo
	case b.timesForgotten > 1:
		return catalog.Forgotten | catalog.ForgottenTwice
	case b.timesForgotten == 1:
		return catalog.Forgotten
	case s.leases.leaseLeft(b) > 0:
		return catalog.TakenOver
	case s.leases.leaseLeftBy(b, func(n *node) time.Time { return n.now().Add(-n.ahead) }) > 0:
		return catalog.ClockJumped
	default:
		return catalog.LeaseEnded
	}
}

// whyBoth returns facts that explain why two actors held the lock at the same time.
func (s *causes) whyBoth(a, b *actor) catalog.Facts {
	if a.grant < b.grant {
		a, b = b, a
	}
	return a.got[b]
}

// noteForgotten records which actors lose their leases because a server loses its data. It reads
// that data, so call it before the data is deleted.
func (s *causes) noteForgotten(n *node, to catalog.Facts) {
	s.dataLost = true
	if !s.cluster.locks() {
		s.shown |= to
	}
	for _, a := range s.world.actors {
		switch {
		case !s.leases.hasValidLease(a, n):
		case to == catalog.Forgotten:
			a.timesForgotten++
		default:
			a.lostTo |= to
		}
	}
}

// noteOverwrittenLocked checks whether an acquire has replaced another actor's lock. Only a lock
// without tokens allows that.
func (s *causes) noteOverwrittenLocked(c *call) {
	r, ok := c.node.lockServer.(*redisServer)
	if !ok {
		return
	}
	before := r.seen
	r.seen = r.contents()
	if c.phase == tap.Acquire && r.seen != before && slices.ContainsFunc(s.world.actors, func(a *actor) bool { return a != c.actor && s.leases.hasValidLease(a, c.node) }) {
		s.shown |= catalog.Overwritten
	}
}

// noteFreedLocked checks whether a release has deleted another actor's lock.
func (s *causes) noteFreedLocked(c *call) {
	if c.phase != tap.Release {
		return
	}
	for _, a := range s.world.actors {
		if a == c.actor || !s.leases.hasValidLease(a, c.node) {
			continue
		}
		if _, stored := c.node.leaseOf(a.value); s.cluster.showsToken && !stored || !s.cluster.showsToken && c.node.contents() == "" {
			if a.freed = catalog.FreedAnother; c.n > 1 { // this is not the release's first call
				a.freed |= catalog.AskedFirst
			}
		}
	}
}

func (l *leaseBook) hasValidLease(a *actor, n *node) bool {
	return !a.released && slices.ContainsFunc(a.leases, func(l serverLease) bool { return l.node == n && l.isValid() })
}
