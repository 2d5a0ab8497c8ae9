package sim

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
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

// Limits restricts the steps that an execution may choose.
type Limits struct {
	Bounds search.Cost
	Faults []catalog.Fault // the kinds of faults that the execution may inject
	Reduce bool            // skip steps that only reorder independent calls
	// Visited reports whether the search already knows a state. If it does, the execution ends. If
	// Visited is nil, every state counts as new.
	Visited func(search.Fingerprint, search.Cost, int) bool
	// Before, if not nil, is called before each step with the trace so far, including that step.
	Before func(*search.Trace)
}

// Execute runs the given steps, and then chooses further steps until every actor has ended.
func (c *Cluster) Execute(l *Limits, task search.Task) (t *search.Trace, err error) {
	err = c.execute(func(x *execution) error {
		t = x.run(l, task)
		return nil
	})
	return t, err
}

// execution runs one schedule. It checks the properties after each step. At that time, all
// goroutines are blocked, so their state is safe to read.
type execution struct {
	cluster *Cluster
	world   *world
	gate    *gate
	leases  *leaseBook
	causes  *causes
	oracle  *oracle
	reducer *reducer

	current   *actor        // the actor of the last move
	stillLate bool          // whether a reply was late at the start of the last short delay
	cutAt     time.Duration // when an instance was last cut off from a network

	// progressAt is the time of the last step that made progress. Waits and renewals do not count,
	// because a holder whose work hangs can renew its lease forever.
	progressAt time.Duration

	before  func(*search.Trace)              // Limits.Before
	observe func(s schedule.Step, made bool) // called after each step of a replay; otherwise nil
}

// theOrder is the ID of the simulation's only order, which all actors try to grab.
const theOrder = 1

// An actor is one attempt by one driver to grab the order.
type actor struct {
	name     string
	index    int
	driver   int64
	inst     *instance
	cancel   context.CancelFunc
	counts   map[[2]string]int  // the number of its calls by phase and target
	observed search.Fingerprint // a hash of the database and SUBSCRIBE replies that it has received
	before   actorSet           // the actors that had acquired the lock before this actor began
	met      actorSet           // the actors that were active, or whose calls had not ended, when this actor began

	begun, done, dead, hung, cancelled bool

	impeded bool // whether a fault has affected calls of its instance since the actor began

	// These fields record the progress of the actor's grab and the state of its lease.
	granted     bool          // whether its acquire has succeeded
	releasing   bool          // whether its release has begun
	released    bool          // whether its release has succeeded
	knowsLoss   bool          // whether the Lost channel of its lease is closed
	believed    time.Duration // when its lease ends by its own clock; 0 if unknown to it
	inside      bool          // whether it has read that the order is open, but has not begun its release
	inTime      bool          // whether its lease was still valid when its release ended
	missingOn   []*node       // the servers that had lost its lease at the last renewal
	held        string        // the value that a majority of servers stored when its acquire succeeded; "" if none
	askedOn     []*node       // the servers that its release has asked
	goneOn      []*node       // the servers in askedOn that had lost its lease before the release
	behind      actorSet      // the actors that must get the lock before this actor
	releaseCut  bool          // whether one of its release calls got no reply
	lingered    time.Duration // how long it has been running since its driver left
	straggled   time.Duration // how long it has waited for only a minority of the servers
	begin       time.Duration // when its grab began
	expiries    int           // the result of timesExpired for its instance when its grab began
	arrivedLate bool          // whether a server has applied a call after this actor had stopped waiting for it
	asked       time.Duration // when it last asked a server for the lock
	rest        time.Duration // the level of the leaky bucket in noteAsked
	fence       uint64
	token       string
	value       string   // the value that servers store for its lease
	earlier     []string // the values of its earlier attempts
	leases      []serverLease

	// These fields help to explain a violation.
	grant          int                      // 1 if it got the lock first, 2 if second, and so on; 0 if it has not got the lock
	got            map[*actor]catalog.Facts // how this actor got the lock before each other holder released it
	freed          catalog.Facts            // how another actor's release freed this actor's lock; 0 if none did
	timesForgotten int                      // how many times a server has lost all data including its lease
	lostTo         catalog.Facts            // why a server has lost only its lease, for example an eviction
}

// An actorSet has one bit for each actor, by index.
type actorSet uint8

func (s actorSet) has(a *actor) bool { return s&(1<<a.index) != 0 }

// actorsThat returns the set of the actors for which match returns true.
func (w *world) actorsThat(match func(*actor) bool) (set actorSet) {
	for _, a := range w.actors {
		if match(a) {
			set |= 1 << a.index
		}
	}
	return set
}

// An event is one entry in the history of an instance, together with the actor that caused it.
type event struct {
	history.Event
	actor *actor
}

// newExecution prepares an execution and starts the instances. It must run in a testing/synctest
// bubble.
func newExecution(c *Cluster) (*execution, error) {
	w := &world{cluster: c, db: &order.Mem{}, ended: make(chan struct{})}
	w.gate = &gate{world: w, arrived: make(chan struct{}, 1), ungated: true} // during the setup, calls need no steps
	s := &causes{cluster: c, world: w}
	w.leases = &leaseBook{cluster: c, world: w, gate: w.gate, causes: s}
	w.gate.leases, s.leases = w.leases, w.leases
	x := &execution{
		cluster: c, world: w, gate: w.gate, leases: w.leases, causes: s,
		oracle:  newOracle(s),
		reducer: &reducer{cluster: c, gate: w.gate},
	}
	defer func() { w.gate.ungated = false }()
	return x, w.begin()
}

// begin opens the order and starts all instances except the prober, which starts at the end.
func (w *world) begin() error {
	c := w.cluster
	if _, err := w.db.Create(context.Background(), 1, c.units()); err != nil {
		return err
	}
	for _, n := range c.nodes {
		n.reset()
	}
	for i, a := range c.Actors {
		next := newActor(a.Name, i, int64(i)+1, c.instances[a.Instance-1])
		if first := w.named(a.As); first != nil { // a is a second attempt by the driver of first
			next.driver = first.driver
		}
		w.actors = append(w.actors, next)
	}
	w.probe = newActor("probe", len(w.actors), int64(len(w.actors))+1, c.prober)
	for _, inst := range c.instances {
		inst.world, inst.ahead, inst.tokens, inst.rivals, inst.cut, inst.awake = w, 0, 0, 0, map[string]bool{}, nil
		inst.askedTime.Store(false)
		if inst == c.prober {
			continue // the prober starts only after all other instances have stopped
		}
		if err := w.start(inst); err != nil {
			return err
		}
	}
	return nil
}

func (a *actor) paused() bool { return a.inst.stopped.Load() }

// sent reports whether the actor made the call.
func (a *actor) sent(c *call) bool { return c.actor == a }

// othersBegan reports whether any other actor has begun.
func (w *world) othersBegan(a *actor) bool {
	return slices.ContainsFunc(w.actors, func(b *actor) bool { return b != a && b.begun })
}

// lags reports whether the actor may not have noticed yet what happened during a pause.
func (a *actor) lags() bool { return a.inst.awake != nil }

func newActor(name string, index int, driver int64, inst *instance) *actor {
	return &actor{
		name: name, index: index, driver: driver, inst: inst,
		observed: search.EmptyFingerprint, counts: map[[2]string]int{},
	}
}

// start launches an instance's process, or a new one if the old process has died.
func (w *world) start(inst *instance) error {
	inst.sessions, inst.pausedAs, inst.rivals = nil, nil, 0
	inst.stopped.Store(false)
	inst.wake()
	inst.awake = nil
	inst.processes.Add(1)
	env := w.env(inst)
	service, err := grab.New(grab.Config{
		Instance: strconv.Itoa(inst.number),
		Orders:   env.Orders,
		Lock:     env,
		Strategy: w.cluster.Strategy.Name,
		Find:     func(string) (lock.Strategy, error) { return w.cluster.Strategy, nil },
		Work:     w.cluster.Work,
		Guard:    w.cluster.Guard,
		OnLost:   w.cluster.OnLost,
		History:  recorder{inst},
	})
	if err == nil {
		inst.service = service
		w.services = append(w.services, service)
	}
	return err
}

var quiet = slog.New(slog.DiscardHandler)

// jitter returns a different number for each instance, so that the timers of two instances do not
// fire at the same time.
func jitter(number int) float64 { return 0.3 + 0.07*float64(number) }

func (w *world) newToken(inst *instance) string {
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	inst.tokens++
	return tokenPrefix + strconv.Itoa(inst.number) + "-" + strconv.Itoa(inst.tokens)
}

// tokenPrefix begins every token, so that the simulation recognizes tokens among a command's
// arguments.
const tokenPrefix = "token-"

type recorder struct{ inst *instance }

// Record stores an event of a grab, so that the oracle can check it after the step. It leaves out
// the probe's events.
func (r recorder) Record(e history.Event) {
	w := r.inst.world
	if e.Op == history.Lost && r.inst.stopped.Load() {
		select { // after a pause, timers fire late, so the holder learns of the loss late
		case <-r.inst.awake:
		case <-w.ended:
		}
	}
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	a := w.gate.actorOf(r.inst, e.Driver)
	w.leases.noteBelief(a, e.Lease)
	switch {
	case a == w.probe:
	case e.Op == history.Renew, e.Op == history.Acquire && e.Kind == history.Invoke: // no property needs these events, and with them, the search could skip fewer steps
	default:
		e.T = w.elapsed()
		w.events = append(w.events, event{e, a})
	}
}

// elapsed returns the virtual time since the schedule began.
func (w *world) elapsed() time.Duration { return time.Since(epoch) }

// run executes a task's steps, and then chooses further steps until the schedule ends. An
// impossible step ends the execution, except in a replay, which skips the step.
func (x *execution) run(l *Limits, task search.Task) *search.Trace {
	x.reducer.on, x.before = l.Reduce, l.Before
	t := &search.Trace{Impossible: -1}
	for _, given := range task.Steps {
		if !x.add(t, given) && x.observe == nil {
			return t
		}
	}
	for {
		transitions, commuted := x.transitions(l, task.Cost)
		here := search.BranchPoint{State: x.state(), Transitions: transitions}
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
	t.Broken = x.oracle.findings.broken
	return t
}

// add executes a step and appends it to the trace. It returns false if the step is impossible in
// the current state.
func (x *execution) add(t *search.Trace, s schedule.Step) bool {
	if x.before != nil {
		x.before(&search.Trace{Steps: append(slices.Clip(t.Steps), s), Points: t.Points, Impossible: -1})
	}
	x.prepare(s)
	x.causes.lasting = x.causes.faultLasts()
	leased := x.leases.leasedActors()
	x.oracle.findings.steps++
	made := x.do(s)
	if made {
		synctest.Wait()
	}
	if made && s.Kind.Fault() == catalog.MessageLost {
		made = x.world.node(s.Target).lockServer.(*redisServer).messages.end()
	}
	if made {
		woken := x.wake(s)
		fresh := x.gate.numberCalls()
		x.leases.noteRenewals(fresh)
		if !slices.Contains(timeKinds, s.Kind) && s.Phase != string(tap.Renew) {
			x.progressAt = x.world.elapsed()
		}
		x.reducer.quiet = x.leases.leasedActors() == leased && !slices.ContainsFunc(x.world.events, event.byLeases)
		x.causes.noteDisturbance(s)
		x.oracle.judge()
		for _, inst := range woken {
			inst.awake = nil
		}
		x.gate.forgetReleases(fresh)
		t.Steps = append(t.Steps, s)
	} else {
		x.oracle.findings.steps--
		t.Impossible = len(t.Steps)
	}
	if x.observe != nil {
		x.observe(s, made)
	}
	return made
}

// wake returns the instances that have resumed before this step. It lets them notice what happened
// during their pause.
func (x *execution) wake(s schedule.Step) (woken []*instance) {
	woken = catalog.Filter(x.cluster.instances, func(inst *instance) bool {
		return inst.awake != nil && !inst.stopped.Load() && s.Kind != schedule.Resumes
	})
	for _, inst := range woken {
		inst.wake()
	}
	if woken != nil {
		synctest.Wait()
	}
	return woken
}

// wake lets a resumed process notice all events that happened during its pause.
func (inst *instance) wake() {
	if inst.awake != nil {
		close(inst.awake)
	}
}

// finish restarts all servers that are down, and then checks what the actors have left behind.
func (x *execution) finish() {
	for _, n := range x.cluster.nodes {
		n.down.Store(false)
	}
	x.world.timePassed()
	synctest.Wait() // calls that this starts must reach the gate before it opens
	x.gate.mu.Lock()
	x.gate.ungated = true
	x.gate.mu.Unlock()
	for _, s := range serversOf[*zkServer](x.cluster) {
		s.settle()
	}
	if err := x.world.start(x.cluster.prober); err != nil {
		panic(err) // cannot happen, because all servers are up
	}
	end := endOracle{cluster: x.cluster, world: x.world, causes: x.causes, findings: x.oracle.findings}
	end.judge()
}

// stop ends the schedule, so that all waiting calls fail and all goroutines end.
func (w *world) stop() {
	w.gate.mu.Lock()
	w.gate.ungated = false
	w.gate.mu.Unlock()
	close(w.ended)
	for _, a := range w.actors {
		if a.cancel != nil {
			a.cancel()
		}
	}
	w.running.Wait()
	for _, service := range w.services {
		_ = service.Close()
	}
	for _, n := range w.cluster.nodes {
		n.disconnect()
	}
	for _, inst := range w.cluster.instances {
		inst.world = nil
	}
}

func (w *world) named(name string) *actor {
	return catalog.First(w.actors, func(a *actor) bool { return a.name == name })
}

func (w *world) node(name string) *node {
	return catalog.First(w.cluster.nodes, func(n *node) bool { return n.name == name })
}
