package sim

import (
	"slices"

	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
)

// reducer decides which steps the search leaves out, because they lead to states that
// other schedules reach too. It remembers what the last step could have done instead.
type reducer struct {
	cluster *Cluster
	gate    *gate
	on      bool // leave out steps that only reorder independent calls

	last         *call   // the call that the last step let through or brought late
	quiet        bool    // the last step did nothing that the properties look at
	silent       bool    // the last step changed nothing except its server
	struck       *node   // the server that the last step failed, or nil
	alternatives []*call // the calls that could have gone in place of the last step
	underway     []*call // the calls that could have arrived late in place of the last step
}

// commutes says whether a call would lead to where another schedule leads, in
// which it came before the last step: independent steps are explored in one order
// alone (partial-order reduction). Of what commutes, that order has first the arrivals of
// late requests, then calls to lock servers by compareCalls, then those to the database, then
// what happens to a server: see docs/explore.md for why nothing is missed.
func (r *reducer) commutes(c *call) bool {
	if !r.on || !slices.Contains(r.alternatives, c) {
		return false
	}
	if r.struck != nil {
		return c.node != nil && c.node != r.struck
	}
	switch {
	case r.last.actor != c.actor || r.last.target == c.target || r.last.deliver != nil || c.deliver != nil:
		return false
	case r.last.node == nil || c.node == nil: // one is to the database
		return r.last.node == nil // and notCommuting looks whether that was right
	case compareCalls(c, r.last) >= 0:
		return false
	default:
		return r.last.phase == c.phase || r.quiet
	}
}

// notCommuting is the calls of the actor to the database that the last step, a call
// of its to a lock server, came before although they do not commute: its reply was not
// taken in without a trace. Then the schedules have to be executed, too, in which it comes
// behind one of them.
func (r *reducer) notCommuting() []*call {
	if r.last == nil || r.last.node == nil || r.silent {
		return nil
	}
	var before []*call
	for _, c := range r.alternatives {
		if c.actor == r.last.actor && c.target == schedule.DB {
			before = append(before, c)
		}
	}
	return before
}

// arrivesEarlier is commutes for a call that is on its way, and whose arrival changes one
// server and nothing else: it arrives before whatever does not touch that server.
func (r *reducer) arrivesEarlier(c *call) bool {
	if !r.on || !slices.Contains(r.underway, c) || r.last.target == c.target || c.node.heard() {
		return false
	}
	if slices.Contains(r.alternatives, r.last) {
		return r.quiet
	}
	return compareCalls(c, r.last) < 0 // it arrived late, too
}

// mirrored says whether a call is to a server that nothing has told apart from one
// with a smaller name: the call to that one leads to the same states (symmetry
// reduction).
func (r *reducer) mirrored(c *call) bool {
	return r.on && c.node != nil && slices.ContainsFunc(r.cluster.nodes, func(n *node) bool {
		return n.name < c.node.name && r.alikeLocked(n, c.node)
	})
}

// alikeLocked says whether two servers have the same past, and the same calls
// before them.
func (r *reducer) alikeLocked(a, b *node) bool {
	return a.past == b.past && r.pendingLocked(a) == r.pendingLocked(b)
}

// pendingLocked is the fingerprint of the calls that a server has yet to answer;
// nil: of those to the database, and of SUBSCRIBEs. Hashes are added: the calls have
// no order.
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

// onlyLastIsGone says whether the calls that wait are those that waited before the last
// step, without the one that it let through.
func (r *reducer) onlyLastIsGone() bool {
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	if len(r.gate.waiting) != len(r.alternatives)-1 || len(r.gate.inFlight) != len(r.underway) {
		return false
	}
	return !slices.ContainsFunc(r.gate.waiting, func(c *call) bool { return !slices.Contains(r.alternatives, c) })
}
