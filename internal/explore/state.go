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
	for _, n := range w.nodes {
		stand, fail := n.disturbed()
		h = h.number(int64(stand)).number(int64(fail))
		h = h.bytes(n.contents()).number(int64(n.ahead)).flag(n.down).number(int64(len(n.heard)))
	}
	h = h.number(int64(w.database()))
	for _, a := range w.actors {
		h = a.state(h)
	}
	for i, line := range [][]*call{w.waiting, w.late, w.strays} {
		h = h.number(int64(i))
		// In any order: a sum of sums is the same in all.
		var all sum
		for _, c := range line {
			all += emptySum.text(c.actor.name).text(string(c.phase)).text(c.target).number(int64(c.n))
		}
		h = h.number(int64(all))
	}
	for _, inst := range w.instances {
		h = h.number(int64(inst.ahead)).number(int64(inst.tokens))
	}
	if w.current != nil {
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
	var leases sum
	for _, l := range a.leases {
		leases += emptySum.text(l.node.name).number(l.until.UnixNano())
	}
	return h.number(int64(leases))
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
