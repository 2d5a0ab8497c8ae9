package sim

import (
	"context"
	"slices"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
)

// prepare records which actor makes the step, and which other calls could have continued instead.
func (x *execution) prepare(s schedule.Step) {
	x.gate.mu.Lock()
	defer x.gate.mu.Unlock()
	x.reducer.last, x.reducer.alternatives, x.reducer.underway = nil, nil, nil
	switch s.Kind {
	case schedule.Call:
		if x.reducer.last = catalog.First(x.gate.waiting, func(c *call) bool { return c.matches(s) }); x.reducer.last != nil {
			x.reducer.alternatives, x.reducer.underway = slices.Clone(x.gate.waiting), slices.Clone(x.gate.inFlight)
		}
	case schedule.ArrivesLate:
		x.reducer.last = catalog.First(x.gate.inFlight, func(c *call) bool { return c.matches(s) })
		x.reducer.underway = slices.Clone(x.gate.inFlight)
	}
	// A switch to another actor usually counts as a preemption. But after a step without an actor,
	// such as a server failure, any actor may continue at no cost. A late call is not a move of its
	// actor.
	if s.Kind != schedule.ArrivesLate {
		x.current = x.world.named(s.Actor)
	}
}

// faultlessKinds lists the step kinds that need no fault.
var faultlessKinds = []schedule.Kind{schedule.Begins, schedule.Call, schedule.NextTimer, schedule.LeaseEnd, schedule.Passes}

// harmlessKinds lists the step kinds that let all other actors' calls succeed.
var harmlessKinds = append([]schedule.Kind{
	schedule.Dies, schedule.InstanceDies, schedule.Cancelled,
	schedule.MessageLost, schedule.MessageTwice, schedule.MessageLate, schedule.MessagesArrive,
}, faultlessKinds...)

// timeKinds lists the step kinds in which only time passes.
var timeKinds = []schedule.Kind{schedule.NextTimer, schedule.LeaseEnd, schedule.Passes}

// do executes a step. It returns false if the step is impossible.
func (x *execution) do(s schedule.Step) bool {
	a, n := x.world.named(s.Actor), x.world.node(s.Target)
	if !n.supports(s) {
		return false
	}
	if n != nil {
		n.eventHash = n.eventHash.Number(int64(s.Kind)).Number(int64(x.world.elapsed()))
	}
	x.causes.shown |= s.Kind.Shows()
	if !slices.Contains(faultlessKinds, s.Kind) {
		x.causes.faulted, x.causes.onlyRepeated = true, s.Kind == schedule.SentTwice && (x.causes.onlyRepeated || !x.causes.faulted)
	}
	x.impede(s, n)
	switch s.Kind {
	case schedule.Begins:
		return x.begin(a)
	case schedule.Call, schedule.ReplyLost, schedule.RequestLost, schedule.SentTwice, schedule.ReplyLate, schedule.GivenUp:
		if s.Kind != schedule.Call {
			x.oracle.waits.freeFor = 0 // a waiter whose request failed may have to try again
		}
		return x.gate.decide(&x.gate.waiting, s)
	case schedule.MessageLost, schedule.MessageTwice, schedule.MessageLate:
		r := n.lockServer.(*redisServer)
		r.messages.as, r.messages.met = s.Kind, 0
		return x.gate.decide(&x.gate.waiting, s)
	case schedule.MessagesArrive:
		return n.lockServer.(*redisServer).messages.arrive(func(c *conn) bool { return !c.owner.cut[schedule.Locks] }) > 0
	case schedule.Hears:
		return x.gate.decide(&x.gate.late, s)
	case schedule.ArrivesLate:
		return x.arriveLate(s)
	case schedule.Paused:
		x.causes.heldUp, x.causes.stopped = true, true
		return x.world.change(a, func() {
			if a.inst.pausedAs = a; a.inst.awake == nil {
				a.inst.awake = make(chan struct{})
			}
			a.inst.stopped.Store(true)
		})
	case schedule.Resumes:
		return x.world.resume(a.inst)
	case schedule.Hangs:
		return x.world.change(a, func() { a.hung = true })
	case schedule.Cancelled:
		return x.world.change(a, func() { a.cancelled = true; a.cancel() })
	case schedule.Dies:
		return x.world.change(a, func() { a.dead = true }) && x.world.restart(a.inst)
	case schedule.InstanceDies:
		return x.world.instanceDies(s.Instance)
	case schedule.ClientClock:
		x.cluster.instances[s.Instance-1].ahead += s.Duration
	case schedule.Passes:
		x.gate.mu.Lock() // a caller may give up right now
		x.stillLate = len(x.gate.late) > 0
		x.gate.mu.Unlock()
		time.Sleep(s.Duration)
		x.world.timePassed()
	case schedule.NextTimer:
		return x.nextTimer()
	case schedule.LeaseEnd:
		return x.leaseEnd()
	case schedule.Restarts, schedule.FailsOver, schedule.Evicts:
		if s.Target == schedule.DB {
			x.world.db.Restart()
		} else {
			x.forget(n.lockServer.(*redisServer), s.Kind)
		}
	case schedule.CutOff:
		x.cluster.instances[s.Instance-1].cut[s.Target], x.cutAt = true, x.world.elapsed()
	case schedule.Reaches:
		x.world.reaches(x.cluster.instances[s.Instance-1], s.Target)
	case schedule.Down:
		n.down.Store(true)
		x.gate.mayLeaveLock = true
		n.disconnect()
	case schedule.Up:
		n.down.Store(false)
		n.timePassed()
	case schedule.NodeClock:
		n.jump(s.Duration)
	}
	return true
}

// impede marks the actors whose calls the step affects. A fault of one call or of a network affects only one
// instance. In an outage of a Redis server, the calls that fail mark their instances themselves. A broken subscription
// excuses no driver, because a driver can ask again.
func (x *execution) impede(s schedule.Step, n *node) {
	if slices.Contains(harmlessKinds, s.Kind) {
		return
	}
	switch s.Kind {
	case schedule.ReplyLost, schedule.RequestLost, schedule.SentTwice, schedule.ReplyLate, schedule.GivenUp, schedule.Hears:
		if a := x.world.named(s.Actor); a != nil {
			a.inst.impede()
		}
		return
	case schedule.CutOff, schedule.Reaches:
		x.cluster.instances[s.Instance-1].impede()
		return
	case schedule.Down, schedule.Up:
		if _, redis := n.lockServer.(*redisServer); redis {
			return
		}
	}
	for _, inst := range x.cluster.instances {
		inst.impede()
	}
}

// impede marks an instance's actors, because one of its calls is affected by a fault. If the call runs in the
// background, any of them may need it.
func (inst *instance) impede() {
	if inst.world == nil {
		return // no schedule is running
	}
	inst.world.gate.mu.Lock()
	defer inst.world.gate.mu.Unlock()
	for _, a := range inst.world.actors {
		a.impeded = a.impeded || a.inst == inst && a.begun && !a.done
	}
}

// supports reports whether a step is possible on its target. n is nil if the target is not a lock
// server of this strategy, for example because the schedule was found for another strategy.
func (n *node) supports(s schedule.Step) bool {
	redis, late := false, false
	if n != nil {
		_, redis = n.lockServer.(*redisServer)
		_, late = n.lockServer.(latecomer)
	}
	switch s.Kind {
	case schedule.Down, schedule.Up, schedule.NodeClock:
		return n != nil
	case schedule.Restarts:
		return redis || s.Target == schedule.DB
	case schedule.FailsOver, schedule.Evicts, schedule.SentTwice,
		schedule.MessageLost, schedule.MessageTwice, schedule.MessageLate, schedule.MessagesArrive:
		return redis
	case schedule.GivenUp:
		return late
	case schedule.CutOff, schedule.Reaches:
		return s.Target == schedule.DB || s.Target == schedule.Locks
	default:
		return true
	}
}

// forget deletes a Redis server's data when the server restarts, evicts all keys or fails over.
//
// A restart also ends the subscriptions. It keeps connections and scripts, because clients would
// restore them immediately.
func (x *execution) forget(r *redisServer, by schedule.Kind) {
	lost := catalog.Forgotten
	if by == schedule.Evicts {
		lost = catalog.Evicted
	}
	x.causes.noteForgotten(r.node, lost)
	r.redis.FlushAll()
	r.dirty = true
	if by != schedule.Evicts {
		r.disconnect()
	}
	if by == schedule.FailsOver {
		r.beginCounters()
	}
}

// reaches reconnects an instance to a network, and delivers the messages that were delayed while
// the network was broken.
func (w *world) reaches(inst *instance, target string) {
	delete(inst.cut, target)
	for _, r := range serversOf[*redisServer](w.cluster) {
		r.messages.arrive(func(c *conn) bool { return c.owner == inst })
	}
}

// offset keeps the timers of two actors apart. If both fired at the same time, a select statement
// would choose one at random.
const offset = 17 * time.Nanosecond

// begin starts an actor's grab in a new goroutine. It returns false if the actor has begun already
// or is paused.
func (x *execution) begin(a *actor) bool {
	if a.begun || a.paused() {
		return false
	}
	time.Sleep(time.Duration(a.index+1) * offset)
	synctest.Wait() // run the goroutines whose timers expired during the sleep
	ctx, cancel := context.WithCancel(context.Background())
	a.begun, a.begin, a.cancel = true, x.world.elapsed(), cancel
	for _, s := range serversOf[*zkServer](x.cluster) {
		a.expiries = s.timesExpired(a.inst)
	}
	x.gate.mu.Lock()
	a.before = x.world.actorsThat(func(b *actor) bool { return b.granted })
	a.met = x.world.actorsThat(func(b *actor) bool { return b != a && b.begun && (!b.done || x.gate.hasCallLocked(b.sent)) })
	a.behind, a.impeded = x.oracle.waits.queuesBehind(a), !x.causes.isCalmLocked(a)
	x.gate.mu.Unlock()
	x.world.running.Go(func() {
		unlessExited(func() { a.inst.service.Grab(ctx, grab.Request{Order: theOrder, Driver: a.driver}) })
		x.gate.mu.Lock()
		defer x.gate.mu.Unlock()
		a.done = true
		x.gate.signal()
	})
	return true
}

// unlessExited calls f, which runs a strategy's code. If that code ends its goroutine, unlessExited
// panics, because otherwise the caller would wait forever.
func unlessExited(f func()) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			panic(p)
		}
		if !returned {
			panic("the strategy ended its caller's goroutine, as runtime.Goexit does")
		}
	}()
	f()
	returned = true
}

// change calls f if the actor is still running. Otherwise, it returns false.
func (w *world) change(a *actor, f func()) bool {
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	if !a.begun || a.done || a.dead {
		return false
	}
	f()
	return true
}

// resume lets a paused process continue. It returns false if the process is not paused.
func (w *world) resume(inst *instance) bool {
	if !inst.stopped.CompareAndSwap(true, false) {
		return false
	}
	inst.pausedAs = nil
	w.timePassed()
	return true
}

func (w *world) instanceDies(number int) bool {
	ok := false
	for _, a := range w.actors {
		if a.inst.number == number {
			ok = w.change(a, func() { a.dead = true }) || ok
		}
	}
	return ok && w.restart(w.cluster.instances[number-1])
}

// restart replaces a dead process and ends its database sessions.
func (w *world) restart(inst *instance) bool {
	for _, tx := range inst.sessions {
		_ = tx.Close(context.Background())
	}
	if len(inst.sessions) > 0 {
		synctest.Wait() // a waiter gets the row lock of an ended session, and must reach the gate before it opens
	}
	w.gate.ungated, w.gate.starting = true, true // calls need no steps during the setup; no other goroutine runs, so the lock is not needed
	err := w.start(inst)
	w.gate.ungated, w.gate.starting = false, false
	return err == nil
}

// arriveLate makes a server execute a call whose caller has given up.
func (x *execution) arriveLate(s schedule.Step) bool {
	x.gate.mu.Lock()
	c := takeLocked(&x.gate.inFlight, s)
	if c != nil {
		x.gate.mayLeaveLock, c.actor.arrivedLate = true, true
	}
	x.gate.mu.Unlock()
	if c == nil || c.node.down.Load() {
		return c != nil
	}
	c.node.lockServer.(latecomer).arrive(c)
	value := c.actor.value
	x.leases.update(c, nil)
	if _, ok := c.node.leaseOf(c.actor.value); !ok || x.world.stores(value) {
		x.gate.mu.Lock()
		c.actor.value = value // the late call belongs to an earlier attempt, or its value is not stored, so the actor keeps its own
		x.leases.findLeasesLocked(c.node)
		x.gate.mu.Unlock()
	}
	return true
}

// nextTimer lets time pass until a call arrives or a grab ends. If a call could continue instead,
// nextTimer stops before the next lease end.
func (x *execution) nextTimer() bool {
	x.gate.mu.Lock()
	most, busy := horizon*x.cluster.TTL, x.gate.anyEnabledLocked()
	if holder, left := x.leases.nextLeaseEndLocked(); busy && holder != nil {
		most = left - time.Nanosecond
	}
	x.causes.heldUp = x.causes.heldUp || busy
	waiters, lingering, straggling := x.oracle.waits.waitersForFreeLocked(), x.oracle.waits.lingeringLocked(), x.oracle.waits.stragglingLocked()
	x.gate.mu.Unlock()
	x.gate.forgetSignal()
	began := time.Now()
	if x.gate.sleep(most) && busy {
		return false
	}
	x.world.timePassed()
	passed := time.Since(began)
	if busy {
		x.causes.heldUpFor += passed
	}
	if x.oracle.waits.freeFor += passed; len(waiters) == 0 {
		x.oracle.waits.freeFor = 0
	}
	x.oracle.waits.judgeWait(waiters)
	x.oracle.waits.judgeLingering(lingering, passed)
	x.oracle.waits.judgeStraggling(straggling, passed)
	return true
}

// horizon is the longest wait in a simulation, as a multiple of the TTL. A longer wait would change
// nothing.
const horizon = 8

// leaseEnd lets time pass until a lease has expired. It returns false if an actor makes a call
// first, such as a renewal.
func (x *execution) leaseEnd() bool {
	x.gate.mu.Lock()
	holder, left := x.leases.nextLeaseEndLocked()
	x.causes.heldUp = x.causes.heldUp || x.gate.anyEnabledLocked()
	var ending, resting []*actor // the actors whose leases end now, and the ones among them without a waiting call
	for _, a := range x.world.actors {
		if end := x.leases.leaseEndLocked(a); 0 < end && end <= left+time.Millisecond {
			if ending = append(ending, a); !x.gate.enabledLocked(a) {
				resting = append(resting, a)
			}
		}
	}
	x.gate.mu.Unlock()
	if holder == nil {
		return false
	}
	x.gate.forgetSignal()
	began := time.Now()
	defer func() {
		if x.causes.heldUp {
			x.causes.heldUpFor += time.Since(began)
		}
	}()
	end := began.Add(left + time.Millisecond)
	for !x.gate.sleep(time.Until(end)) {
		x.gate.mu.Lock()
		x.causes.heldUp = true // the new call must wait
		goesOn := slices.ContainsFunc(resting, x.gate.enabledLocked) ||
			slices.ContainsFunc(ending, func(a *actor) bool { return x.leases.renewalDueLocked(a.inst) })
		x.gate.mu.Unlock()
		if goesOn {
			return false
		}
	}
	x.world.timePassed()
	return !x.leases.isKeptAlive(holder)
}

// timePassed tells all servers that time has passed, so that they handle expired leases. It also
// records the leases that ZooKeeper clients have renewed in the background.
func (w *world) timePassed() {
	for _, n := range w.cluster.nodes {
		n.timePassed()
		if _, ok := n.lockServer.(*zkServer); ok {
			w.gate.mu.Lock()
			w.leases.findLeasesLocked(n)
			w.gate.mu.Unlock()
		}
	}
}
