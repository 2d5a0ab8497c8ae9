package sim

import (
	"bufio"
	"context"
	"io"

	"grablab/internal/explore/search"
)

// nobody is where replies go that nobody waits for.
func nobody() *bufio.Writer { return bufio.NewWriter(io.Discard) }

// state tells moments apart: what the servers hold, what everybody has seen and
// waits for, and what the properties remember. Two schedules that come to the
// same state can only go on in the same ways.
func (x *execution) state() search.Fingerprint {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := search.EmptyFingerprint.Number(int64(x.elapsed()))
	var servers search.Fingerprint
	for _, n := range x.nodes {
		servers += x.stateOf(n)
	}
	h = h.Number(int64(servers)).Number(int64(x.database()))
	for _, a := range x.actors {
		h = a.state(h)
	}
	h = h.Number(int64(x.ahead(nil)))
	for _, inst := range x.instances {
		h = h.Number(int64(inst.ahead)).Number(int64(inst.tokens))
	}
	if x.enabled(x.current) { // who cannot go on is not preempted
		h = h.Text(x.current.name)
	}
	return h.Flag(x.excused)
}

func (a *actor) state(h search.Fingerprint) search.Fingerprint {
	h = h.Number(int64(a.seen)).Number(int64(a.fence)).Number(int64(a.early))
	for _, f := range []bool{
		a.begun, a.done, a.dead, a.paused, a.cancelled, a.granted, a.leaving, a.released, a.lostIt, a.inside, a.ours,
	} {
		h = h.Flag(f)
	}
	return h
}

// stateOf sums up a server, with what has been heard from it and what is on its
// way to it, and without its name: states that differ in which server is which
// go on in the same ways.
func (x *execution) stateOf(n *node) search.Fingerprint {
	stand, fail := n.disturbed()
	h := search.EmptyFingerprint.Number(int64(stand)).Number(int64(fail))
	h = h.Bytes(n.contents()).Number(int64(n.ahead)).Flag(n.down).Number(int64(n.listeners()))
	for _, a := range x.actors {
		for _, l := range a.leases {
			if l.node == n {
				h = h.Text(a.name).Number(l.until.UnixNano())
			}
		}
	}
	return h.Number(int64(n.told)).Number(int64(x.ahead(n)))
}

// database sums up the order and its ledger.
func (x *execution) database() search.Fingerprint {
	if x.dbSum == 0 {
		ctx := context.Background()
		o, _ := x.db.Read(ctx, theOrder, 0)
		h := search.EmptyFingerprint.Number(int64(o.Status)).Number(o.Driver).Number(int64(o.Fence))
		grabs, _ := x.db.Ledger(ctx, theOrder, 1)
		for _, g := range grabs {
			h = h.Number(g.Driver).Number(int64(g.Fence))
		}
		x.dbSum = h
	}
	return x.dbSum
}
