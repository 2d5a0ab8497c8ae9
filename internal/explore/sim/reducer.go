package sim

import (
	"slices"

	"grablab/internal/explore/search"
)

// reducer decides which steps the search can skip, because other schedules reach the same states.
type reducer struct {
	cluster *Cluster
	gate    *gate
	on      bool // whether to skip steps that only reorder independent calls

	last         *call   // the last step's call, even if it arrived late
	quiet        bool    // whether the last step changed nothing that a property depends on
	alternatives []*call // the waiting calls that the search could have chosen instead of the last step
	underway     []*call // the calls that were in flight before the last step, so that one of them could have arrived instead
}

// commutes reports whether the call could have come before the last step with the same result. If
// so, the search skips it here, because it tries independent steps in only one order (partial-order
// reduction).
//
// Late arrivals come before calls to lock servers. Faults commute with no other step, and calls to
// the database with no other call. docs/explore.md explains why the search still misses nothing.
func (r *reducer) commutes(c *call) bool {
	if !r.on || !slices.Contains(r.alternatives, c) {
		return false
	}
	if r.cluster.alsoCommutes != nil && r.cluster.alsoCommutes(r.last, c) {
		return true
	}
	twoServers := r.last.node != nil && c.node != nil && r.last.target != c.target && r.last.deliver == nil && c.deliver == nil
	independent := twoServers && r.last.actor == c.actor && (r.last.phase == c.phase || r.quiet)
	return independent && compareCalls(c, r.last) < 0
}

// arrivesEarlier reports whether the search can skip a call's late arrival here, because it also
// tries the arrival before the last step.
func (r *reducer) arrivesEarlier(c *call) bool {
	if !r.on || !slices.Contains(r.underway, c) || r.last.target == c.target {
		return false
	}
	if s, ok := c.node.lockServer.(*redisServer); !ok || s.subscriberCount() > 0 {
		return false // other clients may notice the call
	}
	if slices.Contains(r.alternatives, r.last) {
		return r.quiet
	}
	return compareCalls(c, r.last) < 0 // the last step's call also arrived late
}

// isMirrored reports whether another server is in the same state as the call's server. If so, the
// search tries the call on only one of them (symmetry reduction).
func (r *reducer) isMirrored(c *call) bool {
	return r.on && c.node != nil && slices.ContainsFunc(r.cluster.nodes, func(n *node) bool {
		return n.name < c.node.name && r.equalLocked(n, c.node)
	})
}

// equalLocked reports whether two servers have the same history and the same pending calls.
func (r *reducer) equalLocked(a, b *node) bool {
	return a.eventHash == b.eventHash && r.pendingLocked(a) == r.pendingLocked(b)
}

// pendingLocked returns a hash of a server's unanswered calls. If n is nil, it covers database
// calls and SUBSCRIBE commands.
func (r *reducer) pendingLocked(n *node) search.Fingerprint {
	var all search.Fingerprint
	for i, line := range [][]*call{r.gate.waiting, r.gate.late, r.gate.inFlight} {
		for _, c := range line {
			if c.node == n {
				all += c.fingerprint().Number(int64(i))
			}
		}
	}
	return all
}
