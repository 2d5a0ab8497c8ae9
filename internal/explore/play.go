package explore

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"grablab/internal/grab"
	"grablab/internal/schedule"

	"github.com/alicebob/miniredis/v2/server"
)

// limits are the bounds of a search, as the one who plays needs them.
type limits struct {
	preemptions, faults int8
	kinds               map[string]bool
	properties          []string
	reduce              bool // leave out what only reorders independent calls
	merge               bool // look at equal states once
}

// point is a moment at which something has to be chosen.
type point struct {
	state sum
	moves []move
	toGo  int // so many steps at the least, before something can break
}

// played is what became of one schedule.
type played struct {
	steps  []schedule.Step
	points []point // from the end of the given steps on
	broken []violation
	known  bool   // it ran into a state that was known
	wrong  int    // the first given step that could not be made; -1: all could
	cut    bool   // it did not come to an end
	stack  string // of a process that it ended
}

// maxSteps is more than any grab takes. Who needs more does not get on.
const maxSteps = 300

// play plays given, and then what costs nothing until everything has ended. It
// is called inside of a bubble. known says whether a state need not be looked at again.
func (s *stage) play(set setting, l *limits, given []schedule.Step, used cost, known func(sum, cost, int) bool) (*played, error) {
	w, err := newWorld(s, set)
	defer w.stop()
	if err != nil {
		return nil, err
	}
	p := &played{wrong: -1}
	for {
		if len(p.steps) < len(given) {
			if !w.step(given[len(p.steps)]) {
				p.wrong = len(p.steps)
				break
			}
			p.steps = append(p.steps, given[len(p.steps)])
			continue
		}
		toGo := w.toGo(l.properties)
		if toGo == never {
			break
		}
		moves, commuted := w.moves(l, used)
		here := point{w.state(), moves, toGo}
		if known != nil && known(here.state, used, len(p.steps)) {
			p.known = true
			break
		}
		p.points = append(p.points, here)
		next := slices.IndexFunc(here.moves, func(m move) bool { return m.cost == free })
		if next < 0 && !commuted {
			w.finish()
		}
		if next < 0 {
			break
		}
		if len(p.steps) == maxSteps {
			p.cut = true
			break
		}
		if !w.step(here.moves[next].Step) {
			p.wrong = len(p.steps)
			break
		}
		p.steps = append(p.steps, here.moves[next].Step)
	}
	p.broken = w.broken
	return p, nil
}

// step makes one step, and waits until everybody waits again. It is false if
// there is nothing that the step could be made with.
func (w *world) step(s schedule.Step) bool {
	w.note(s)
	if !w.do(s) {
		return false
	}
	synctest.Wait()
	w.count()
	w.steps++
	w.judge()
	return true
}

// note remembers what the independence of the next calls is judged by, and who
// is under way.
func (w *world) note(s schedule.Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.struck, w.before = nil, nil, w.before[:0]
	switch s.Kind {
	case schedule.Call:
		if i := slices.IndexFunc(w.waiting, func(c *call) bool { return c.is(s) }); i >= 0 {
			w.last = w.waiting[i]
			w.before = append(w.before, w.waiting...)
		}
	case schedule.Restarts, schedule.NodeClock:
		w.struck = w.server(s.Target)
		for _, c := range w.waiting {
			if w.enabled(c.actor) && w.switching(c.actor) == free {
				w.before = append(w.before, c)
			}
		}
	}
	// Whoever goes on after time has passed, or a server has failed, preempts nobody.
	w.current = w.named(s.Actor)
}

func (w *world) named(name string) *actor {
	for _, a := range w.actors {
		if a.name == name {
			return a
		}
	}
	return nil
}

func (w *world) do(s schedule.Step) bool {
	a, n := w.named(s.Actor), w.server(s.Target)
	if n != nil {
		n.past = n.past.number(int64(s.Kind)).number(int64(w.elapsed()))
	}
	switch s.Kind {
	case schedule.Begins:
		return w.begin(a)
	case schedule.Call:
		return w.choose(&w.waiting, s, delivered)
	case schedule.ReplyLost:
		return w.choose(&w.waiting, s, lost)
	case schedule.ReplyLate:
		return w.choose(&w.waiting, s, delayed)
	case schedule.GivenUp:
		w.excused = true
		return w.choose(&w.waiting, s, givenUp)
	case schedule.Hears:
		return w.choose(&w.late, s, delivered)
	case schedule.ArrivesLate:
		return w.arriveLate(s)
	case schedule.Paused:
		return w.change(a, func() { a.paused = true })
	case schedule.Resumes:
		return a.paused && w.change(a, func() { a.paused = false })
	case schedule.Cancelled:
		a.cancelled = true
		a.cancel()
		return true
	case schedule.Dies:
		return w.die(a)
	case schedule.InstanceDies:
		return w.instanceDies(s.Instance)
	case schedule.ClientClock:
		w.instances[s.Instance-1].ahead += s.Duration
	case schedule.Passes:
		time.Sleep(s.Duration)
		w.timePassed()
	case schedule.NextTimer:
		return w.nextTimer()
	case schedule.LeaseEnd:
		return w.leaseEnd()
	case schedule.Restarts:
		n.restart()
	case schedule.Down:
		n.down, w.excused = true, true
		n.hangUp()
	case schedule.Up:
		n.down = false
	case schedule.NodeClock:
		n.jump(s.Duration)
	}
	return true
}

func (w *world) server(name string) *node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// offset keeps the timers of two actors from falling due in the same instant,
// where a select would pick at random.
const offset = 17 * time.Nanosecond

func (w *world) begin(a *actor) bool {
	if a.begun {
		return false
	}
	time.Sleep(time.Duration(a.index+1) * offset)
	ctx, cancel := context.WithCancel(context.Background())
	a.begun, a.cancel = true, cancel
	for i, b := range w.actors {
		if b.granted {
			a.early |= 1 << i
		}
	}
	w.running.Go(func() {
		answer := a.inst.service.Grab(ctx, grab.Request{Order: theOrder, Driver: a.driver})
		w.mu.Lock()
		defer w.mu.Unlock()
		a.answer, a.done = answer, true
		w.arrive()
	})
	return true
}

// change changes an actor under the mutex.
func (w *world) change(a *actor, f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !a.begun || a.done || a.dead {
		return false
	}
	f()
	return true
}

// die ends the actor's process, which nobody else is in, and starts it again.
func (w *world) die(a *actor) bool {
	return w.change(a, func() { a.dead = true }) && w.restart(a.inst)
}

func (w *world) instanceDies(number int) bool {
	ok := false
	for _, a := range w.actors {
		if a.inst.number == number {
			ok = w.change(a, func() { a.dead = true }) || ok
		}
	}
	return ok && w.restart(w.instances[number-1])
}

// restart replaces an instance whose process has ended. Its sessions have ended
// with their connections.
func (w *world) restart(inst *instance) bool {
	for _, tx := range inst.sessions {
		_ = tx.Close(context.Background())
	}
	w.open, w.starting = true, true // nobody else runs, and setting up is no step
	err := w.start(inst)
	w.open, w.starting = false, false
	return err == nil
}

// arriveLate carries out a call that its caller has given up.
func (w *world) arriveLate(s schedule.Step) bool {
	w.mu.Lock()
	i := slices.IndexFunc(w.strays, func(c *call) bool { return c.is(s) })
	if i < 0 {
		w.mu.Unlock()
		return false
	}
	c := w.strays[i]
	w.strays = slices.Delete(w.strays, i, i+1)
	w.excused = true
	w.mu.Unlock()
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
	w.applied(c, nil)
	return true
}

// nextTimer lets time pass until somebody comes to the gate or ends. While
// somebody could go on, no lease ends on the way: that would be an expiry.
func (w *world) nextTimer() bool {
	w.mu.Lock()
	most, busy := horizon*w.ttl, w.anyEnabled()
	if end := w.nextLeaseEnd(); busy && end > 0 {
		most = end - time.Nanosecond
	}
	freed := w.freeForWaiters()
	w.mu.Unlock()
	select {
	case <-w.arrived:
	default:
	}
	began := time.Now()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-w.arrived:
	case <-timer.C:
		if busy {
			return false
		}
	}
	w.timePassed()
	w.waitedFor(freed, time.Since(began))
	return true
}

// horizon is after how many leases it is no use to wait any longer.
const horizon = 8

// leaseEnd lets time pass until the next lease has just run out.
func (w *world) leaseEnd() bool {
	w.mu.Lock()
	left := w.nextLeaseEnd()
	w.mu.Unlock()
	if left <= 0 {
		return false
	}
	time.Sleep(left + time.Millisecond)
	w.timePassed()
	return true
}

func (w *world) timePassed() {
	for _, n := range w.nodes {
		n.aged()
	}
}

// finish looks at what is left when everything has ended.
func (w *world) finish() {
	for _, n := range w.nodes {
		if n.down {
			n.down = false
		}
	}
	w.mu.Lock()
	w.open = true
	w.mu.Unlock()
	w.judgeEnd()
}
