package sim

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/tap"
)

// TestReducer checks two calls of one actor to different servers. They are independent, so the reducer must
// leave out exactly one of their two orders.
func TestReducer(t *testing.T) {
	a, b := &actor{name: "A"}, &actor{name: "B", index: 1}
	first := &call{actor: a, phase: tap.Acquire, n: 1, target: "redlock-1", node: &node{name: "redlock-1"}}
	second := &call{actor: a, phase: tap.Acquire, n: 1, target: "redlock-2", node: &node{name: "redlock-2"}}
	other := &call{actor: b, phase: tap.Acquire, n: 1, target: "redlock-2", node: second.node}
	leavesOut := func(on bool, last, next *call) bool {
		r := &reducer{cluster: &Cluster{}, gate: &gate{}, on: on, last: last, alternatives: []*call{first, second, other}}
		return r.commutes(next)
	}
	if leavesOut(true, first, second) || !leavesOut(true, second, first) {
		t.Error("of two independent calls, the reducer must leave out the order that is not by name, and only this one")
	}
	if leavesOut(true, second, other) || leavesOut(true, other, first) {
		t.Error("an order of calls of two actors is left out, although their order can matter")
	}
	if leavesOut(false, second, first) {
		t.Error("a step is left out, although the reduction is off")
	}
}

// TestReducedPhases checks two calls of one actor to different servers in different phases. If the last
// step changed nothing else, the search tries them in only one order. The reducer must then leave out
// the other order, and never the order of the phases.
func TestReducedPhases(t *testing.T) {
	a := &actor{name: "A"}
	early := &call{actor: a, phase: tap.Acquire, n: 1, target: "redlock-2", node: &node{name: "redlock-2"}}
	late := &call{actor: a, phase: tap.Release, n: 1, target: "redlock-1", node: &node{name: "redlock-1"}}
	for _, quiet := range []bool{false, true} {
		leavesOut := func(last, next *call) bool {
			r := &reducer{cluster: &Cluster{}, gate: &gate{}, on: true, last: last, quiet: quiet, alternatives: []*call{early, late}}
			return r.commutes(next)
		}
		if leavesOut(early, late) || leavesOut(late, early) != quiet {
			t.Errorf("quiet %v: the order by phase is left out: %v; the other order is left out: %v, want %v", quiet, leavesOut(early, late), leavesOut(late, early), quiet)
		}
	}
}

// TestCommutesByDefinition checks every pair of calls of two actors to two lock servers and the database. The reducer may
// leave out a call only under three conditions. Both calls are of one actor and go to different lock servers. Neither is
// a late delivery. The last step changed nothing else or had the same phase. Of the two orders, it leaves out the one that
// is not by phase and name.
func TestCommutesByDefinition(t *testing.T) {
	a, b := &actor{name: "A"}, &actor{name: "B", index: 1}
	var all []*call
	for _, of := range []*actor{a, b} {
		for _, phase := range []tap.Phase{tap.Acquire, tap.Release} {
			for _, target := range []string{"db", "redlock-1", "redlock-2"} {
				c := &call{actor: of, phase: phase, n: 1, target: target}
				if target != "db" {
					c.node = &node{name: target}
				}
				delivered := *c
				delivered.deliver = func() {}
				all = append(all, c, &delivered)
			}
		}
	}
	for _, last := range all {
		for _, next := range all {
			for _, quiet := range []bool{false, true} {
				for _, waited := range []bool{false, true} {
					for _, on := range []bool{false, true} {
						r := &reducer{cluster: &Cluster{}, gate: &gate{}, on: on, last: last, quiet: quiet}
						if waited {
							r.alternatives = []*call{{actor: b, target: "db"}, next}
						}
						servers := last.target != "db" && next.target != "db" && last.target != next.target
						plain := last.deliver == nil && next.deliver == nil
						byName := last.phase < next.phase || last.phase == next.phase && last.target < next.target
						want := on && waited && servers && plain && last.actor == next.actor && (last.phase == next.phase || quiet) && !byName
						if r.commutes(next) != want {
							t.Errorf("on %v, waited %v, quiet %v: %s after %s is left out: %v", on, waited, quiet, next.step(0), last.step(0), !want)
						}
					}
				}
			}
		}
	}
}

// TestEarlierArrivals checks when the reducer leaves out a late arrival, because the search also tries it before the last step: if
// the call was in flight, no client listens to its Redis server, and the last step went to another server. The last step
// must also have changed nothing else, or have been a late arrival that comes after this one by name.
func TestEarlierArrivals(t *testing.T) {
	a := &actor{name: "A"}
	redis, err := newRedisServer("redlock-2")
	if err != nil {
		t.Fatal(err)
	}
	defer redis.redis.Close()
	c := &call{actor: a, phase: tap.Acquire, n: 1, target: "redlock-2", node: redis.node}
	other := &call{actor: a, phase: tap.Acquire, n: 1, target: "redlock-2", node: &node{name: "redlock-2", lockServer: emptyServer{}}}
	for _, last := range []string{"redlock-1", "redlock-2", "redlock-3"} {
		for n := range 1 << 6 {
			flag := func(i int) bool { return n>>i&1 == 1 }
			on, inFlight, listens, arrived, quiet, isRedis := flag(0), flag(1), flag(2), flag(3), flag(4), flag(5)
			next := c
			if !isRedis {
				next = other
			}
			redis.subscribers = nil
			if listens {
				redis.subscribers = []*conn{nil}
			}
			r := &reducer{cluster: &Cluster{}, gate: &gate{}, on: on, quiet: quiet, last: &call{actor: a, phase: tap.Acquire, n: 1, target: last}}
			if inFlight {
				r.underway = []*call{{actor: a}, next}
			}
			if !arrived {
				r.alternatives = []*call{r.last}
			}
			want := on && inFlight && isRedis && !listens && last != "redlock-2" && (arrived && last > "redlock-2" || !arrived && quiet)
			if got := r.arrivesEarlier(next); got != want {
				t.Errorf("after %s: on %v, in flight %v, client listens %v, last step arrived late %v, quiet %v, Redis %v: left out %v", last, on, inFlight, listens, arrived, quiet, isRedis, got)
			}
		}
	}
}

// TestOracle checks that the oracle reports a fencing token that is not higher than the previous one, and
// no other token.
func TestOracle(t *testing.T) {
	for _, tt := range []struct {
		earlier, later uint64
		broken         bool
	}{{1, 2, false}, {2, 2, true}, {3, 2, true}} {
		c := &Cluster{}
		a := &actor{name: "A", granted: true, releasing: true, fence: tt.earlier, grant: 1}
		b := &actor{name: "B", granted: true, before: 1, fence: tt.later, grant: 2}
		w := &world{cluster: c, actors: []*actor{a, b}}
		s := &causes{cluster: c, world: w}
		w.leases = &leaseBook{cluster: c, world: w, causes: s}
		s.leases = w.leases
		o := newOracle(s)
		o.findings.steps = 7
		o.judgeGrant(b)
		if len(o.findings.broken) > 0 != tt.broken {
			t.Errorf("token %d after %d: %+v", tt.later, tt.earlier, o.findings.broken)
		}
		if tt.broken && (o.findings.broken[0].Property != catalog.FenceMonotone || o.findings.broken[0].Step != 7) {
			t.Errorf("token %d after %d breaks %s in step %d", tt.later, tt.earlier, o.findings.broken[0].Property, o.findings.broken[0].Step)
		}
	}
}

// TestValidLease checks which leases of an actor count as its own: those at the given server that have not ended, until
// the actor releases its lock.
func TestValidLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		other := &node{name: "other"}
		for _, released := range []bool{false, true} {
			for _, at := range []*node{s.n, other} {
				for _, left := range []time.Duration{-time.Second, 0, time.Second} {
					s.a.released = released
					s.a.leases = []serverLease{{other, s.n.now().Add(-time.Second)}, {at, s.n.now().Add(left)}}
					want := !released && at == s.n && left > 0
					if got := s.o.leases.hasValidLease(s.a, s.n); got != want {
						t.Errorf("released %v, the lease is at %s and lasts %v: valid %v, want %v", released, at.name, left, got, want)
					}
				}
			}
		}
	})
}

// TestWaitBound checks how long an actor is allowed to wait for a free lock after each kind of disturbance.
// Half a TTL is allowed only if a message to a connected client may have been lost. During an outage, a
// client knows that it misses messages. The loss of a reply is not the loss of a message.
func TestWaitBound(t *testing.T) {
	const ttl, short, long = 10 * time.Second, time.Second, 5 * time.Second
	for _, tt := range []struct {
		shown    catalog.Facts
		dataLost bool
		bound    time.Duration
	}{
		{0, false, short},
		{catalog.Unreachable, false, short},
		{0, true, long},
		{catalog.CutOff, false, long},
		{catalog.WakeUpLost, false, long},
		{catalog.ReplyWasLost, false, short},
		{catalog.Delayed, false, long},
		{catalog.Unreachable | catalog.WakeUpLost, false, long},
		{catalog.ReplyWasLost | catalog.WakeUpLost, false, long},
	} {
		for _, freeFor := range []time.Duration{short, short + 2*time.Millisecond, long, long + 2*time.Millisecond} {
			c := &Cluster{}
			c.TTL = ttl
			o := newOracle(&causes{cluster: c, world: &world{cluster: c}, shown: tt.shown, dataLost: tt.dataLost})
			o.waits.freeFor = freeFor
			o.waits.judgeWait([]*actor{{name: "A"}})
			if broken := len(o.findings.broken) > 0; broken != (freeFor > tt.bound) {
				t.Errorf("facts %v, data lost %v: a wait of %v is reported: %v", tt.shown, tt.dataLost, freeFor, broken)
			}
		}
	}
}

// TestBusyRenewals checks that renewals without a pause are reported even if they fail. Renewals once per tenth
// of the TTL are not reported.
func TestBusyRenewals(t *testing.T) {
	for _, tt := range []struct {
		phase tap.Phase
		pause time.Duration
		busy  bool
	}{{tap.Renew, 0, true}, {tap.Renew, time.Second, false}, {tap.Release, 0, false}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			for range 2 * askAtOnce {
				s.o.leases.noteRenewals([]*call{{actor: s.a, phase: tt.phase, node: s.n, sent: [][]any{{"pexpire", "lock", s.c.TTL.Milliseconds()}}}})
				time.Sleep(tt.pause)
			}
			s.o.judge()
			if busy := len(s.o.findings.broken) > 0; busy != tt.busy {
				t.Errorf("%s every %v is reported: %v, want %v", tt.phase, tt.pause, busy, tt.busy)
			}
		})
	}
}

// TestWorld checks that an actor's call cannot continue while its process is paused, and that the process
// resumes only once.
func TestWorld(t *testing.T) {
	inst := &instance{number: 1}
	a := &actor{name: "A", inst: inst, begun: true}
	w := &world{cluster: &Cluster{}, actors: []*actor{a}}
	w.gate = &gate{world: w, waiting: []*call{{actor: a, target: "db"}}}
	if !w.gate.anyEnabledLocked() {
		t.Error("the call cannot continue although its process runs")
	}
	if !w.change(a, func() { inst.stopped.Store(true) }) || w.gate.anyEnabledLocked() {
		t.Error("the process was not paused, or the call can continue meanwhile")
	}
	if !w.resume(inst) || !w.gate.anyEnabledLocked() || w.resume(inst) {
		t.Error("the process must resume exactly once, and its call must be able to continue then")
	}
}

// TestStragglingByDefinition makes an actor wait for slow servers several times, for random durations. Each
// wait may last for the grace period, plus a pause before the next attempt if the actor has a competitor.
// The oracle must report a single longer wait, but not several waits whose sum is longer.
func TestStragglingByDefinition(t *testing.T) {
	const grace = 50 * time.Millisecond
	r := rand.New(rand.NewPCG(10, 2))
	reported := map[bool]int{}
	for range 3000 {
		c := &Cluster{}
		c.Wait, c.Strategy.Promises.Grace = time.Second, grace
		a, b := &actor{name: "A", begun: true}, &actor{name: "B", begun: r.IntN(2) == 0}
		a.releasing = r.IntN(2) == 0
		o := newOracle(&causes{cluster: c, world: &world{cluster: c, actors: []*actor{a, b}}})
		limit := grace
		if b.begun && !a.releasing {
			limit += longestPause
		}
		want, wait := false, time.Duration(0)
		for range 12 {
			passed := time.Duration(r.IntN(3*int(limit/time.Millisecond)/5)) * time.Millisecond
			var straggling []*actor
			wait += passed
			if r.IntN(3) == 0 {
				wait = 0
			} else {
				straggling = []*actor{a}
			}
			want = want || wait > limit+time.Millisecond // timers may start a little late
			o.waits.judgeStraggling(straggling, passed)
		}
		reported[want]++
		if got := len(o.findings.broken) > 0; got != want {
			t.Fatalf("there was a wait of more than %v: %v, but the oracle reports %+v", limit, want, o.findings.broken)
		}
	}
	if reported[true] < 300 || reported[false] < 300 {
		t.Errorf("the number of cases with and without a violation is %v, want at least 300 of each", reported)
	}
}
