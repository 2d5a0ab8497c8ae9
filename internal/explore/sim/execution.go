package sim

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/search"
	"grablab/internal/grab"
	"grablab/internal/schedule"

	"github.com/alicebob/miniredis/v2/server"
)

// Limits say which steps an execution offers at its branch points.
type Limits struct {
	Bounds     search.Cost
	Faults     []catalog.Fault // the kinds that may strike
	Properties []string        // that are looked at
	Reduce     bool            // leave out steps that only reorder independent calls
	// Visited says whether a state need not be explored again, at this cost and
	// after so many steps. nil: none.
	Visited func(search.Fingerprint, search.Cost, int) bool
}

// Execute runs one schedule in a bubble: its steps, and from there on what is
// free, until every actor has ended.
func (s *Cluster) Execute(l *Limits, task search.Task) (t *search.Trace, err error) {
	s.bubble(func() {
		x, problem := newExecution(s)
		defer x.stop()
		if err = problem; err == nil {
			t = x.run(l, task)
		}
	})
	return t, err
}

func (x *execution) run(l *Limits, task search.Task) *search.Trace {
	t := &search.Trace{Impossible: -1}
	for _, given := range task.Steps {
		if !x.add(t, given) {
			return t
		}
	}
	for {
		toGo := x.toGo(l.Properties)
		if toGo == never {
			break
		}
		transitions, commuted := x.transitions(l, task.Cost)
		here := search.BranchPoint{State: x.state(), Transitions: transitions, ToGo: toGo}
		if l.Visited != nil && l.Visited(here.State, task.Cost, len(t.Steps)) {
			break
		}
		t.Points = append(t.Points, here)
		next := slices.IndexFunc(transitions, func(tr search.Transition) bool { return tr.Cost == search.Free })
		if next < 0 && !commuted {
			x.finish()
		}
		if next < 0 {
			break
		}
		if t.Cut = len(t.Steps) == search.MaxSteps; t.Cut || !x.add(t, transitions[next].Step) {
			break
		}
	}
	t.Broken = x.broken
	return t
}

// add makes a step and records it, or that it could not be made.
func (x *execution) add(t *search.Trace, s schedule.Step) bool {
	if !x.step(s) {
		t.Impossible = len(t.Steps)
		return false
	}
	t.Steps = append(t.Steps, s)
	return true
}

// step makes one step, and waits until everybody waits again. It is false if
// there is nothing that the step could be made with.
func (x *execution) step(s schedule.Step) bool {
	x.note(s)
	if !x.do(s) {
		return false
	}
	synctest.Wait()
	x.count()
	x.steps++
	x.judge()
	return true
}

// note remembers what the independence of the next calls is judged by, and who
// is under way.
func (x *execution) note(s schedule.Step) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last, x.struck, x.before = nil, nil, x.before[:0]
	switch s.Kind {
	case schedule.Call:
		if i := slices.IndexFunc(x.waiting, func(c *call) bool { return c.is(s) }); i >= 0 {
			x.last = x.waiting[i]
			x.before = append(x.before, x.waiting...)
		}
	case schedule.Restarts, schedule.NodeClock:
		x.struck = x.server(s.Target)
		for _, c := range x.waiting {
			if x.enabled(c.actor) && x.switching(c.actor) == search.Free {
				x.before = append(x.before, c)
			}
		}
	}
	// Whoever goes on after time has passed, or a server has failed, preempts nobody.
	x.current = x.named(s.Actor)
}

func (x *execution) named(name string) *actor {
	for _, a := range x.actors {
		if a.name == name {
			return a
		}
	}
	return nil
}

func (x *execution) do(s schedule.Step) bool {
	a, n := x.named(s.Actor), x.server(s.Target)
	if n != nil {
		n.past = n.past.Number(int64(s.Kind)).Number(int64(x.elapsed()))
	}
	switch s.Kind {
	case schedule.Begins:
		return x.begin(a)
	case schedule.Call:
		return x.choose(&x.waiting, s, delivered)
	case schedule.ReplyLost:
		return x.choose(&x.waiting, s, lost)
	case schedule.ReplyLate:
		return x.choose(&x.waiting, s, delayed)
	case schedule.GivenUp:
		x.excused = true
		return x.choose(&x.waiting, s, givenUp)
	case schedule.Hears:
		return x.choose(&x.late, s, delivered)
	case schedule.ArrivesLate:
		return x.arriveLate(s)
	case schedule.Paused:
		return x.change(a, func() { a.paused = true })
	case schedule.Resumes:
		return a.paused && x.change(a, func() { a.paused = false })
	case schedule.Cancelled:
		a.cancelled = true
		a.cancel()
		return true
	case schedule.Dies:
		return x.die(a)
	case schedule.InstanceDies:
		return x.instanceDies(s.Instance)
	case schedule.ClientClock:
		x.instances[s.Instance-1].ahead += s.Duration
	case schedule.Passes:
		time.Sleep(s.Duration)
		x.timePassed()
	case schedule.NextTimer:
		return x.nextTimer()
	case schedule.LeaseEnd:
		return x.leaseEnd()
	case schedule.Restarts:
		n.restart()
	case schedule.Down:
		n.down, x.excused = true, true
		n.hangUp()
	case schedule.Up:
		n.down = false
	case schedule.NodeClock:
		n.jump(s.Duration)
	}
	return true
}

func (x *execution) server(name string) *node {
	for _, n := range x.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// offset keeps the timers of two actors from falling due in the same instant,
// where a select would pick at random.
const offset = 17 * time.Nanosecond

func (x *execution) begin(a *actor) bool {
	if a.begun {
		return false
	}
	time.Sleep(time.Duration(a.index+1) * offset)
	ctx, cancel := context.WithCancel(context.Background())
	a.begun, a.cancel = true, cancel
	for i, b := range x.actors {
		if b.granted {
			a.early |= 1 << i
		}
	}
	x.running.Go(func() {
		answer := a.inst.service.Grab(ctx, grab.Request{Order: theOrder, Driver: a.driver})
		x.mu.Lock()
		defer x.mu.Unlock()
		a.answer, a.done = answer, true
		x.arrive()
	})
	return true
}

// change changes an actor under the mutex.
func (x *execution) change(a *actor, f func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !a.begun || a.done || a.dead {
		return false
	}
	f()
	return true
}

// die ends the actor's process, which nobody else is in, and starts it again.
func (x *execution) die(a *actor) bool {
	return x.change(a, func() { a.dead = true }) && x.restart(a.inst)
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
	x.open, x.starting = true, true // nobody else runs, and Setting up is no step
	err := x.start(inst)
	x.open, x.starting = false, false
	return err == nil
}

// arriveLate carries out a call that its caller has given up.
func (x *execution) arriveLate(s schedule.Step) bool {
	x.mu.Lock()
	i := slices.IndexFunc(x.inFlight, func(c *call) bool { return c.is(s) })
	if i < 0 {
		x.mu.Unlock()
		return false
	}
	c := x.inFlight[i]
	x.inFlight = slices.Delete(x.inFlight, i, i+1)
	x.excused = true
	x.mu.Unlock()
	if c.node.down {
		return true
	}
	peer := server.NewPeer(nobody())
	for _, args := range c.sent {
		words := make([]string, len(args))
		for i, a := range args {
			words[i] = fmt.Sprint(a)
		}
		c.node.dispatch(peer, words, false)
	}
	x.applied(c, nil)
	return true
}

// nextTimer lets time pass until somebody comes to the gate or ends. While
// somebody could go on, no lease ends on the way: that would be an expiry.
func (x *execution) nextTimer() bool {
	x.mu.Lock()
	most, busy := horizon*x.TTL, x.anyEnabled()
	if end := x.nextLeaseEnd(); busy && end > 0 {
		most = end - time.Nanosecond
	}
	freed := x.freeForWaiters()
	x.mu.Unlock()
	select {
	case <-x.arrived:
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
	x.waitedFor(freed, time.Since(began))
	return true
}

// horizon is after how many leases it is no use to wait any longer.
const horizon = 8

// leaseEnd lets time pass until the next lease has just run out.
func (x *execution) leaseEnd() bool {
	x.mu.Lock()
	left := x.nextLeaseEnd()
	x.mu.Unlock()
	if left <= 0 {
		return false
	}
	time.Sleep(left + time.Millisecond)
	x.timePassed()
	return true
}

func (x *execution) timePassed() {
	for _, n := range x.nodes {
		n.aged()
	}
}

// finish looks at what is left when everything has ended.
func (x *execution) finish() {
	for _, n := range x.nodes {
		if n.down {
			n.down = false
		}
	}
	x.mu.Lock()
	x.open = true
	x.mu.Unlock()
	x.judgeEnd()
}
