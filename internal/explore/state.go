package explore

import (
	"bufio"
	"context"
	"io"
)

// nobody is where replies go that nobody waits for.
func nobody() *bufio.Writer { return bufio.NewWriter(io.Discard) }

// state tells moments apart: what the servers hold, what everybody has seen and
// waits for, and what the properties remember. Two schedules that come to the
// same state can only go on in the same ways.
func (w *world) state() sum {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := emptySum.number(int64(w.elapsed()))
	var servers sum
	for _, n := range w.nodes {
		servers += w.stateOf(n)
	}
	h = h.number(int64(servers)).number(int64(w.database()))
	for _, a := range w.actors {
		h = a.state(h)
	}
	h = h.number(int64(w.ahead(nil)))
	for _, inst := range w.instances {
		h = h.number(int64(inst.ahead)).number(int64(inst.tokens))
	}
	if w.enabled(w.current) { // who cannot go on is not preempted
		h = h.text(w.current.name)
	}
	return h.flag(w.excused)
}

func (a *actor) state(h sum) sum {
	h = h.number(int64(a.seen)).number(int64(a.fence)).number(int64(a.early))
	for _, f := range []bool{
		a.begun, a.done, a.dead, a.paused, a.cancelled, a.granted, a.leaving, a.released, a.lostIt, a.inside, a.ours,
	} {
		h = h.flag(f)
	}
	return h
}

// stateOf sums up a server, with what has been heard from it and what is on its
// way to it, and without its name: states that differ in which server is which
// go on in the same ways.
func (w *world) stateOf(n *node) sum {
	stand, fail := n.disturbed()
	h := emptySum.number(int64(stand)).number(int64(fail))
	h = h.bytes(n.contents()).number(int64(n.ahead)).flag(n.down).number(int64(n.listeners()))
	for _, a := range w.actors {
		for _, l := range a.leases {
			if l.node == n {
				h = h.text(a.name).number(l.until.UnixNano())
			}
		}
	}
	return h.number(int64(n.told)).number(int64(w.ahead(n)))
}

// database sums up the order and its ledger.
func (w *world) database() sum {
	if w.dbSum == 0 {
		ctx := context.Background()
		o, _ := w.db.Read(ctx, theOrder, 0)
		h := emptySum.number(int64(o.Status)).number(o.Driver).number(int64(o.Fence))
		grabs, _ := w.db.Ledger(ctx, theOrder, 1)
		for _, g := range grabs {
			h = h.number(g.Driver).number(int64(g.Fence))
		}
		w.dbSum = h
	}
	return w.dbSum
}
