package sim

import (
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/tap"
)

// causes collects the facts that name a failure: how each actor got the lock, and how it
// lost it. No property is judged by them, except where servers have failed.
type causes struct {
	cluster *Cluster
	world   *world
	leases  *leaseBook

	shown  catalog.Facts // what the steps have shown
	forgot bool          // a server has restarted empty
	grants int           // the number of acquires that have succeeded
}

// shown is what a step of each kind shows by itself.
var shown = map[schedule.Kind]catalog.Facts{
	schedule.Dies:         catalog.Died,
	schedule.InstanceDies: catalog.Died,
	schedule.Cancelled:    catalog.Cancelled,
	schedule.ReplyLost:    catalog.ReplyWasLost,
	schedule.ReplyLate:    catalog.Delayed,
	schedule.GivenUp:      catalog.Delayed,
	schedule.Down:         catalog.Unreachable,
	schedule.ClientClock:  catalog.ClocksApart,
	schedule.MessageLost:  catalog.WakeUpLost,
	schedule.MessageTwice: catalog.WakeUpLost,
	schedule.MessageLate:  catalog.WakeUpLost,
	schedule.Hangs:        catalog.Hung,
	schedule.CutOff:       catalog.CutOff,
}

// noteGrant notes how an actor got the lock while others had not released it.
func (s *causes) noteGrant(a *actor) {
	s.grants++
	own := a.forgotten // of a majority that it has put together
	a.grant, a.freed, a.forgotten, a.lostTo = s.grants, false, 0, 0
	a.got = map[*actor]catalog.Facts{}
	for _, b := range s.world.actors {
		if b == a {
			continue
		}
		if inside := b.granted && !b.releasing; inside && s.leases.leased() && s.leases.leaseLeft(a) <= 0 {
			a.got[b] = catalog.GrantLate
		} else if inside {
			a.got[b] = s.lost(b)
			if own > 0 && a.got[b]&catalog.Forgotten != 0 {
				a.got[b] |= catalog.ForgottenTwice
			}
		}
		if s.forgot && a.fence != 0 && a.fence <= b.fence {
			a.got[b] |= catalog.FenceFell
		}
	}
}

// lost is how an actor that has not released its lock has come to lose it.
func (s *causes) lost(b *actor) catalog.Facts {
	switch {
	case !s.leases.leased():
		return 0
	case b.freed:
		return catalog.FreedAnother
	case b.lostTo != 0:
		return b.lostTo
	case b.forgotten > 1:
		return catalog.Forgotten | catalog.ForgottenTwice
	case b.forgotten == 1:
		return catalog.Forgotten
	case s.leases.leaseLeft(b) > 0:
		return catalog.TakenOver
	case s.leases.leaseLeftBy(b, func(n *node) time.Time { return n.now().Add(-n.ahead) }) > 0:
		return catalog.ClockJumped
	default:
		return catalog.LeaseEnded
	}
}

// between is how two actors came to have the lock at once.
func (s *causes) between(a, b *actor) catalog.Facts {
	if a.grant < b.grant {
		a, b = b, a
	}
	return a.got[b]
}

// noteForgotten is called before a node loses what it has.
func (s *causes) noteForgotten(n *node, to catalog.Facts) {
	s.forgot = true
	if !s.cluster.locks() {
		s.shown |= to
	}
	for _, a := range s.world.actors {
		switch {
		case !s.leases.runs(a, n):
		case to == catalog.Forgotten:
			a.forgotten++
		default:
			a.lostTo |= to
		}
	}
}

// noteOverwrittenLocked is called when a node has carried out a call, of a strategy whose
// leases do not name their holders.
func (s *causes) noteOverwrittenLocked(c *call) {
	r, ok := c.node.lockServer.(*redisServer)
	if !ok {
		return
	}
	before := r.seen
	r.seen = r.contents()
	if c.phase == tap.Acquire && r.seen != before && slices.ContainsFunc(s.world.actors, func(a *actor) bool { return a != c.actor && s.leases.runs(a, c.node) }) {
		s.shown |= catalog.Overwritten
	}
}

// noteFreedLocked is called when a node has carried out a call. A release of another
// actor has freed a lease that ran if the node has it no more.
func (s *causes) noteFreedLocked(c *call) {
	if c.phase != tap.Release {
		return
	}
	for _, a := range s.world.actors {
		if a == c.actor || !s.leases.runs(a, c.node) {
			continue
		}
		if _, stored := c.node.leaseOf(a.value); s.cluster.showsToken && !stored || !s.cluster.showsToken && c.node.contents() == "" {
			a.freed = true
		}
	}
}

// runs says whether the actor has a lease of a node that runs, by that node's clock.
func (l *leaseBook) runs(a *actor, n *node) bool {
	return !a.released && slices.ContainsFunc(a.leases, func(l serverLease) bool { return l.node == n && l.runs() })
}
