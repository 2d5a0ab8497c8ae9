package sim

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/search"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/tap"
)

// A scene is a world without faults. It has two actors on two instances, and one server that stores
// nothing.
type scene struct {
	o    *oracle
	c    *Cluster
	a, b *actor
	n    *node
}

type emptyServer struct{}

func (emptyServer) reset()                                        {}
func (emptyServer) contents() string                              { return "" }
func (emptyServer) state(f search.Fingerprint) search.Fingerprint { return f }
func (emptyServer) leaseOf(string) (time.Duration, bool)          { return 0, false }
func (emptyServer) timePassed()                                   {}
func (emptyServer) disconnect()                                   {}

// A fullServer stores only the given text.
type fullServer struct {
	emptyServer
	text string
}

func (s fullServer) contents() string { return s.text }

// stores makes the scene's server store the given text, but no lease.
func stores(text string) change {
	return func(s *scene) { s.n.lockServer = fullServer{text: text} }
}

// startsAt makes every try for the lock fail until the given time.
func (s *scene) startsAt(free time.Duration) {
	s.c.Strategy.Name, s.c.Strategy.Needs, s.c.Guard, s.o.gate.ungated = "late", 0, order.Naive, true
	s.o.world.probe = newActor("probe", 2, 100, s.b.inst)
	s.c.Strategy.New = func(lock.Env) (lock.Locker, error) { return lateLock{free, s.o.world}, nil }
	for _, inst := range s.c.instances {
		inst.world = s.o.world
		if err := s.o.world.start(inst); err != nil {
			panic(err)
		}
	}
}

// ends makes the lock free for the new drivers at the end of a schedule.
func (s *scene) ends() {
	s.startsAt(0)
	s.c.prober = s.b.inst
}

// A lateLock is taken until a certain time, and always free afterwards.
type lateLock struct {
	free  time.Duration
	world *world
}

func (l lateLock) Acquire(context.Context, string) (lock.Lease, error) {
	if l.world.elapsed() < l.free {
		return nil, lock.ErrBusy
	}
	return lateLease{}, nil
}

func (lateLock) Close() error { return nil }

// refusesUnits makes the lock refuse every driver, as if the driver had reached its limit of units.
func (s *scene) refusesUnits() {
	s.startsAt(0)
	s.c.Strategy.New = func(lock.Env) (lock.Locker, error) { return fullLock{}, nil }
	s.c.Strategy.Excludes, s.c.prober = catalog.NoExclusion, s.b.inst
	if err := s.o.world.start(s.b.inst); err != nil {
		panic(err)
	}
}

// A fullLock refuses every driver with order.ErrLimit.
type fullLock struct{}

func (fullLock) Acquire(context.Context, string) (lock.Lease, error) { return nil, order.ErrLimit }
func (fullLock) Close() error                                        { return nil }

// A listenedServer notifies clients of changes to the lock with the given key.
type listenedServer struct {
	emptyServer
	key string
}

func (l listenedServer) listeners(key string) int {
	if key == l.key {
		return 1
	}
	return 0
}

type lateLease struct{}

func (lateLease) Token() string                 { return "token-1-1" }
func (lateLease) Fence() uint64                 { return 0 }
func (lateLease) Lost() <-chan struct{}         { return nil }
func (lateLease) Release(context.Context) error { return nil }

func newScene(t *testing.T) *scene {
	c := &Cluster{notifiesLoss: true, showsToken: true, renews: true}
	c.TTL, c.Wait, c.OnLost = 10*time.Second, time.Second, grab.Abort
	c.Strategy.Excludes, c.Strategy.Needs = catalog.Global, lock.Redis
	n := &node{lockServer: emptyServer{}, name: "redis"}
	c.nodes = []*node{n}
	w := &world{cluster: c, db: &order.Mem{}}
	if _, err := w.db.Create(t.Context(), 1, 1); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"A", "B"} {
		inst := &instance{number: i + 1}
		c.instances = append(c.instances, inst)
		w.actors = append(w.actors, &actor{name: name, index: i, driver: int64(i + 1), inst: inst})
	}
	w.gate = &gate{world: w}
	s := &causes{cluster: c, world: w}
	w.leases = &leaseBook{cluster: c, world: w, gate: w.gate, causes: s}
	s.leases, w.gate.leases = w.leases, w.leases
	o := newOracle(s)
	o.findings.steps = 7
	return &scene{o, c, w.actors[0], w.actors[1], n}
}

func (s *scene) end() *endOracle {
	return &endOracle{cluster: s.c, world: s.o.world, causes: s.o.causes, findings: s.o.findings}
}

// holds gives an actor the lock, with a lease that lasts for the duration left.
func (s *scene) holds(a *actor, left time.Duration) {
	a.begun, a.granted, a.value = true, true, a.name
	a.leases = []serverLease{{s.n, s.n.now().Add(left)}}
	s.o.causes.grants++
	a.grant = s.o.causes.grants
}

// wins writes a row for the actor to the ledger.
func (s *scene) wins(a *actor, fence uint64) {
	s.o.world.db.Claim(context.Background(), order.Claim{Order: theOrder, Driver: a.driver, Instance: string(rune('0' + a.inst.number)), Token: a.name, Fence: fence}, order.Naive)
}

// counts replaces the scene's server with a Redis server that has the given counters.
func (s *scene) counts(values ...string) {
	r, err := newRedisServer("redis")
	if err != nil {
		panic(err)
	}
	for i, value := range values {
		c := counter{key: strconv.Itoa(i)}
		if err := r.redis.Set(c.key, value); err != nil {
			panic(err)
		}
		r.counters = append(r.counters, c)
	}
	s.c.nodes, s.n = []*node{r.node}, r.node
}

// expireSession replaces the scene's server with a ZooKeeper server that has told A's instance that its session
// has expired.
func expireSession(s *scene) {
	z := newZKServer("zookeeper")
	z.reset()
	z.expired[s.a.inst] = 1
	s.c.nodes = []*node{z.node}
}

func (s *scene) event(op string, kind history.Kind, code history.Code) {
	s.o.judgeEvent(s.a, history.Event{Op: op, Kind: kind, Code: code, T: s.o.world.elapsed()})
}

// disturbedAt records an outage that had an effect until the given time.
func (s *scene) disturbedAt(then time.Duration) {
	s.o.causes.shown, s.o.causes.disturbedAt = catalog.Unreachable, then
}

type change = func(*scene)

func shows(facts catalog.Facts) change { return func(s *scene) { s.o.causes.shown |= facts } }

// These changes excuse violations of several rules.
var (
	losesData = func(s *scene) { s.o.causes.dataLost = true }
	holdsUp   = func(s *scene) { s.o.causes.heldUp = true }
	isFault   = func(s *scene) { s.o.causes.faulted = true }
	hangsUp   = func(s *scene) { s.a.cancelled = true }
	isImpeded = func(s *scene) { s.a.impeded = true }
	isKnown   = func(s *scene) { s.a.knowsLoss = true }
	isDead    = func(s *scene) { s.a.dead = true }
	releases  = func(s *scene) { s.a.releasing = true }
	lags      = func(s *scene) { s.a.inst.awake = make(chan struct{}) }
	isFreed   = func(s *scene) { s.a.freed = catalog.FreedAnother }
	locksNone = func(s *scene) { s.c.Strategy.Excludes = catalog.NoExclusion }
)

// duration matches a duration in an explanation.
var duration = regexp.MustCompile(`[0-9][0-9.]*(µ|m|n)?s`)

// TestRules checks each rule of the oracle. The rule must report the simplest violation, but not if any
// single change excuses it.
func TestRules(t *testing.T) {
	for _, tt := range []struct {
		property, why string // the violated property, and a part of the explanation
		setUp, judge  change
		excuses       map[string]change // the changes, each of which alone excuses the violation
	}{
		{catalog.WaitsAsTold, "A was told that the lock was taken, but no other driver wanted it",
			func(s *scene) { time.Sleep(s.c.Wait) },
			func(s *scene) { s.event(history.Acquire, history.Fail, history.Busy) },
			map[string]change{
				"met": func(s *scene) { s.a.met = 2 }, "joined": func(s *scene) { s.b.begun, s.b.begin = true, 1 }, "fault": isFault, "impeded": isImpeded, "held up": holdsUp,
			}},
		{catalog.WaitsAsTold, "A was told that the lock was taken, but no other driver wanted it",
			func(s *scene) { s.a.cancelled, s.o.causes.faulted = true, true; time.Sleep(s.c.Wait) },
			func(s *scene) { s.event(history.Acquire, history.Fail, history.Busy) },
			map[string]change{"began": func(s *scene) { s.b.begun = true }, "did not hang up": func(s *scene) { s.a.cancelled = false }, "impeded": isImpeded}},
		{catalog.WaitsAsTold, "A gave up after 500ms, but should have waited for 1s",
			func(s *scene) { s.a.met = 2; time.Sleep(500 * time.Millisecond) },
			func(s *scene) { s.event(history.Acquire, history.Fail, history.Busy) },
			map[string]change{
				"tries once": func(s *scene) { s.c.Strategy.Promises.TriesOnce = true }, "gives up early": func(s *scene) { s.c.Strategy.Promises.GivesUpAfter = 500 * time.Millisecond },
				"waits": func(s *scene) { time.Sleep(500 * time.Millisecond) }, "took later": func(s *scene) { s.c.Wait = 500 * time.Millisecond },
			}},
		{catalog.WaitsAsTold, "A gave up after 500ms, but should have waited for 1s",
			func(s *scene) {
				s.a.met = 2
				s.c.Strategy.Promises.GivesUpAfter = 501 * time.Millisecond
				time.Sleep(500 * time.Millisecond)
			},
			func(s *scene) { s.event(history.Acquire, history.Fail, history.Busy) },
			nil},
		{catalog.WaitsAsTold, "A waited for 1.002s, but should have given up after 1s",
			func(s *scene) { time.Sleep(1002 * time.Millisecond) },
			func(s *scene) { s.o.waits.judgePatience(s.a) },
			map[string]change{
				"stopped": func(s *scene) { s.o.causes.stopped = true }, "disturbed": shows(catalog.Unreachable), "held up": func(s *scene) { s.o.causes.heldUpFor = time.Millisecond },
				"wait": func(s *scene) { s.c.Wait += time.Millisecond }, "began": func(s *scene) { s.a.begin = time.Millisecond },
			}},
		{catalog.WaitsAsTold, "A's acquire failed, although nothing prevented it",
			func(s *scene) { s.c.Strategy.Promises.Patience = 0.01 },
			func(s *scene) { s.event(history.Acquire, history.Fail, "") },
			map[string]change{"hung up": hangsUp, "impeded": isImpeded, "held up": holdsUp, "held up for long": func(s *scene) { s.o.causes.heldUp, s.o.causes.heldUpFor = true, 99*time.Millisecond }}},
		{catalog.WaitsAsTold, "A's acquire failed, although nothing prevented it",
			func(s *scene) {
				s.c.Strategy.Promises.Patience, s.o.causes.heldUp, s.o.causes.heldUpFor = 0.01, true, 98*time.Millisecond
			},
			func(s *scene) { s.event(history.Acquire, history.Fail, "") },
			nil},
		{catalog.WaitsAsTold, "A gave up in an outage, although the server still had its place in the queue",
			func(s *scene) {
				s.c.Strategy.Needs, s.a.impeded, s.a.value, s.o.causes.shown = lock.ZooKeeper, true, "A", catalog.Unreachable
				time.Sleep(s.c.Wait - 1)
			},
			func(s *scene) { s.event(history.Acquire, history.Fail, "") },
			map[string]change{
				"data lost": losesData, "held up": holdsUp, "delayed": shows(catalog.Delayed), "no outage": func(s *scene) { s.o.causes.shown = 0 }, "hung up": hangsUp,
				"no place": func(s *scene) { s.a.value = "" }, "no queue": func(s *scene) { s.c.Strategy.Needs = lock.Redis }, "waited": func(s *scene) { time.Sleep(time.Nanosecond) },
				"short lease": func(s *scene) { s.c.TTL = s.c.Wait - 1 },
			}},
		{catalog.LossHeeded, "A began to write after it had been told that its lease was lost",
			func(s *scene) { s.a.knowsLoss = true },
			func(s *scene) { s.event(history.Claim, history.Invoke, "") },
			map[string]change{"not told": func(s *scene) { s.a.knowsLoss = false }, "ignores": func(s *scene) { s.c.OnLost = grab.Ignore }}},
		{catalog.LossHeeded, "A began to write 1ms after its lease had ended by its own clock",
			func(s *scene) { s.a.believed = time.Second; time.Sleep(1001 * time.Millisecond) },
			func(s *scene) { s.event(history.Claim, history.Invoke, "") },
			map[string]change{
				"ignores": func(s *scene) { s.c.OnLost = grab.Ignore }, "unknown": func(s *scene) { s.a.believed = 0 }, "ends now": func(s *scene) { s.a.believed += time.Millisecond },
				"never told": func(s *scene) { s.c.notifiesLoss = false },
			}},
		{catalog.LossNotified, "A was told that its lease was lost, but it was valid for another 9s",
			func(s *scene) { s.holds(s.a, 9*time.Second); s.o.causes.shown = catalog.ReplyWasLost },
			func(s *scene) { s.event(history.Lost, history.Info, "") },
			map[string]change{
				"held up": holdsUp, "data lost": losesData, "delayed": shows(catalog.Delayed), "freed": isFreed, "no lock": locksNone,
				"ends soon": func(s *scene) { s.a.leases[0].until = s.n.now().Add(s.c.TTL / 4) }, "taken away": func(s *scene) { s.a.lostTo = catalog.Forgotten },
			}},
		{catalog.RenewsOwn, "A's lease was not renewed, although no fault had prevented that for half of the TTL",
			func(s *scene) {
				s.c.Strategy.Promises.RenewalRetried = 0.5
				s.holds(s.a, s.c.TTL)
				s.disturbedAt(s.c.TTL/2 - 2)
				time.Sleep(s.c.TTL - 1)
			},
			func(s *scene) { s.event(history.Lost, history.Info, "") },
			map[string]change{
				"later": func(s *scene) { s.o.causes.disturbedAt++ }, "no promise": func(s *scene) { s.c.Strategy.Promises.RenewalRetried = 0 },
				"stopped": func(s *scene) { s.o.causes.stopped = true }, "freed": isFreed, "clock": func(s *scene) { s.n.ahead = 1; s.holds(s.a, 1) }, "data lost": losesData,
			}},
		{catalog.AnswersAgree, "A was told that it had released its lock, but the lease was already gone",
			func(s *scene) { s.a.goneOn = []*node{s.n} },
			func(s *scene) { s.event(history.Release, history.OK, "") },
			map[string]change{
				"cut": func(s *scene) { s.a.releaseCut = true }, "late": func(s *scene) { s.a.arrivedLate = true }, "not gone": func(s *scene) { s.a.goneOn = nil },
			}},
		{catalog.LossNotified, "A was told at its release that its lease was lost, but the lease was valid",
			func(s *scene) { s.holds(s.a, 1) },
			func(s *scene) { s.event(history.Release, history.Fail, history.LeaseLost) },
			map[string]change{
				"no tokens": func(s *scene) { s.c.showsToken = false }, "held up": holdsUp, "data lost": losesData, "disturbed": shows(catalog.CutOff), "known": isKnown, "freed": isFreed,
				"expired": func(s *scene) { time.Sleep(time.Nanosecond) },
			}},
		{catalog.AnswersAgree, "A was told that it had not won",
			func(s *scene) { s.wins(s.a, 0) },
			func(s *scene) { s.event(history.Grab, history.Fail, history.Taken) },
			map[string]change{
				"another try": func(s *scene) { s.b.driver, s.b.begun = s.a.driver, true }, "a dead try": func(s *scene) { s.b.driver, s.b.begun, s.b.done, s.b.dead = s.a.driver, true, true, true },
				"another instance": func(s *scene) { s.a.inst = s.b.inst }, "another driver": func(s *scene) { s.a.driver = 9 },
			}},
		{catalog.AnswersAgree, "A was told that it had not won",
			func(s *scene) { s.wins(s.a, 0); s.b.driver, s.b.begun, s.b.done = s.a.driver, true, true },
			func(s *scene) { s.event(history.Grab, history.Fail, history.Taken) },
			nil},
		{catalog.AnswersAgree, "A was told that it had won, but the ledger does not have its row",
			func(s *scene) { s.wins(s.b, 0) },
			func(s *scene) { s.event(history.Grab, history.OK, "") },
			map[string]change{"won": func(s *scene) { s.wins(s.a, 0) }}},
		{catalog.AnswersAgree, "A was told that the order was taken, but the ledger is empty", nil,
			func(s *scene) { s.event(history.Grab, history.Fail, history.Taken) },
			map[string]change{"sold": func(s *scene) { s.wins(s.b, 0) }, "no lock": locksNone}},
		{catalog.AnswersAgree, "A was told that its driver had enough units, but the ledger has none of them",
			func(s *scene) { s.wins(s.b, 0) },
			func(s *scene) { s.event(history.Grab, history.Fail, grab.PerDriver) },
			map[string]change{
				"another try": func(s *scene) { s.b.driver, s.b.begun = s.a.driver, true }, "has a unit": func(s *scene) { s.a.driver = s.b.driver },
				"lost reservation": func(s *scene) { s.o.causes.faulted = true; locksNone(s) },
			}},
		{catalog.AnswersAgree, "A was told that its grab was cancelled, but its driver had not hung up", nil,
			func(s *scene) { s.event(history.Grab, history.Fail, grab.Cancelled) },
			map[string]change{"hung up": hangsUp}},
		{catalog.AnswersAgree, "A was told that its lease was lost, but the lease was valid until its release",
			func(s *scene) { s.holds(s.a, time.Second); s.a.inTime = true },
			func(s *scene) { s.event(history.Grab, history.Fail, history.LeaseLost) },
			map[string]change{"held up": holdsUp, "disturbed": shows(catalog.Delayed), "late": func(s *scene) { s.a.inTime = false }, "known": isKnown, "freed": isFreed}},
		{catalog.AnswersAgree, "A's grab failed after it had acquired the lock",
			func(s *scene) { s.holds(s.a, time.Second); s.a.inTime = true },
			func(s *scene) { s.event(history.Grab, history.Fail, "") },
			map[string]change{"late": func(s *scene) { s.a.inTime = false }, "not granted": func(s *scene) { s.a.granted = false }, "hung up": hangsUp, "impeded": isImpeded, "held up": holdsUp}},
		{catalog.AnswersAgree, "A's grab failed after it had acquired the lock",
			func(s *scene) { s.holds(s.a, time.Second); locksNone(s) },
			func(s *scene) { s.event(history.Grab, history.Info, history.Taken) },
			nil},
		{catalog.FenceMonotone, "A got token 2 after B had got 2",
			func(s *scene) { s.holds(s.b, -1); s.holds(s.a, 1); s.a.fence, s.b.fence, s.b.releasing = 2, 2, true },
			func(s *scene) { s.o.judgeGrant(s.a) },
			map[string]change{"grows": func(s *scene) { s.a.fence = 3 }, "was granted first": func(s *scene) { s.a.fence = 1 }, "no lock": func(s *scene) { s.b.granted = false }, "no token": func(s *scene) { s.a.fence, s.b.fence = 0, 0 }}},
		{catalog.FenceMonotone, "A got token 1 after B had got 2",
			func(s *scene) {
				s.holds(s.b, -1)
				s.holds(s.a, 1)
				s.a.fence, s.b.fence, s.b.releasing, s.a.before = 1, 2, true, 2
			},
			func(s *scene) { s.o.judgeGrant(s.a) },
			map[string]change{"began before": func(s *scene) { s.a.before = 1 }}},
		{catalog.LeaseExclusive, "A got the lock while B's lease was valid for another 2s",
			func(s *scene) { s.holds(s.b, 2*time.Second); s.holds(s.a, time.Second) },
			func(s *scene) { s.o.judgeGrant(s.a) },
			map[string]change{
				"released": func(s *scene) { s.b.releasing = true }, "not granted": func(s *scene) { s.b.granted = false }, "no lock": locksNone,
				"expired": func(s *scene) { s.b.leases[0].until = s.n.now() }, "late grant": func(s *scene) { s.a.leases[0].until = s.n.now() },
			}},
		{catalog.LeaseExclusive, "A got the lock while B had it, and the servers store nothing about either of them",
			func(s *scene) { s.a.granted, s.b.granted = true, true },
			func(s *scene) { s.o.judgeGrant(s.a) },
			map[string]change{
				"per process": func(s *scene) { s.c.Strategy.Excludes = catalog.PerProcess }, "in SQL": func(s *scene) { s.c.Strategy.Needs |= lock.SQLLocks }, "fault": isFault,
				"stored A": func(s *scene) { s.holds(s.a, 1) }, "stored B": func(s *scene) { s.holds(s.b, 1) }, "released": func(s *scene) { s.b.releasing = true },
			}},
		{catalog.LossNotified, "A got the lock while B believed that it held the lock",
			func(s *scene) { s.holds(s.b, -1); s.holds(s.a, 1) },
			func(s *scene) { s.o.judgeGrant(s.a) },
			map[string]change{
				"never told": func(s *scene) { s.c.notifiesLoss = false }, "told": func(s *scene) { s.b.knowsLoss = true }, "dead": func(s *scene) { s.b.dead = true },
				"lags": func(s *scene) { s.b.inst.awake = make(chan struct{}) }, "released": func(s *scene) { s.b.releasing = true },
			}},
		{catalog.LeaseExclusive, "A got the lock, but only 0 of 1 servers store its lease",
			func(s *scene) { s.holds(s.a, 1) },
			func(s *scene) { s.o.judgeStored(s.a) },
			map[string]change{
				"without tokens": func(s *scene) { s.c.showsToken = false }, "no lock": locksNone, "counts twice": func(s *scene) { s.c.Strategy.Breaks = []string{"F20"} },
				"expired": func(s *scene) { time.Sleep(time.Nanosecond) }, "freed": isFreed, "data lost": losesData,
			}},
		{catalog.FenceMonotone, "A got token 3, but the server has issued only tokens up to 2",
			func(s *scene) { s.counts("1", "2", "1"); s.a.fence = 3 },
			func(s *scene) { s.o.judgeStored(s.a) },
			map[string]change{
				"issued": func(s *scene) { s.counts("1", "3", "1") }, "data lost": losesData, "no counter": func(s *scene) { s.counts() },
				"lower": func(s *scene) { s.a.fence = 2 },
			}},
		{catalog.OrderOfService, "A got the lock, but B had waited longer",
			func(s *scene) { s.a.behind, s.b.begun = 2, true },
			func(s *scene) { s.o.waits.judgeOrder(s.a) },
			map[string]change{
				"gave up": func(s *scene) { time.Sleep(s.c.Wait) }, "disturbed": shows(catalog.WakeUpLost), "not behind": func(s *scene) { s.a.behind = 1 }, "granted": func(s *scene) { s.b.granted = true },
				"done": func(s *scene) { s.b.done = true }, "dead": func(s *scene) { s.b.dead = true }, "paused": func(s *scene) { s.b.inst.stopped.Store(true) }, "hung up": func(s *scene) { s.b.cancelled = true },
				"session": func(s *scene) { s.c.Strategy.Needs, s.o.causes.heldUp = lock.Etcd, true },
			}},
		{catalog.StaleWrite, "A wrote with token 1 after token 2 had been seen",
			func(s *scene) { s.wins(s.b, 2); s.a.fence = 1 },
			func(s *scene) { s.event(history.Claim, history.OK, "") },
			map[string]change{"equal": func(s *scene) { s.a.fence = 2 }, "no token": func(s *scene) { s.a.fence = 0 }}},
		{catalog.OneWinner, "the order was given to A and to B",
			func(s *scene) { s.wins(s.a, 0); s.wins(s.b, 0) },
			func(s *scene) { s.event(history.Claim, history.OK, "") },
			map[string]change{"two units": func(s *scene) { s.c.Stock = 2 }}},
		{catalog.WriteAfterExpiry, "A wrote after its lease had expired, while B was inside",
			func(s *scene) {
				s.holds(s.a, 1)
				s.holds(s.b, time.Second)
				s.b.inside = true
				time.Sleep(time.Nanosecond)
			},
			func(s *scene) { s.event(history.Claim, history.OK, "") },
			map[string]change{
				"valid": func(s *scene) { s.holds(s.a, 1) }, "not granted": func(s *scene) { s.b.granted = false }, "outside": func(s *scene) { s.b.inside = false },
				"releasing": func(s *scene) { s.b.releasing = true }, "no lock": locksNone,
			}},
		{catalog.RenewsOwn, "A's lease has expired, although nothing prevented its renewal",
			func(s *scene) { s.holds(s.a, 1); time.Sleep(time.Nanosecond) },
			func(s *scene) { s.o.judge() },
			map[string]change{
				"never renews": func(s *scene) { s.c.renews = false }, "not granted": func(s *scene) { s.a.granted = false }, "releasing": releases, "dead": isDead, "stopped": func(s *scene) { s.o.causes.stopped = true },
				"disturbed": shows(catalog.Unreachable), "data lost": losesData, "clock": func(s *scene) { s.n.ahead = 1 }, "no lease": func(s *scene) { s.a.leases = nil },
				"counts twice": func(s *scene) { s.c.Strategy.Breaks = []string{"F20"} }, "freed": isFreed, "renewed": func(s *scene) { s.holds(s.a, 1) },
			}},
		{catalog.RenewsOwn, "A's lease has expired, although nothing prevented its renewal",
			func(s *scene) {
				s.c.Strategy.Promises.RenewalRetried = 0.5
				s.holds(s.a, s.c.TTL)
				s.disturbedAt(s.c.TTL/2 - 1)
				time.Sleep(s.c.TTL + 1)
			},
			func(s *scene) { s.o.judge() },
			map[string]change{
				"later": func(s *scene) { s.o.causes.disturbedAt++ }, "data lost": losesData, "no promise": func(s *scene) { s.c.Strategy.Promises.RenewalRetried = 0 },
			}},
		{catalog.LossNotified, "A's lease has expired, but A was not told",
			func(s *scene) { s.holds(s.a, 1); s.c.renews = false; time.Sleep(time.Nanosecond) },
			func(s *scene) { s.o.judge() },
			map[string]change{
				"never told": func(s *scene) { s.c.notifiesLoss = false }, "not granted": func(s *scene) { s.a.granted = false }, "releasing": releases, "known": isKnown, "dead": isDead, "lags": lags,
				"freed": isFreed, "counts twice": func(s *scene) { s.c.Strategy.Breaks = []string{"F20"} },
			}},
		{catalog.LossHeeded, "A's lease has ended by its own clock, but A was not told",
			func(s *scene) { s.holds(s.a, time.Minute); s.a.believed = 1; time.Sleep(time.Millisecond + 2) },
			func(s *scene) { s.o.judge() },
			map[string]change{
				"never told": func(s *scene) { s.c.notifiesLoss = false }, "releasing": releases, "known": isKnown, "dead": isDead, "lags": lags,
				"paused": func(s *scene) { s.a.inst.stopped.Store(true) }, "unknown": func(s *scene) { s.a.believed = 0 }, "a little later": func(s *scene) { s.a.believed = 2 },
			}},
		{catalog.LossNotified, "A's renewal found that its lease was gone, but A was not told",
			func(s *scene) { s.holds(s.a, time.Minute); s.a.missingOn = []*node{s.n} },
			func(s *scene) { s.o.judge() },
			map[string]change{
				"never told": func(s *scene) { s.c.notifiesLoss = false }, "releasing": releases, "known": isKnown, "dead": isDead, "lags": lags, "found": func(s *scene) { s.a.missingOn = nil },
				"renews again": func(s *scene) { s.o.gate.waiting = []*call{{actor: s.a, phase: tap.Renew, node: s.n}} }, "renews late": func(s *scene) { s.o.gate.late = []*call{{actor: s.a, phase: tap.Renew, node: s.n}} },
			}},
		{catalog.LossNotified, "A's client knew that its session had expired, but A was not told",
			func(s *scene) { s.holds(s.a, time.Minute); expireSession(s) },
			func(s *scene) { s.o.judge() },
			map[string]change{
				"never told": func(s *scene) { s.c.notifiesLoss = false }, "releasing": releases, "known": isKnown, "dead": isDead, "lags": lags,
				"an earlier session": func(s *scene) { s.a.expiries = 1 }, "another instance": func(s *scene) { s.a.inst = s.b.inst },
			}},
		{catalog.WaitsAsTold, "A asks for the lock or renews its lease again and again, with too short a pause",
			func(s *scene) { s.a.rest = askAtOnce*askEvery + 1 },
			func(s *scene) { s.o.judge() },
			map[string]change{"held up": holdsUp, "at the limit": func(s *scene) { s.a.rest-- }, "two servers": func(s *scene) { s.c.nodes = append(s.c.nodes, s.n) }}},
		{catalog.WaitsAsTold, "A continued for 1.001s after its driver had hung up", nil,
			func(s *scene) {
				s.o.waits.judgeLingering([]*actor{s.a}, time.Second)
				s.o.waits.judgeLingering([]*actor{s.a}, time.Millisecond)
			},
			map[string]change{"outage": shows(catalog.Unreachable), "cut off": shows(catalog.CutOff), "delayed": shows(catalog.Delayed), "at the limit": func(s *scene) { s.a.lingered = -time.Millisecond }}},
		{catalog.WaitsAsTold, "A continued for 1.001s after its driver had hung up",
			func(s *scene) { s.a.begin = 2; s.disturbedAt(1) },
			func(s *scene) { s.o.waits.judgeLingering([]*actor{s.a}, 1001*time.Millisecond) },
			map[string]change{"later": func(s *scene) { s.disturbedAt(2) }}},
		{catalog.WaitsAsTold, "A waited for 1.001", // an outage before A began is no excuse
			func(s *scene) { s.a.begin = 2; s.disturbedAt(1); time.Sleep(1001*time.Millisecond + 3) },
			func(s *scene) { s.o.waits.judgePatience(s.a) },
			map[string]change{"later": func(s *scene) { s.disturbedAt(2) }}},
		{catalog.WaitsAsTold, "A began to write after its driver had hung up", hangsUp,
			func(s *scene) { s.event(history.Claim, history.Invoke, "") },
			map[string]change{"did not hang up": func(s *scene) { s.a.cancelled = false }}},
		{catalog.FenceMonotone, "A got the lock without a fencing token",
			func(s *scene) { s.c.Strategy.Fences = true; stores("A")(s) },
			func(s *scene) { s.o.judgeStored(s.a) },
			map[string]change{"no fence": func(s *scene) { s.c.Strategy.Fences = false }, "a token": func(s *scene) { s.a.fence = 1 }}},
		{catalog.RenewsOwn, "A's lease on redis lasts for 10.002s, which is longer than the TTL",
			func(s *scene) { s.holds(s.a, s.c.TTL+2*time.Millisecond) },
			func(s *scene) { s.o.judge() },
			map[string]change{
				"at the limit": func(s *scene) { s.holds(s.a, s.c.TTL+time.Millisecond) },
				"endless":      func(s *scene) { s.c.Strategy.Breaks = []string{"F3"} },
			}},
		{catalog.AnswersAgree, "A was told that it had won, but its driver already had a unit",
			func(s *scene) { s.c.Stock, s.c.Guard = 2, order.Fenced; s.wins(s.a, 1); s.wins(s.a, 2) },
			func(s *scene) { s.event(history.Grab, history.OK, "") },
			map[string]change{
				"one unit": func(s *scene) { s.c.Stock = 1 }, "looks first": func(s *scene) { s.c.Guard = order.Naive }, "Redis limits": func(s *scene) { s.c.Guard = order.Decrement },
				"not told": func(s *scene) { s.a.driver = 3 },
			}},
		{catalog.ReleaseEffective, "A released its lock while the lease was valid, but a server still has the lock",
			func(s *scene) {
				stores("grab = token-1-1")(s)
				s.a.granted, s.a.inTime, s.a.released, s.a.token, s.a.begin = true, true, true, "token-1-1", 2
				s.disturbedAt(1)
			},
			func(s *scene) { s.end().judgeReleases() },
			map[string]change{"later": func(s *scene) { s.disturbedAt(2) }}},
		{catalog.ReleaseEffective, "A released its lock while the lease was valid, but a server still has the lock",
			func(s *scene) {
				stores("grab = token-1-1")(s)
				s.a.granted, s.a.inTime, s.a.released, s.a.token = true, true, true, "token-1-1"
			},
			func(s *scene) { s.end().judgeReleases() },
			map[string]change{
				"unreachable": shows(catalog.Unreachable), "cut off": shows(catalog.CutOff), "not granted": func(s *scene) { s.a.granted = false }, "late": func(s *scene) { s.a.inTime = false },
				"dead": isDead, "hung up": hangsUp, "arrived late": func(s *scene) { s.a.arrivedLate = true }, "no tokens": func(s *scene) { s.c.showsToken = false },
				"not released": func(s *scene) { s.a.released = false }, "another token": stores("grab = token-1-11"),
			}},
		{catalog.ReleaseEffective, "A released its lock while the lease was valid, but a server still has the lock",
			func(s *scene) {
				s.holds(s.a, 1)
				stores("grab = token-1-1")(s)
				s.c.Strategy.Promises.ReleaseRetried, s.a.inTime, s.a.token = true, true, "token-1-1"
			},
			func(s *scene) { s.end().judgeReleases() },
			map[string]change{"no promise": func(s *scene) { s.c.Strategy.Promises.ReleaseRetried = false }, "expired": func(s *scene) { time.Sleep(time.Nanosecond) }}},
		{catalog.NoResidue, "all drivers are done, but the database still has 1 session",
			func(s *scene) { _, _ = s.o.world.db.Begin(context.Background()) },
			func(s *scene) { s.end().judgeListeners() },
			map[string]change{"running": func(s *scene) { s.b.begun = true }, "no session": func(s *scene) { s.o.world.db.Restart() }}},
		{catalog.NoResidue, "all drivers are done, but redis still notifies a client of changes to the lock",
			func(s *scene) {
				s.c.Strategy.Name = "setnx"
				s.n.lockServer = listenedServer{key: grab.Key("setnx", theOrder)}
			},
			func(s *scene) { s.end().judgeListeners() },
			map[string]change{"running": func(s *scene) { s.a.begun = true }, "another lock": func(s *scene) { s.c.Strategy.Name = "watchdog" }, "no listener": stores("")}},
		{catalog.StuckOrder, "A's driver has no unit, but is told that it has enough units",
			func(s *scene) { s.refusesUnits() },
			func(s *scene) { s.end().judgeLimits() },
			map[string]change{
				"has a unit": func(s *scene) { s.wins(s.a, 0) }, "a lock": func(s *scene) { s.c.Strategy.Excludes = catalog.Global },
				"not refused": func(s *scene) { s.startsAt(0) },
			}},
		{catalog.NoResidue, "redis keeps /grab = czxid 0 forever",
			func(s *scene) {
				z := newZKServer("redis")
				z.reset()
				z.nodes["/grab"] = &zkNode{container: true}
				s.c.nodes, s.n = []*node{z.node}, z.node
			},
			func(s *scene) { s.end().judgeContainers() },
			map[string]change{
				"unreachable": shows(catalog.Unreachable), "cut off": shows(catalog.CutOff), "dead": isDead, "hung": func(s *scene) { s.a.hung = true },
				"calls":     func(s *scene) { s.o.gate.waiting = []*call{{actor: s.a, node: s.n}} },
				"had child": func(s *scene) { s.n.lockServer.(*zkServer).nodes["/grab"].created = 1 }, "no container": func(s *scene) { s.n.lockServer.(*zkServer).nodes["/grab"].container = false },
				"Redis": stores("/grab = czxid 0"),
			}},
		{catalog.NoResidue, "redis still holds grab = B1",
			stores("fence = 1\ngrab = B1"),
			func(s *scene) { s.c.residue = append(s.c.residue, "fence"); s.end().judgeResidue() },
			map[string]change{
				"later": func(s *scene) { time.Sleep(s.c.TTL) }, "residue": func(s *scene) { s.c.residue = []string{"grab"} },
				"cut": func(s *scene) { s.a.releaseCut, s.a.token = true, "B1" }, "cut, without tokens": func(s *scene) { s.a.releaseCut, s.c.showsToken = true, false },
			}},
		{catalog.NoResidue, "redis still holds grab = B1",
			stores("grab = B1"),
			func(s *scene) {
				s.a.releaseCut = true
				s.end().judgeResidue()
			},
			map[string]change{"its lock": func(s *scene) { s.a.token = "B1" }}},
		{catalog.NoResidue, "all leases have expired, but redis still holds grab = token-1-1",
			stores("fence = 1\ngrab = token-1-1"),
			func(s *scene) { s.end().judgeRemains() },
			map[string]change{"residue": func(s *scene) { s.c.residue = []string{"grab"} }, "no token": stores("grab = 1")}},
		{catalog.WaitsAsTold, "A waited for 1.002s, but should have given up after 1s",
			func(s *scene) { s.a.met = 2; time.Sleep(1002 * time.Millisecond) },
			func(s *scene) { s.event(history.Acquire, history.Fail, history.Busy) },
			map[string]change{"stopped": func(s *scene) { s.o.causes.stopped = true }}},
		{catalog.WaitsAsTold, "A waited for 1.002s, but should have given up after 1s",
			func(s *scene) { time.Sleep(1002 * time.Millisecond) },
			func(s *scene) { s.event(history.Acquire, history.OK, "") },
			map[string]change{"stopped": func(s *scene) { s.o.causes.stopped = true }}},
		{catalog.NoResidue, "all leases have expired, but redis still holds grab = token-1-1",
			func(s *scene) { s.ends(); stores("grab = token-1-1")(s); time.Sleep(s.c.TTL) },
			func(s *scene) { s.end().judge() },
			map[string]change{"residue": func(s *scene) { s.c.residue = []string{"grab"} }}},
		{catalog.NoResidue, "redis still holds grab = token-1-1",
			func(s *scene) { s.ends(); stores("grab = token-1-1")(s) },
			func(s *scene) { s.end().judge() },
			map[string]change{
				"residue": func(s *scene) { s.c.residue = []string{"grab"} }, "hung": func(s *scene) { s.a.hung, s.c.residue = true, []string{"grab"} },
			}},
		{catalog.NoResidue, "redis keeps /grab = czxid 0 forever",
			func(s *scene) {
				s.ends()
				z := newZKServer("redis")
				z.reset()
				z.nodes["/grab"] = &zkNode{container: true}
				s.c.nodes, s.n, s.c.residue = []*node{z.node}, z.node, []string{"/grab"}
			},
			func(s *scene) { s.end().judge() },
			map[string]change{"dead": isDead}},
		{catalog.ReleaseEffective, "A released its lock while the lease was valid, but a server still has the lock",
			func(s *scene) {
				s.ends()
				s.holds(s.a, time.Second)
				s.a.inTime, s.a.released, s.a.token = true, true, "token-1-1"
				stores("grab = token-1-1")(s)
			},
			func(s *scene) { s.end().judge() },
			map[string]change{"unreachable": shows(catalog.Unreachable), "removed": stores("")}},
		{catalog.StuckOrder, "no driver of instance 1 can get the lock, although no driver has it",
			func(s *scene) {
				s.a.begun, s.a.done = true, true
				s.startsAt(s.c.TTL + 1)
			},
			func(s *scene) { s.end().judgeProcesses() },
			map[string]change{
				"running": func(s *scene) { s.a.done = false }, "granted": func(s *scene) { s.a.granted = true }, "not begun": func(s *scene) { s.a.begun = false },
				"another instance": func(s *scene) { s.a.inst = s.b.inst }, "a TTL later": func(s *scene) { time.Sleep(time.Nanosecond) },
			}},
		{catalog.ReleaseEffective, "the lock was released while the lease was valid, but no driver can get it",
			func(s *scene) { s.holds(s.a, time.Second); s.a.inTime = true },
			func(s *scene) { s.end().judgeBusy() },
			map[string]change{"late": func(s *scene) { s.a.inTime = false }, "released": func(s *scene) { s.a.released = true }, "not granted": func(s *scene) { s.a.granted = false }, "cut": func(s *scene) { s.b.releaseCut = true }}},
		{catalog.NoResidue, "no driver can get the lock, although no actor has it",
			func(s *scene) { s.a.begun = true },
			func(s *scene) { s.end().judgeBusy() },
			map[string]change{"not begun": func(s *scene) { s.a.begun = false }, "granted": func(s *scene) { s.a.granted = true }, "dead": func(s *scene) { s.b.dead = true }, "cut": func(s *scene) { s.b.releaseCut = true }}},
	} {
		judged := func(excuse change) (all []search.Violation) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				for _, f := range []change{tt.setUp, excuse, tt.judge} {
					if f != nil {
						f(s)
					}
				}
				all = s.o.findings.broken
			})
			return all
		}
		if all := judged(nil); !slices.ContainsFunc(all, func(v search.Violation) bool {
			return v.Property == tt.property && v.Step == 7 && strings.HasPrefix(v.Why, tt.why)
		}) {
			t.Errorf("%s, %q is not reported; the oracle reports %+v", tt.property, tt.why, all)
		}
		for name, excuse := range tt.excuses {
			if all := judged(excuse); slices.ContainsFunc(all, func(v search.Violation) bool { // compare without durations, because an excuse may change them
				return v.Property == tt.property && strings.HasPrefix(duration.ReplaceAllString(v.Why, "0"), duration.ReplaceAllString(tt.why, "0"))
			}) {
				t.Errorf("%s, %q is reported in spite of the excuse %q: %+v", tt.property, tt.why, name, all)
			}
		}
	}
}

// TestFactsOfViolations checks the facts that a violation shows: how the actor lost its lease, or why two actors
// held the lock at the same time.
func TestFactsOfViolations(t *testing.T) {
	const lost, both = catalog.Forgotten, catalog.ClockJumped
	expire := func(s *scene) { s.a.leases[0].until = s.n.now() }
	judgeGrant := func(s *scene) { s.o.judgeGrant(s.a) }
	judgeClaim := func(s *scene) { s.o.judgeClaim(s.a) }
	judge := func(s *scene) { s.o.judge() }
	begins := func(s *scene) { s.event(history.Claim, history.Invoke, "") }
	// C and B held the lock at the same time, and A claims the order after both.
	third := func(units int) change {
		return func(s *scene) {
			c := &actor{name: "C", index: 2, driver: 3, inst: s.b.inst, got: s.a.got}
			s.o.world.actors = append(s.o.world.actors, c)
			s.holds(c, time.Second)
			s.holds(s.a, time.Second)
			s.a.got, s.c.Stock = nil, units
			for _, a := range s.o.world.actors {
				s.wins(a, 0)
			}
		}
	}
	for _, tt := range []struct {
		property     string
		setUp, judge change
		want         catalog.Facts
	}{
		{catalog.FenceMonotone, func(s *scene) { s.a.fence, s.b.fence = 2, 2 }, judgeGrant, both},
		{catalog.FenceMonotone, func(s *scene) { s.a.fence, s.b.fence = 2, 2; expire(s) }, judgeGrant, both | lost},
		{catalog.LeaseExclusive, nil, judgeGrant, both},
		{catalog.LossNotified, nil, judgeGrant, both},
		{catalog.OneWinner, func(s *scene) { s.wins(s.a, 0); s.wins(s.b, 0) }, judgeClaim, both},
		{catalog.OneWinner, third(1), judgeClaim, 0},
		{catalog.OneWinner, third(2), judgeClaim, both},
		{catalog.StaleWrite, func(s *scene) { s.wins(s.b, 2); s.a.fence = 1 }, judgeClaim, lost},
		{catalog.WriteAfterExpiry, func(s *scene) { s.b.inside = true; expire(s) }, judgeClaim, both},
		{catalog.LossHeeded, isKnown, begins, lost},
		{catalog.LossHeeded, func(s *scene) { s.a.believed = 1; time.Sleep(time.Millisecond) }, begins, lost},
		{catalog.LossHeeded, func(s *scene) { s.a.believed = 1; time.Sleep(2 * time.Millisecond) }, judge, lost},
		{catalog.LossNotified, func(s *scene) { s.a.missingOn = []*node{s.n} }, judge, lost},
		{catalog.RenewsOwn, func(s *scene) { s.a.missingOn = []*node{s.n} }, judge, lost},
		{catalog.LossNotified, expireSession, judge, lost},
		{catalog.RenewsOwn, expireSession, judge, lost},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.holds(s.b, time.Second)
			s.holds(s.a, time.Second)
			s.a.lostTo, s.a.got = lost, map[*actor]catalog.Facts{s.b: both}
			if tt.setUp != nil {
				tt.setUp(s)
			}
			tt.judge(s)
			i := slices.IndexFunc(s.o.findings.broken, func(v search.Violation) bool { return v.Property == tt.property })
			if i < 0 || s.o.findings.broken[i].Facts != tt.want {
				t.Errorf("%s: the oracle reports %+v, want the facts %v", tt.property, s.o.findings.broken, tt.want)
			}
		})
	}
}

// TestHealthyProcessesNeedNoTime checks that the oracle lets a TTL pass only for a process that cannot get the
// lock at once.
func TestHealthyProcessesNeedNoTime(t *testing.T) {
	for _, free := range []time.Duration{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.a.begun, s.a.done = true, true
			s.startsAt(free)
			s.end().judgeProcesses()
			if want := min(free, 1) * s.c.TTL; s.o.world.elapsed() != want || len(s.o.findings.broken) > 0 {
				t.Errorf("a lock that is free after %s: the check took %s, want %s; it reports %+v", free, s.o.world.elapsed(), want, s.o.findings.broken)
			}
		})
	}
}

// TestEndLetsLeasesExpire checks that one TTL passes before the oracle looks for what remains, no matter whether the
// first new driver gets the lock.
func TestEndLetsLeasesExpire(t *testing.T) {
	for _, free := range []time.Duration{0, 1, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.startsAt(free)
			s.c.prober = s.b.inst
			s.end().judge()
			if s.o.world.elapsed() != s.c.TTL || len(s.o.findings.broken) > 0 {
				t.Errorf("a lock that is free after %s: the check took %s, want %s; it reports %+v", free, s.o.world.elapsed(), s.c.TTL, s.o.findings.broken)
			}
		})
	}
}

// TestConditions checks each condition that the oracle uses. The condition must hold in a scene, and must
// no longer hold after any single change.
func TestConditions(t *testing.T) {
	callOf := func(a *actor, n *node) *call { return &call{actor: a, phase: tap.Acquire, node: n, target: "redis"} }
	waits := func(s *scene) bool { return slices.Equal(s.o.waits.waitersForFreeLocked(), []*actor{s.a}) }
	pause := func(s *scene) { s.a.inst.stopped.Store(true) }
	hang := func(s *scene) { s.a.hung = true }
	done := func(s *scene) { s.a.done = true }
	cut := func(s *scene) { s.a.inst.cut = map[string]bool{"locks": true} }
	for _, tt := range []struct {
		name    string
		setUp   change
		holds   func(*scene) bool
		changes map[string]change
	}{
		{"an actor is queued", func(s *scene) { s.a.begun = true }, func(s *scene) bool { return s.o.gate.isQueuedLocked(s.a) }, map[string]change{
			"not begun": func(s *scene) { s.a.begun = false }, "granted": func(s *scene) { s.a.granted = true }, "done": done, "dead": isDead, "paused": pause,
			"calls": func(s *scene) { s.o.gate.waiting = []*call{callOf(s.a, nil)} }, "its instance calls": func(s *scene) { s.b.inst = s.a.inst; s.o.gate.late = []*call{callOf(s.b, s.n)} },
		}},
		{"the database may refuse a token", func(s *scene) { s.o.causes.dataLost, s.c.Guard = true, order.FenceWrite }, func(s *scene) bool { return s.o.causes.losesFence(s.a) }, map[string]change{
			"no data lost": func(s *scene) { s.o.causes.dataLost = false }, "checks at the read": func(s *scene) { s.c.Guard = order.Fenced },
		}},
		{"a driver from before the loss may have a higher token", func(s *scene) { s.o.causes.dataLost, s.a.met = true, 2 }, func(s *scene) bool { return s.o.causes.losesFence(s.a) }, map[string]change{
			"none": func(s *scene) { s.a.met = 0 }, "no data lost": func(s *scene) { s.o.causes.dataLost = false },
		}},
		{"another instance's faults disturb no call", func(s *scene) {
			s.b.hung, s.b.inst.ahead, s.b.inst.awake, s.b.inst.cut = true, 1, make(chan struct{}), map[string]bool{"locks": true}
			s.b.inst.stopped.Store(true)
			s.o.gate.late, s.o.gate.inFlight = []*call{callOf(s.b, s.n)}, []*call{callOf(s.b, s.n)}
		}, func(s *scene) bool { return s.o.causes.isCalmLocked(s.a) }, map[string]change{"its own": hang}},
		{"all is calm", nil, func(s *scene) bool { return s.o.causes.isCalmLocked(s.a) }, map[string]change{
			"data lost": func(s *scene) { losesData(s); locksNone(s) }, "late": func(s *scene) { s.o.gate.late = []*call{callOf(s.a, s.n)} }, "in flight": func(s *scene) { s.o.gate.inFlight = []*call{callOf(s.a, s.n)} },
			"down": func(s *scene) { s.n.down.Store(true) }, "server's clock": func(s *scene) { s.n.ahead = 1 }, "paused": pause, "lags": lags, "cut": cut, "clock": func(s *scene) { s.a.inst.ahead = 1 }, "hung": hang,
		}},
		{"an actor waits for a free lock", func(s *scene) { s.a.begun = true }, waits, map[string]change{
			"not begun": func(s *scene) { s.a.begun = false }, "done": done, "down": func(s *scene) { s.n.down.Store(true) }, "paused": pause, "hung": hang, "cut": cut,
			"calls": func(s *scene) { s.o.gate.waiting = []*call{callOf(s.a, s.n)} }, "late": func(s *scene) { s.o.gate.late = []*call{callOf(s.a, s.n)} },
			"a release is on its way": func(s *scene) { s.o.gate.inFlight = []*call{{actor: s.b, phase: tap.Release, node: s.n}} },
			"B has it":                func(s *scene) { s.b.granted = true }, "dead": isDead, "B has a lease": func(s *scene) { s.holds(s.b, 1); s.b.granted = false },
			"disturbed queue": func(s *scene) { s.c.Strategy.Needs = lock.Etcd; s.o.causes.shown = catalog.CutOff },
		}},
		{"an actor waits for a lock that was released", func(s *scene) { s.a.begun = true; s.holds(s.b, 1); s.b.released = true }, waits, map[string]change{
			"not released": func(s *scene) { s.b.released = false },
		}},
		{"the first actor of a queue waits", func(s *scene) { s.c.Strategy.Needs = lock.Etcd; s.holds(s.a, 1); s.a.granted = false }, waits, map[string]change{
			"no queue": func(s *scene) { s.c.Strategy.Needs = lock.Redis }, "not begun": func(s *scene) { s.a.begun = false }, "done": done, "dead": isDead, "granted": func(s *scene) { s.a.granted = true },
		}},
		{"an actor waits although its late request has taken the lock", func(s *scene) {
			s.c.Strategy.Promises.LateUndone = true
			s.holds(s.a, 1)
			s.a.granted, s.a.arrivedLate = false, true
		}, waits, map[string]change{
			"no promise": func(s *scene) { s.c.Strategy.Promises.LateUndone = false }, "not late": func(s *scene) { s.a.arrivedLate = false }, "granted": func(s *scene) { s.a.granted = true },
		}},
		{"an actor waits although a late request has stored a counter", func(s *scene) {
			s.a.begun, s.b.arrivedLate, s.c.residue = true, true, []string{"fence"}
			stores("fence = 1")(s)
		}, waits, map[string]change{
			"stored a lock": stores("fence = 1\ngrab = B"),
		}},
		{"an actor is alone", nil, func(s *scene) bool { return s.o.causes.isAlone(s.a) }, map[string]change{
			"met": func(s *scene) { s.a.met = 2 }, "joined": func(s *scene) { s.b.begun, s.b.begin = true, 1 },
		}},
		{"an actor is alone after another", func(s *scene) { s.b.begun, s.a.begin, s.b.begin = true, 1, 1 }, func(s *scene) bool { return s.o.causes.isAlone(s.a) }, map[string]change{
			"joined": func(s *scene) { s.b.begin = 2 },
		}},
		{"an actor is alone before another", func(s *scene) { s.b.begin = 1 }, func(s *scene) bool { return s.o.causes.isAlone(s.a) }, map[string]change{
			"joined": func(s *scene) { s.b.begun = true },
		}},
		{"an actor lingers", func(s *scene) { s.a.cancelled, s.a.begun = true, true }, func(s *scene) bool { return slices.Equal(s.o.waits.lingeringLocked(), []*actor{s.a}) }, map[string]change{
			"not cancelled": func(s *scene) { s.a.cancelled = false }, "done": done, "dead": isDead, "hung": hang, "paused": pause,
			"calls": func(s *scene) { s.o.gate.waiting = []*call{callOf(s.a, s.n)} }, "late": func(s *scene) { s.o.gate.late = []*call{callOf(s.a, s.n)} },
		}},
		{"an actor waits for a slow server", func(s *scene) {
			other := &node{lockServer: emptyServer{}, name: "other"}
			s.c.nodes, s.c.Strategy.Promises.Grace, s.a.begun = append(s.c.nodes, other, other), 1, true
			s.o.gate.late = []*call{callOf(s.a, s.n), callOf(s.a, s.n)}
		}, func(s *scene) bool { return slices.Equal(s.o.waits.stragglingLocked(), []*actor{s.a}) }, map[string]change{
			"no promise": func(s *scene) { s.c.Strategy.Promises.Grace = 0 }, "not begun": func(s *scene) { s.a.begun = false }, "done": done, "dead": isDead, "hung": hang, "paused": pause, "cut": cut,
			"granted": func(s *scene) { s.a.granted = true }, "calls": func(s *scene) { s.o.gate.waiting = []*call{callOf(s.a, s.n)} }, "no calls": func(s *scene) { s.o.gate.late = nil },
			"B's call": func(s *scene) { s.o.gate.late = []*call{callOf(s.b, s.n)} }, "a call to the database": func(s *scene) { s.o.gate.late = []*call{callOf(s.a, nil)} },
			"two are slow": func(s *scene) { s.o.gate.late = append(s.o.gate.late, callOf(s.a, s.c.nodes[1])) },
		}},
	} {
		check := func(changed change) (holds bool) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				for _, f := range []change{tt.setUp, changed} {
					if f != nil {
						f(s)
					}
				}
				holds = tt.holds(s)
			})
			return holds
		}
		if !check(nil) {
			t.Errorf("%s: the condition does not hold", tt.name)
		}
		for name, changed := range tt.changes {
			if check(changed) {
				t.Errorf("%s: the condition still holds after the change %q", tt.name, name)
			}
		}
	}
}

// TestReleaseOfNothing checks when a release counts as a release of a lock that is gone. If the lock may free
// another driver's lock, a release that finds that driver's lock does not count.
func TestReleaseOfNothing(t *testing.T) {
	for _, tt := range []struct {
		mode, stored string
		gone         bool
	}{
		{"", "lock = A", false}, {"", "lock = B", true}, {"", "", true},
		{"F5", "lock = A", false}, {"F5", "lock = B", false}, {"F5", "", true},
		{"F6", "lock = B", false}, {"F35", "lock = B", false}, {"F36", "lock = B", false}, {"F12", "lock = B", true},
	} {
		s := newScene(t)
		s.a.held, s.c.Strategy.Breaks = "A", []string{tt.mode}
		stores(tt.stored)(s)
		s.o.leases.noteRelease(&call{actor: s.a, phase: tap.Release, node: s.n})
		if gone := len(s.a.goneOn) == 1; gone != tt.gone {
			t.Errorf("mode %q, the server stores %q: the lock is gone: %v, want %v", tt.mode, tt.stored, gone, tt.gone)
		}
	}
}
