package sim

import (
	"context"
	"slices"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/grab"
)

// prepare remembers what the independence of the next calls is judged by, and
// which actor moves.
func (x *execution) prepare(s schedule.Step) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last, x.struck, x.alternatives, x.underway = nil, nil, x.alternatives[:0], x.underway[:0]
	switch s.Kind {
	case schedule.Call:
		if x.last = find(x.waiting, func(c *call) bool { return c.is(s) }); x.last != nil {
			x.alternatives = append(x.alternatives, x.waiting...)
			x.underway = append(x.underway, x.inFlight...)
		}
	case schedule.ArrivesLate:
		x.last = find(x.inFlight, func(c *call) bool { return c.is(s) })
		x.underway = append(x.underway, x.inFlight...)
	case schedule.Restarts, schedule.FailsOver, schedule.Evicts, schedule.NodeClock:
		if x.struck = x.node(s.Target); x.struck == nil {
			break // of the database, whatever commutes with that
		}
		for _, c := range x.waiting {
			if c.canGo() && x.switchCostLocked(c.actor) == search.Free {
				x.alternatives = append(x.alternatives, c)
			}
		}
	}
	x.begun = append(x.begun, s)
	// An actor that goes on after time has passed, or a server has failed, preempts no
	// other. What arrives late is no move of the actor that once sent it.
	if s.Kind != schedule.ArrivesLate {
		x.current = x.named(s.Actor)
	}
}

// undisturbed are the steps that happen on a good day.
var undisturbed = []schedule.Kind{schedule.Begins, schedule.Call, schedule.NextTimer, schedule.LeaseEnd, schedule.Passes}

// do does what a step says. It is false if the step cannot be made.
func (x *execution) do(s schedule.Step) bool {
	a, n := x.named(s.Actor), x.node(s.Target)
	if n != nil {
		n.past = n.past.Number(int64(s.Kind)).Number(int64(x.elapsed()))
	}
	x.shown |= shown[s.Kind]
	x.faulted = x.faulted || !slices.Contains(undisturbed, s.Kind)
	switch s.Kind {
	case schedule.Begins:
		return x.begin(a)
	case schedule.Call:
		return x.decide(&x.waiting, s, delivered)
	case schedule.ReplyLost:
		return x.decide(&x.waiting, s, replyLost)
	case schedule.ReplyLate:
		return x.decide(&x.waiting, s, replyLate)
	case schedule.GivenUp:
		x.mayLeaveLock = true
		return x.decide(&x.waiting, s, givenUp)
	case schedule.MessageLost, schedule.MessageTwice, schedule.MessageLate:
		r, ok := n.lockServer.(*redisServer)
		if ok {
			r.messages.begin(s.Kind)
		}
		return ok && x.decide(&x.waiting, s, delivered)
	case schedule.MessagesArrive:
		r, ok := n.lockServer.(*redisServer)
		return ok && r.messages.arrive()
	case schedule.Hears:
		return x.decide(&x.late, s, delivered)
	case schedule.ArrivesLate:
		return x.arriveLate(s)
	case schedule.Paused:
		x.heldUp = true
		return x.change(a, func() {
			a.inst.pausedAs = a
			a.inst.stopped.Store(true)
		})
	case schedule.Resumes:
		return x.resume(a.inst)
	case schedule.Hangs:
		return x.change(a, func() { a.hung = true })
	case schedule.Cancelled:
		a.cancelled = true
		a.cancel()
	case schedule.Dies:
		return x.change(a, func() { a.dead = true }) && x.restart(a.inst)
	case schedule.InstanceDies:
		return x.instanceDies(s.Instance)
	case schedule.ClientClock:
		x.instances[s.Instance-1].ahead += s.Duration
	case schedule.Passes:
		x.mu.Lock() // a caller may be giving up
		x.stillLate = len(x.late) > 0
		x.mu.Unlock()
		time.Sleep(s.Duration)
		x.timePassed()
	case schedule.NextTimer:
		return x.nextTimer()
	case schedule.LeaseEnd:
		return x.leaseEnd()
	case schedule.Restarts:
		if s.Target == schedule.DB {
			x.db.Restart()
			x.dbState = 0
			return true
		}
		f, ok := n.lockServer.(forgetter)
		if ok {
			x.noteForgotten(n, catalog.Forgotten)
			f.restart()
		}
		return ok
	case schedule.FailsOver, schedule.Evicts:
		r, ok := n.lockServer.(*redisServer)
		switch {
		case !ok:
		case s.Kind == schedule.Evicts:
			x.noteForgotten(n, catalog.Evicted)
			r.evict()
		default:
			x.noteForgotten(n, catalog.Forgotten)
			r.restart()
			x.beginCounters(n)
		}
		return ok
	case schedule.CutOff:
		x.instances[s.Instance-1].cut[s.Target], x.cutAt = true, x.elapsed()
	case schedule.Reaches:
		x.reaches(x.instances[s.Instance-1], s.Target)
	case schedule.Down:
		n.down.Store(true)
		x.mayLeaveLock = true
		n.disconnect()
	case schedule.Up:
		n.down.Store(false)
		n.timePassed()
	case schedule.NodeClock:
		n.jump(s.Duration)
	}
	return true
}

// reaches ends what cuts an instance off. What was published for it meanwhile arrives.
func (x *execution) reaches(inst *instance, target string) {
	delete(inst.cut, target)
	for _, n := range x.nodes {
		if r, ok := n.lockServer.(*redisServer); ok {
			r.messages.arriveAt(inst)
		}
	}
}

// messagesEnd says whether a step that was to do something to messages has met any.
func (x *execution) messagesEnd(s schedule.Step) bool {
	switch s.Kind {
	case schedule.MessageLost, schedule.MessageTwice, schedule.MessageLate:
		return x.node(s.Target).lockServer.(*redisServer).messages.end()
	default:
		return true
	}
}

// offset keeps the timers of two actors from falling due in the same instant,
// where a select would pick at random.
const offset = 17 * time.Nanosecond

func (x *execution) begin(a *actor) bool {
	if a.begun || a.paused() {
		return false
	}
	time.Sleep(time.Duration(a.index+1) * offset)
	synctest.Wait() // for what fell due meanwhile
	ctx, cancel := context.WithCancel(context.Background())
	a.begun, a.begin, a.cancel = true, x.elapsed(), cancel
	for i, b := range x.actors {
		if b.granted {
			a.before |= 1 << i
		}
	}
	x.mu.Lock()
	a.behind = x.queuesBehind(a)
	x.mu.Unlock()
	x.running.Go(func() {
		unlessExited(func() { a.inst.service.Grab(ctx, grab.Request{Order: theOrder, Driver: a.driver}) })
		x.mu.Lock()
		defer x.mu.Unlock()
		a.done = true
		x.signal()
	})
	return true
}

// unlessExited calls f, which is a strategy's, and panics where f ends its goroutine:
// what waits for it would wait for ever.
func unlessExited(f func()) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			panic(p)
		}
		if !returned {
			panic("the strategy ended the goroutine of its caller, as runtime.Goexit does")
		}
	}()
	f()
	returned = true
}

// change changes an actor that is under way.
func (x *execution) change(a *actor, f func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !a.begun || a.done || a.dead {
		return false
	}
	f()
	return true
}

// resume lets a paused process continue, and with it the clients that it stopped. It
// returns false if the process is not paused.
func (x *execution) resume(inst *instance) bool {
	if !inst.stopped.Load() {
		return false
	}
	inst.pausedAs = nil
	inst.stopped.Store(false)
	x.timePassed()
	return true
}

func (x *execution) instanceDies(number int) bool {
	ok := false
	for _, a := range x.actors {
		if a.inst.number == number {
			ok = x.change(a, func() { a.dead = true }) || ok
		}
	}
	return ok && x.restart(x.instances[number-1])
}

// restart replaces an instance whose process has ended. Its sessions have ended
// with their connections.
func (x *execution) restart(inst *instance) bool {
	for _, tx := range inst.sessions {
		_ = tx.Close(context.Background())
	}
	x.ungated, x.starting = true, true // no other goroutine runs, and setting up is no step
	err := x.start(inst)
	x.ungated, x.starting = false, false
	return err == nil
}

// arriveLate applies a call that its caller has given up.
func (x *execution) arriveLate(s schedule.Step) bool {
	x.mu.Lock()
	c := takeLocked(&x.inFlight, s)
	if c != nil {
		x.mayLeaveLock, c.actor.arrivedLate = true, true
	}
	x.mu.Unlock()
	if c == nil || c.node.down.Load() {
		return c != nil
	}
	c.node.lockServer.(latecomer).arrive(c)
	value := c.actor.value
	x.applied(c, nil)
	if _, ok := c.node.leaseOf(c.actor.value); !ok {
		x.mu.Lock()
		c.actor.value = value // what it has taken back is not what its actor asks for by now
		x.findLeasesLocked(c.node)
		x.mu.Unlock()
	}
	return true
}

// nextTimer lets time pass until a call comes to the gate or a grab ends. While a
// call could go through, no lease ends on the way: that would be a fault.
func (x *execution) nextTimer() bool {
	x.mu.Lock()
	most, busy := horizon*x.TTL, x.anyEnabledLocked()
	if holder, left := x.nextLeaseEndLocked(); busy && holder != nil {
		most = left - time.Nanosecond
	}
	x.heldUp = x.heldUp || busy
	waiters := x.waitersForFreeLocked()
	x.mu.Unlock()
	select {
	case <-x.arrived: // an old signal
	default:
	}
	began := time.Now()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-x.arrived:
	case <-timer.C:
		if busy {
			return false
		}
	}
	x.timePassed()
	if busy {
		x.heldUpFor += time.Since(began)
	}
	if x.freeFor += time.Since(began); len(waiters) == 0 {
		x.freeFor = 0
	}
	x.judgeWait(waiters)
	return true
}

// horizon is after how many leases waiting any longer changes nothing.
const horizon = 8

// leaseEnd lets time pass until the next lease has just run out. It is false if a
// renewal of the holder comes on the way, or the holder goes on by itself.
func (x *execution) leaseEnd() bool {
	x.mu.Lock()
	holder, left := x.nextLeaseEndLocked()
	x.heldUp = x.heldUp || x.anyEnabledLocked()
	busy := holder != nil && x.enabledLocked(holder)
	x.mu.Unlock()
	if holder == nil {
		return false
	}
	select {
	case <-x.arrived: // an old signal
	default:
	}
	began := time.Now()
	defer func() {
		if x.heldUp {
			x.heldUpFor += time.Since(began)
		}
	}()
	timer := time.NewTimer(left + time.Millisecond)
	defer timer.Stop()
	for {
		select {
		case <-x.arrived:
			x.mu.Lock()
			x.heldUp = true // what has arrived goes no further yet
			goesOn := x.renewalDueLocked(holder.inst) || !busy && x.enabledLocked(holder)
			x.mu.Unlock()
			if goesOn {
				return false
			}
		case <-timer.C:
			x.timePassed()
			return !x.keptAlive(holder)
		}
	}
}

// timePassed has the leases looked at anew that are kept alive without a call.
func (x *execution) timePassed() {
	for _, n := range x.nodes {
		n.timePassed()
		if _, ok := n.lockServer.(pinged); ok {
			x.mu.Lock()
			x.findLeasesLocked(n)
			x.mu.Unlock()
		}
	}
}
