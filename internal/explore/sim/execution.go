package sim

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/search"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/tap"
)

// Limits say which steps an execution offers at its branch points.
type Limits struct {
	Bounds     search.Cost
	Faults     []catalog.Fault // the kinds that may strike
	Properties []string        // that are checked
	Reduce     bool            // leave out steps that only reorder independent calls
	// Visited says whether a state need not be explored again, at this cost and
	// after so many steps. nil: none.
	Visited func(search.Fingerprint, search.Cost, int) bool
}

// Execute runs one schedule: its steps, and from there on what is free, until
// every actor has ended.
func (c *Cluster) Execute(l *Limits, task search.Task) (t *search.Trace, err error) {
	err = c.execute(func(x *execution) error {
		t = x.run(l, task)
		return nil
	})
	return t, err
}

// Retrace executes a task again, and calls before with its trace up to each step that
// is about to be made.
func (c *Cluster) Retrace(l *Limits, task search.Task, before func(*search.Trace)) error {
	return c.execute(func(x *execution) error {
		x.before = before
		x.run(l, task)
		return nil
	})
}

// Begun is the steps of the schedule under way, with the one that has not ended. It
// may be called from another goroutine.
func (c *Cluster) Begun() []schedule.Step {
	x := c.present.Load()
	if x == nil || !x.mu.TryLock() {
		return nil
	}
	defer x.mu.Unlock()
	return slices.Clone(x.begun)
}

// execution is one schedule under way, in one bubble. Between two steps all of
// its goroutines wait, and what they have changed can be read without mu.
type execution struct {
	*Cluster
	db       *order.Mem
	dbState  search.Fingerprint // of db; 0: not known
	actors   []*actor
	probe    *actor          // the driver of the prober
	services []*grab.Service // of all instances that were ever started
	running  sync.WaitGroup  // the grabs
	ended    chan struct{}   // closed when the schedule is over

	mu       sync.Mutex // never held while waiting
	ungated  bool       // calls pass without a step, but for those of dead actors
	starting bool       // an instance is being started: while ungated, its calls pass too
	passed   int        // calls that have passed without a step
	waiting  []*call    // at the gate, to be sent
	late     []*call    // applied, and not answered
	inFlight []*call    // given up by their callers, and still on their way
	arrived  chan struct{}
	events   []event

	current      *actor        // who moved last
	last         *call         // that the last step let through, or brought late
	quiet        bool          // the last step did nothing that the properties look at
	silent       bool          // nor anything else, but to its server
	struck       *node         // that the last step did something to
	alternatives []*call       // that could have gone in place of the last step
	underway     []*call       // that could have arrived late in place of the last step
	heldUp       bool          // time has passed while a call could have gone through, or an actor was paused
	heldUpFor    time.Duration // such time
	faulted      bool          // a step was neither a call nor the passing of time
	stillLate    bool          // a short delay has passed while a reply was late
	mayLeaveLock bool          // a step after which a lock may rightly stay behind
	shown        catalog.Facts // by the steps
	cutAt        time.Duration // when an instance was cut off last
	grants       int           // acquires that have succeeded
	freeFor      time.Duration // actors have waited for a lock that was free
	strayRenewal string        // what a renewal did to another's lease
	forgot       bool          // a server has restarted empty
	steps        int
	probes       int // fresh drivers who have grabbed at the end
	broken       []search.Violation

	begun   []schedule.Step                  // the steps, with the one under way
	before  func(*search.Trace)              // before each step; nil: none of its business
	observe func(s schedule.Step, made bool) // after each step; nil: it is not a replay
	did     []string                         // what the last calls asked and were answered, if it is one
}

// theOrder is the one that all actors grab.
const theOrder = 1

// actor is one driver.
type actor struct {
	name     string
	index    int
	driver   int64
	inst     *instance
	cancel   context.CancelFunc
	counts   map[callName]int
	observed search.Fingerprint // all that its code can know
	before   uint8              // a bit for each actor that had the lock before this one began

	begun, done, dead, hung, cancelled bool

	// What is known of its lease.
	granted     bool          // its acquire has succeeded
	releasing   bool          // its release has begun
	released    bool          // its release has succeeded
	knowsLoss   bool          // its lease's Lost has closed
	inside      bool          // its critical section: it has read an open order, and not yet released
	inTime      bool          // at the end of its release the lease still ran
	gone        []*node       // where its renewals have found its lease gone
	behind      uint8         // a bit for each actor that waited in order when this one began
	releaseCut  bool          // a call of its release has come to no reply
	begin       time.Duration // when it began
	arrivedLate bool          // a call of it has, that it had given up
	asked       time.Duration // when it last asked a server for the lock
	rest        time.Duration // that it would have to make then, were it to ask every askEvery
	fence       uint64
	token       string
	value       string // what a server stores for its lease
	leases      []serverLease

	// What names a failure, and decides nothing else.
	grant     int                      // its acquire was the nth to succeed; 0: it has not
	got       map[*actor]catalog.Facts // how it got the lock while another was inside
	freed     bool                     // a release of another has freed its lock
	forgotten int                      // so often a server has forgotten its lease
	lostTo    catalog.Facts            // how else a server has lost it
}

// callName is what the calls of an actor are counted by.
type callName struct {
	phase  tap.Phase
	target string
}

// event is what an instance records.
type event struct {
	history.Event
	actor *actor
}

// newExecution is called inside of the bubble.
func newExecution(c *Cluster) (*execution, error) {
	x := &execution{
		Cluster: c, db: &order.Mem{}, ended: make(chan struct{}), arrived: make(chan struct{}, 1),
		ungated: true, // setting up is no step
	}
	defer func() { x.ungated = false }()
	if _, err := x.db.CreateStock(context.Background(), 1, x.units()); err != nil {
		return x, err
	}
	for _, n := range c.nodes {
		n.reset()
		c.beginCounters(n)
	}
	for i, a := range c.Actors {
		x.actors = append(x.actors, newActor(a.Name, i, driverOf(c.Actors, i), c.instances[a.Instance-1]))
	}
	x.probe = newActor("probe", len(x.actors), int64(len(x.actors))+1, c.prober)
	for _, inst := range c.instances {
		inst.execution, inst.ahead, inst.askedTime, inst.tokens, inst.cut = x, 0, false, 0, map[string]bool{}
		if inst == c.prober {
			continue // it starts when all others have ended
		}
		if err := x.start(inst); err != nil {
			return x, err
		}
	}
	return x, nil
}

// paused reports whether the actor's process is stopped. All actors of the process stop
// together, those that have not begun among them.
func (a *actor) paused() bool { return a.inst.stopped.Load() }

func newActor(name string, index int, driver int64, inst *instance) *actor {
	return &actor{
		name: name, index: index, driver: driver, inst: inst,
		observed: search.EmptyFingerprint, counts: map[callName]int{},
	}
}

// driverOf numbers the drivers from 1.
func driverOf(actors []schedule.Actor, i int) int64 {
	for j, a := range actors[:i] {
		if a.Name == actors[i].As {
			return driverOf(actors, j)
		}
	}
	return int64(i) + 1
}

// start starts an instance, or starts it again.
func (x *execution) start(inst *instance) error {
	inst.sessions, inst.pausedAs = nil, nil
	inst.stopped.Store(false)
	inst.processes.Add(1)
	env := x.env(inst)
	service, err := grab.New(grab.Config{
		Instance: strconv.Itoa(inst.number),
		Orders:   env.Orders,
		Lock:     env,
		Strategy: x.Strategy.Name,
		Find:     func(string) (lock.Strategy, error) { return x.Strategy, nil },
		Work:     x.Work,
		Guard:    x.Guard,
		OnLost:   x.OnLost,
		History:  recorder{inst},
	})
	if err == nil {
		inst.service = service
		x.services = append(x.services, service)
	}
	return err
}

var quiet = slog.New(slog.DiscardHandler)

// jitter differs between instances, so that no two of their timers fall due in
// the same instant.
func jitter(number int) float64 { return 0.3 + 0.07*float64(number) }

func (x *execution) newToken(inst *instance) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	inst.tokens++
	return tokenPrefix + strconv.Itoa(inst.number) + "-" + strconv.Itoa(inst.tokens)
}

// tokenPrefix tells a token from whatever else a command has.
const tokenPrefix = "token-"

// recorder is an instance's history.
type recorder struct{ inst *instance }

func (r recorder) Record(e history.Event) {
	if e.Op == history.Renew || e.Op == history.Acquire && e.Kind == history.Invoke {
		return // no property looks at these, and a step with events counts as one that may matter
	}
	x := r.inst.execution
	x.mu.Lock()
	defer x.mu.Unlock()
	e.T = x.elapsed()
	if a := x.actorOfLocked(r.inst, e.Driver); a != x.probe {
		x.events = append(x.events, event{e, a})
	}
}

// elapsed is the time since the schedule began.
func (x *execution) elapsed() time.Duration { return time.Since(epoch) }

// run makes the steps of a task. A replay leaves out those that cannot be made.
func (x *execution) run(l *Limits, task search.Task) *search.Trace {
	t := &search.Trace{Impossible: -1}
	for i, given := range task.Steps {
		if !x.add(t, given) && x.observe == nil {
			return t
		}
		if i == len(task.Steps)-1 {
			x.reorder(l, t)
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
		x.reorder(l, t)
	}
	t.Broken = x.broken
	return t
}

// add makes a step and adds it to the trace, or says that it could not be made.
func (x *execution) add(t *search.Trace, s schedule.Step) bool {
	if x.before != nil {
		x.before(&search.Trace{Steps: append(slices.Clip(t.Steps), s), Points: t.Points, Impossible: -1})
	}
	x.prepare(s)
	leased := x.leasedActors()
	made := x.do(s)
	if made {
		synctest.Wait()
		made = x.messagesEnd(s)
	}
	if made {
		x.numberCalls()
		x.steps++
		x.quiet = x.leasedActors() == leased && !slices.ContainsFunc(x.events, event.byLeases)
		x.silent = x.quiet && len(x.events) == 0 && x.onlyLastIsGone()
		x.judge()
		t.Steps = append(t.Steps, s)
	} else {
		t.Impossible = len(t.Steps)
	}
	if x.observe != nil {
		x.observe(s, made)
	}
	return made
}

// reorder adds the orders that the last step has shown to be needed.
func (x *execution) reorder(l *Limits, t *search.Trace) {
	if l.Reduce {
		for _, c := range x.notCommuting() {
			t.Reorders = append(t.Reorders, search.Reorder{At: len(t.Steps) - 1, First: c.step(schedule.Call)})
		}
	}
}

// onlyLastIsGone says whether the calls that wait are those that waited before the last
// step, without the one that it let through.
func (x *execution) onlyLastIsGone() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting) != len(x.alternatives)-1 || len(x.inFlight) != len(x.underway) {
		return false
	}
	return !slices.ContainsFunc(x.waiting, func(c *call) bool { return !slices.Contains(x.alternatives, c) })
}

// finish heals the servers, and judges what is left when every actor has ended.
func (x *execution) finish() {
	for _, n := range x.nodes {
		n.down.Store(false)
	}
	x.timePassed()
	x.mu.Lock()
	x.ungated = true
	x.mu.Unlock()
	for _, n := range x.nodes {
		if s, ok := n.lockServer.(settler); ok {
			s.settle()
		}
	}
	if err := x.start(x.prober); err != nil {
		panic(err) // all servers can be reached
	}
	x.judgeEnd()
}

// stop ends the schedule. Calls that still wait fail.
func (x *execution) stop() {
	x.mu.Lock()
	x.ungated = false
	x.mu.Unlock()
	close(x.ended)
	for _, a := range x.actors {
		if a.cancel != nil {
			a.cancel()
		}
	}
	x.running.Wait()
	for _, service := range x.services {
		_ = service.Close()
	}
	for _, n := range x.nodes {
		n.disconnect()
	}
	for _, inst := range x.instances {
		inst.execution = nil
	}
}

// find returns the first element that fits, or nil.
func find[T any](list []*T, fits func(*T) bool) *T {
	if i := slices.IndexFunc(list, fits); i >= 0 {
		return list[i]
	}
	return nil
}

func (x *execution) named(name string) *actor {
	return find(x.actors, func(a *actor) bool { return a.name == name })
}

func (x *execution) node(name string) *node {
	return find(x.nodes, func(n *node) bool { return n.name == name })
}
