package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/tap"
)

// TestReducer gives the reducer two calls of one actor, to two servers. They are
// independent, so it must leave out exactly one of the two orders.
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
		t.Error("of two independent calls, the order by name is the one to keep")
	}
	if leavesOut(true, second, other) || leavesOut(true, other, first) {
		t.Error("calls of two actors are left out, although their order may matter")
	}
	if leavesOut(false, second, first) {
		t.Error("a step is left out, although the reduction is off")
	}
}

// TestOracle gives the oracle grants by their fencing tokens. It must report a token that
// does not grow, and no other.
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
		l := &leaseBook{cluster: c, world: w, causes: s}
		s.leases = l
		o := &oracle{cluster: c, world: w, leases: l, causes: s, steps: 7}
		o.judgeGrant(b)
		if len(o.broken) > 0 != tt.broken {
			t.Errorf("token %d after %d: %+v", tt.later, tt.earlier, o.broken)
		}
		if tt.broken && (o.broken[0].Property != catalog.FenceMonotone || o.broken[0].Step != 7) {
			t.Errorf("token %d after %d breaks %s in step %d", tt.later, tt.earlier, o.broken[0].Property, o.broken[0].Step)
		}
	}
}

// TestWaitBound lets an actor wait for a free lock, after each kind of disturbance. It may wait for up to
// half a lease only if a message to a connected client may be lost. During an outage, a client knows that
// it misses messages, and a lost reply to a call loses no message.
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
			o := &oracle{cluster: c, world: &world{cluster: c}, causes: &causes{shown: tt.shown, dataLost: tt.dataLost}, freeFor: freeFor}
			o.judgeWait([]*actor{{name: "A"}})
			if broken := len(o.broken) > 0; broken != (freeFor > tt.bound) {
				t.Errorf("facts %v, data lost %v: waited %v, and broken is %v", tt.shown, tt.dataLost, freeFor, broken)
			}
		}
	}
}

// TestWorld gives the world one actor whose call waits, and pauses its process.
func TestWorld(t *testing.T) {
	inst := &instance{number: 1}
	a := &actor{name: "A", inst: inst, begun: true}
	w := &world{cluster: &Cluster{}, actors: []*actor{a}}
	w.gate = &gate{world: w, waiting: []*call{{actor: a, target: "db"}}}
	if !w.gate.anyEnabledLocked() {
		t.Error("the call cannot go through")
	}
	if !w.change(a, func() { inst.stopped.Store(true) }) || w.gate.anyEnabledLocked() {
		t.Error("the call goes through while the process is paused")
	}
	if !w.resume(inst) || !w.gate.anyEnabledLocked() || w.resume(inst) {
		t.Error("a process resumes once, and its call goes through then")
	}
}

// TestStragglingByDefinition lets an actor wait for slow servers several times, for random times. It may
// wait for its grace each time, and for the pause before its next attempt while it competes. Only one
// wait that is longer breaks the property, not the sum of several.
func TestStragglingByDefinition(t *testing.T) {
	const grace = 50 * time.Millisecond
	r := rand.New(rand.NewPCG(10, 2))
	reported := map[bool]int{}
	for range 3000 {
		c := &Cluster{}
		c.Wait, c.Strategy.Promises.Grace = time.Second, grace
		a, b := &actor{name: "A", begun: true}, &actor{name: "B", begun: r.IntN(2) == 0}
		a.releasing = r.IntN(2) == 0
		o := &oracle{cluster: c, world: &world{cluster: c, actors: []*actor{a, b}}, causes: &causes{}}
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
			o.judgeStraggling(straggling, passed)
		}
		reported[want]++
		if got := len(o.broken) > 0; got != want {
			t.Fatalf("a wait of more than %v: %v, and the oracle reports %+v", limit, want, o.broken)
		}
	}
	if reported[true] < 300 || reported[false] < 300 {
		t.Errorf("cases %v; want enough of each", reported)
	}
}
