package sim

import (
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
)

// state returns a hash of everything that can influence the rest of the schedule.
func (x *execution) state() search.Fingerprint {
	x.gate.mu.Lock()
	defer x.gate.mu.Unlock()
	f := search.EmptyFingerprint.Number(int64(x.world.elapsed()))
	var servers search.Fingerprint
	for _, n := range x.cluster.nodes {
		servers += x.stateOfLocked(n)
	}
	f = f.Number(int64(servers)).Number(int64(x.stateOfDB()))
	for _, a := range x.world.actors {
		f = a.state(f)
	}
	f = f.Number(int64(x.reducer.pendingLocked(nil)))
	for _, inst := range x.cluster.instances {
		f = f.Number(int64(inst.ahead)).Number(int64(inst.rivals)).Number(int64(inst.tokens)).Flag(inst.cut[schedule.DB]).Flag(inst.cut[schedule.Locks])
	}
	if x.gate.enabledLocked(x.current) { // the last actor matters only if a switch to another actor would be a preemption
		f = f.Text(x.current.name)
	}
	if x.causes.shown&disturbances != 0 {
		f = f.Number(int64(x.causes.disturbedAt))
	}
	return f.Flag(x.causes.stopped).Flag(x.causes.heldUp).Flag(x.causes.faulted).Flag(x.causes.onlyRepeated).Flag(x.stillLate).Flag(x.gate.mayLeaveLock).Number(int64(x.cutAt)).Number(int64(x.oracle.waits.freeFor)).Number(int64(x.causes.heldUpFor))
}

func (a *actor) state(f search.Fingerprint) search.Fingerprint {
	f = f.Number(int64(a.observed)).Number(int64(a.fence)).Number(int64(a.before)).Number(int64(a.met))
	f = f.Number(int64(len(a.askedOn))).Number(int64(len(a.goneOn))).Number(int64(len(a.missingOn))).Number(int64(a.behind)).Number(int64(a.begin)).Number(int64(a.lingered)).Number(int64(a.straggled))
	for _, b := range []bool{
		a.arrivedLate, a.releaseCut, a.begun, a.done, a.dead, a.paused(), a.lags(), a.hung, a.cancelled, a.impeded, a.granted, a.releasing, a.released, a.knowsLoss, a.inside, a.inTime,
	} {
		f = f.Flag(b)
	}
	return f
}

// stateOfLocked returns a hash of a server's state and calls. Servers are interchangeable, so it
// omits the server's name.
func (x *execution) stateOfLocked(n *node) search.Fingerprint {
	f := n.lockServer.state(search.EmptyFingerprint)
	f = f.Text(n.contents()).Number(int64(n.ahead)).Flag(n.down.Load())
	for _, a := range x.world.actors {
		for _, l := range a.leases {
			if l.node == n {
				f = f.Text(a.name).Number(l.until.UnixNano())
			}
		}
	}
	return f.Number(int64(n.replyHash)).Number(int64(x.reducer.pendingLocked(n)))
}

func (x *execution) stateOfDB() search.Fingerprint {
	o := x.world.row()
	f := search.EmptyFingerprint.Number(int64(o.Status)).Number(o.Driver).Number(int64(o.Fence)).Number(o.Stock)
	for _, g := range x.world.ledger() {
		f = f.Number(g.Driver).Number(int64(g.Fence))
	}
	return f
}
