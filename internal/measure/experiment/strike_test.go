package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
)

// pointAt returns the point before or after a phase of a driver with the given role.
func pointAt(role fault.Role, phase tap.Phase, after bool) fault.Point {
	return fault.Point{Role: role, Point: control.Point{Phase: phase, N: 1, After: after}}
}

// TestExtraInjections checks which faults are injected once more in each variation. All of these
// injections need a service whose driver is stopped at its work.
func TestExtraInjections(t *testing.T) {
	service, err := fleet.ParseService("x {port} {work_ms}")
	if err != nil {
		t.Fatal(err)
	}
	inWork, elsewhere := pointAt(fault.Alone, tap.Read, true), pointAt(fault.Alone, tap.Read, true)
	inWork.Part, elsewhere.Part = fault.Work, tap.Read
	for needs, outages := range map[lock.Backend][]catalog.Fault{
		lock.Redis: {catalog.RedisDown}, lock.RedisQuorum: {catalog.RedisDownMost}, lock.Redis | lock.RedisQuorum: nil, lock.SQLLocks: nil,
	} {
		for _, f := range fault.Faults {
			if !f.HitsAny(needs) {
				continue
			}
			for bits := range 1 << 6 {
				has := func(n int) bool { return bits>>n&1 != 0 }
				in := &injection{
					traits: traits{reconnects: has(0), unknownLock: has(1)}, fault: f, strategy: lock.Strategy{Needs: needs, Excludes: catalog.Global},
					w: &worker{cfg: Config{Service: &service, Work: injectionWork, Asked: Asked{Work: has(2)}}}, trail: trail{claim: &beforeClaim},
				}
				p := inWork
				if has(3) {
					p = elsewhere
				}
				if has(4) {
					in.trail.claim = nil
				}
				if has(5) {
					in.w.cfg.Work = longWork
				}
				reconnects := has(0) && !has(3)
				varied := func(v variation) bool { return slices.Contains(in.variations().at(p), v) }
				for _, v := range []struct {
					name      string
					got, want bool
				}{
					{"start of the other instance", varied(otherRestarts), reconnects && f.Name == catalog.Crash},
					{"long work", varied(worksLong), reconnects && f.Name == catalog.DBRestart && !has(2) && !has(5)},
					{"outage", varied(inOutage), reconnects && slices.Contains(outages, f.Name)},
					{"both orders", in.bothOrders(p), has(1) && !has(3) && !has(4) && (f.Name == catalog.Slow || f.Name == catalog.Pause)},
				} {
					if v.got != v.want {
						t.Errorf("%s, backends %b, settings %06b: %s %v, want %v", f.Name, needs, bits, v.name, v.got, v.want)
					}
				}
			}
		}
	}
}

// TestHeadStarts checks at which calls a fault is injected once more so that the affected driver continues first. Redis
// must lose data, and the grab must already have made another call to it.
func TestHeadStarts(t *testing.T) {
	grab := trailOf([]control.Call{
		{Phase: "redis SET stock:* NX", N: 1, Target: "redis"}, {Phase: "redis DECR stock:*", N: 1, Target: "redis"}, {Phase: "mysql SELECT orders", N: 1, Target: tap.DB},
		{Phase: "mysql INSERT wins", N: 1, Target: tap.DB}, {Phase: "redis INCR stock:*", N: 1, Target: "redis"},
	}, "SELECT order_id FROM wins")
	loses := []catalog.Fault{catalog.RedisRestart, catalog.Failover, catalog.NodeClock, catalog.RedisFull}
	for _, f := range fault.Faults {
		for _, reconnects := range []bool{true, false} {
			v := variations{cfg: Config{Service: new(fleet.Service)}, reconnects: reconnects, fault: f, trail: grab}
			got := names(catalog.Filter(grab.servicePoints(), func(p fault.Point) bool { return slices.Contains(v.at(p), headStart) }))
			want := ""
			if reconnects && slices.Contains(loses, f.Name) {
				want = "before redis DECR stock:* 1"
			}
			if f.HitsAny(lock.Redis) && f.NotForeign == "" && f.Name.OnTopology(catalog.SingleRedis) && got != want {
				t.Errorf("%s, reconnects %v: %q, want %q", f.Name, reconnects, got, want)
			}
		}
	}
}

// TestBreakpointsOfAnOrder checks which breakpoints various injections set: at which instance, of
// which kind, for which drivers, and at which point.
func TestBreakpointsOfAnOrder(t *testing.T) {
	struck, other := &fleet.Instance{ID: "struck", URL: "http://struck"}, &fleet.Instance{ID: "other", URL: "http://other"}
	background := pointAt(fault.Alone, tap.Renew, false)
	background.Background = true
	for _, tt := range []struct {
		name     string
		point    fault.Point
		holder   bool
		unknown  bool // whether the program cannot tell drivers apart
		queued   int
		v        variation
		course   fault.Course
		guard    order.Guard
		contends bool // whether the fault stops contenders
		want     string
	}{
		{name: "usual", point: pointAt(fault.Alone, tap.Acquire, true), want: "struck calls 1; struck point 1 after acquire 1"},
		{name: "waiting for a lock that is polled", point: pointAt(fault.Waiting, tap.Acquire, true), holder: true,
			want: "struck calls 1; struck point 1 after acquire 1; other before 4 before read 1; struck retry 1 before acquire 2"},
		{name: "waiting in a queue", point: pointAt(fault.Waiting, tap.Acquire, true), holder: true, queued: 2,
			want: "struck calls 1; struck point 1 after acquire 1; other before 4 before read 1"},
		{name: "handing over", point: pointAt(fault.HandingOver, tap.Release, false),
			want: "struck calls 1; struck refusal 1 before claim 1; struck point 1 before release 1; struck work 1 before claim 1"},
		{name: "a renewal", point: background, want: "struck calls 1; struck point 1 before renew 1; struck work 1 after read"},
		{name: "a release before the fault ends", point: pointAt(fault.Alone, tap.Acquire, true), course: fault.BeforeHeal,
			want: "struck calls 1; struck point 1 after acquire 1; struck release 1 before release 1"},
		{name: "contenders stop", point: pointAt(fault.Alone, tap.Acquire, true), contends: true,
			want: "struck calls 1; struck point 1 after acquire 1; other contender 2 before claim 1; struck contender 3 before claim 1"},
		{name: "contenders stop, who are unknown", point: pointAt(fault.Alone, tap.Acquire, true), contends: true, unknown: true,
			want: "struck calls 1; struck point 1 after acquire 1; other calls 0; other contender 0 before claim 1"},
		{name: "the affected driver is first", point: pointAt(fault.Alone, tap.Acquire, true), v: affectedFirst,
			want: "struck calls 1; struck point 1 after acquire 1; other contender 2 before claim 1; struck contender 3 before claim 1"},
		{name: "the driver is second", point: pointAt(fault.Alone, tap.Release, false), course: fault.Released, contends: true,
			want: "struck calls 1; struck refusal 1 before claim 1; struck point 1 before release 1; other contender 2 before claim 1"},
		{name: "fencing tokens", point: pointAt(fault.Alone, tap.Acquire, true), guard: order.FenceWrite, course: fault.AtOnce,
			want: "struck calls 1; struck point 1 after acquire 1; other contender 2 before claim 1; struck contender 3 before claim 1"},
		{name: "fencing tokens, and the driver hangs", point: pointAt(fault.Alone, tap.Acquire, true), guard: order.FenceWrite, course: fault.Never,
			want: "struck calls 1; struck point 1 after acquire 1"},
		{name: "fencing tokens of a waiting driver", point: pointAt(fault.Waiting, tap.Acquire, true), guard: order.FenceWrite,
			want: "struck calls 1; struck point 1 after acquire 1"},
	} {
		request := func(driver int64, in *fleet.Instance) load.Request {
			return load.Request{Target: in.URL, Order: 7, Driver: driver}
		}
		c := &contest{order: 7, point: tt.point, variation: tt.v, affected: request(1, struck), contenders: []load.Request{request(2, other), request(3, struck)}}
		if tt.holder {
			holder := request(4, other)
			c.holder = &holder
		}
		trail := ourTrail(nil)
		trail.queued = tt.queued
		b := breakpoints{
			struck: struck, other: other, trail: trail, fault: fault.Fault{Course: tt.course, HoldContenders: tt.contends},
			guard: tt.guard, tellsDrivers: !tt.unknown,
		}
		names := map[string]bool{}
		got := catalog.Join(b.of(c), "; ", func(h hold) string {
			names[h.in.ID+h.name(c)] = true
			return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", h.in.ID, h.kind, strings.Trim(fmt.Sprint(h.Drivers), "[]"), placeOf(h)))
		})
		if got != tt.want || len(names) != len(b.of(c)) {
			t.Errorf("breakpoints of %s:\n%s, want\n%s", tt.name, got, tt.want)
		}
	}
}

func placeOf(h hold) string {
	if h.At == (control.Point{}) {
		return ""
	}
	return h.At.String()
}

// TestBreakpointsAreRemoved checks that the end of an injection removes all breakpoints. If the
// fault's course is Never, it must leave those of the affected instance, so that its calls stay stopped.
func TestBreakpointsAreRemoved(t *testing.T) {
	for course := fault.AfterHeal; course <= fault.HungUp; course++ {
		removed := map[string]int{}
		instance := func(name string) *fleet.Instance {
			return &fleet.Instance{Client: func(_ context.Context, method, _ string, _, answer any) error {
				if method == "DELETE" {
					removed[name]++
					return nil
				}
				return json.Unmarshal([]byte(`{"a":[],"b":[]}`), answer)
			}}
		}
		b := breakpoints{struck: instance("struck"), other: instance("other"), fault: fault.Fault{Course: course}}
		want := map[bool]int{true: 0, false: 2}[course == fault.Never]
		if err := b.clear(t.Context()); err != nil || removed["other"] != 2 || removed["struck"] != want {
			t.Errorf("course %d: removed %v, want 2 and %d: %v", course, removed, want, err)
		}
	}
}

// TestStepsWaitForDrivers makes the drivers of an order write, release and get their responses at
// random times. Each step of a strike must end as soon as the event for which it waits has
// happened, or at its timeout.
func TestStepsWaitForDrivers(t *testing.T) {
	const lease, never = 2 * time.Second, time.Hour
	r := rand.New(rand.NewPCG(12, 244))
	synctest.Test(t, func(t *testing.T) {
		for range 300 {
			began := time.Now()
			at := func() time.Duration {
				if r.IntN(5) == 0 {
					return never
				}
				return time.Duration(r.IntN(300)) * pollInterval
			}
			released := map[int64]time.Duration{}
			struck := &fleet.Instance{Client: func(_ context.Context, _, _ string, _, answer any) error {
				held := map[string][]control.Held{}
				for id, after := range released {
					if time.Since(began) >= after {
						held[fmt.Sprintf("release-%d", id)] = make([]control.Held, 1)
					}
				}
				body, err := json.Marshal(held)
				if err != nil {
					return err
				}
				return json.Unmarshal(body, answer)
			}}
			in := &injection{
				traits: traits{liveLedger: true}, cell: &Cell{}, responses: newResponses(), ttl: lease,
				fault: fault.Fault{ContendFor: 0.75, Lasts: r.IntN(4) == 0}, struck: struck, other: &fleet.Instance{URL: "http://other", Client: func(context.Context, string, string, any, any) error { return nil }},
			}
			written := map[int64]time.Time{}
			in.w = &worker{fleet: &fleet.Fleet{Ours: true}, orders: slowLedger{0, written}, ledger: true}
			s := newStrike(in)
			var answered, wrote, releases, all time.Duration
			answers := func(request load.Request) time.Duration {
				after := at()
				if after < never {
					time.AfterFunc(after, func() { in.responses.add(request, response{ended: time.Now()}) })
				}
				return after
			}
			c := &contest{order: 1, affected: load.Request{Order: 1, Driver: 1}, contenders: []load.Request{{Order: 1, Driver: 2}, {Order: 1, Driver: 3}}}
			s.contests = []*contest{c}
			answered, wrote, releases = answers(c.affected), at(), at()
			released[1], written[1] = releases, began.Add(wrote)
			all = max(answered, answers(c.contenders[0]), answers(c.contenders[1]))

			var step func(*strike, context.Context) error
			var want time.Duration
			name := ""
			switch r.IntN(4) {
			case 0:
				name, step = "writes", (*strike).awaitWrites
				want = min(answered, wrote, arrivalTimeout)
				want = min(max(want, answered), want+3*simultaneous)
			case 1:
				name, step, want = "releases", (*strike).awaitReleases, min(answered, releases, lease)
			case 2:
				name, step, want = "quiet", (*strike).awaitQuiet, in.lease()*3/4
				if !in.fault.Lasts {
					want = min(want, all)
				}
			default:
				name, step, want = "hang-up", (*strike).hangUp, min(answered, arrivalTimeout)+simultaneous
				in.bursts = load.NewBursts()
				c.struck = true
			}
			err := step(s, t.Context())
			if took := time.Since(began); err != nil || took < want || took > want+2*pollInterval {
				t.Fatalf("%s: answered after %v, wrote after %v, released after %v, all answered after %v: waited for %v, want %v: %v", name, answered, wrote, releases, all, took, want, err)
			}
			if name == "hang-up" && c.struck != (answered < arrivalTimeout) {
				t.Fatalf("answered %v after its client hung up: counts %v", answered, c.struck)
			}
			time.Sleep(lease + arrivalTimeout)
		}
	})
}

// TestContendersMayWrite checks when stopped contenders are allowed to continue. Usually, they wait
// for the affected driver. With a late release, they wait for the drivers that came after the
// second one.
func TestContendersMayWrite(t *testing.T) {
	for units := 1; units <= 2; units++ {
		for bits := range 1 << 4 {
			wrote := func(r load.Request) bool { return bits>>(r.Driver-1)&1 != 0 }
			c := &contest{affected: load.Request{Driver: 1}, contenders: []load.Request{{Driver: 2}, {Driver: 3}, {Driver: 4}}}
			for course := fault.AfterHeal; course <= fault.HungUp; course++ {
				s := newStrike(&injection{w: &worker{cfg: Config{Stock: units}}, cell: &Cell{}, responses: newResponses(), fault: fault.Fault{Course: course}})
				want := bits&1 != 0
				if course == fault.Released {
					want = bits>>2&1+bits>>3&1 >= units
				}
				if got := s.contention().gate().mayFree(c, wrote); got != want {
					t.Errorf("%d units, course %d, drivers %04b wrote: %v, want %v", units, course, bits, got, want)
				}
				s.in.responses.add(c.affected, response{})
				if got := s.contention().gate().mayFree(c, wrote); got != (want || course != fault.Released) {
					t.Errorf("%d units, course %d, drivers %04b wrote, and the affected one has its response: %v", units, course, bits, got)
				}
			}
		}
	}
}

// TestContendersCompeteLongEnough checks how long contenders compete. If both orders of the writes are tested, the
// contenders have twice the time in the first injection.
func TestContendersCompeteLongEnough(t *testing.T) {
	inWork := pointAt(fault.Alone, tap.Read, true)
	inWork.Part = fault.Work
	for _, unknown := range []bool{false, true} {
		for _, v := range []variation{usual, affectedFirst} {
			for _, p := range []fault.Point{inWork, pointAt(fault.Alone, tap.Claim, false)} {
				in := &injection{
					traits: traits{unknownLock: unknown}, cell: &Cell{}, ttl: 2 * time.Second, trail: trail{claim: &beforeClaim},
					strategy: lock.Strategy{Excludes: catalog.Global}, fault: fault.Fault{ContendFor: 1.5},
				}
				s := newStrike(in, &contest{point: pointAt(fault.Alone, tap.Claim, true)}, &contest{point: p, variation: v})
				want := 3 * time.Second
				if unknown && v == usual && p == inWork {
					want *= 2
				}
				if got := s.contention().contendFor(); got != want {
					t.Errorf("unknown lock %v, variation %d, %s: %v, want %v", unknown, v, p, got, want)
				}
			}
		}
	}
}

// TestWritesBeforeTheLeaseEnds makes the contenders wait until the lease has expired. If the affected
// driver has written by the time they begin to wait, it wrote while its lease was valid. A contender
// that is refused later then counts as competition, as in a grab that is a single call.
func TestWritesBeforeTheLeaseEnds(t *testing.T) {
	const lease = time.Second
	for after, early := range map[time.Duration]bool{0: true, lease / 2: false, 2 * lease: false} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			in := &injection{
				traits: traits{unknownLock: true, liveLedger: true}, cell: &Cell{}, responses: newResponses(), ttl: lease,
				strategy: lock.Strategy{Excludes: catalog.Global}, fault: fault.Fault{ContendFor: 1.5},
				w: &worker{fleet: &fleet.Fleet{}, orders: slowLedger{0, map[int64]time.Time{1: began.Add(after)}}, ledger: true},
			}
			other := load.Request{Order: 7, Driver: 2}
			c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, contenders: []load.Request{other}, variation: affectedFirst, heldSince: began, contendedSince: began}
			if err := newStrike(in, c).contention().awaitExpiry(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < lease*11/10 || took > lease*6/5 {
				t.Errorf("written after %v: the contenders came after %v", after, took)
			}
			in.responses.add(other, response{grab.Taken, time.Now(), time.Now().Add(time.Millisecond)})
			if c.endedInTime != early || in.competed(c) != early {
				t.Errorf("written after %v: in time %v, competed %v, want %v", after, c.endedInTime, in.competed(c), early)
			}
		})
	}
}

// TestStepsAreInterrupted interrupts steps of a strike while they wait. Each step that still waits
// must return the cause of the interruption.
func TestStepsAreInterrupted(t *testing.T) {
	const after = 50 * time.Millisecond
	cause := errors.New("Ctrl-C")
	synctest.Test(t, func(t *testing.T) {
		for name, step := range map[string]func(*strike, context.Context) error{
			"writes": (*strike).awaitWrites, "releases": (*strike).awaitReleases, "quiet": (*strike).awaitQuiet, "hang-up": (*strike).hangUp,
			"others": (*strike).awaitOthers, "expiry": contending(contention.awaitExpiry), "later drivers": contending(contention.keepCompeting), "release": (*strike).releaseAffected,
		} {
			for _, answered := range []bool{false, true} {
				instance := &fleet.Instance{Client: func(context.Context, string, string, any, any) error { return nil }}
				in := &injection{
					cell: &Cell{Struck: new(0)}, responses: newResponses(), bursts: load.NewBursts(), ttl: time.Second, strategy: lock.Strategy{Excludes: catalog.Global},
					w: &worker{fleet: &fleet.Fleet{}, cfg: Config{Load: Load{Timeout: time.Second}}}, fault: fault.Fault{ContendFor: 1.5, Course: fault.AtOnce}, struck: instance, other: instance,
				}
				if name == "later drivers" {
					in.traits.unknownLock = true
				}
				s := newStrike(in, &contest{affected: load.Request{Driver: 1}})
				if answered {
					in.responses.add(s.contests[0].affected, response{ended: time.Now()})
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				began := time.Now()
				time.AfterFunc(after, func() { cancel(cause) })
				err := step(s, ctx)
				if waited := time.Since(began) >= after; waited && !errors.Is(err, cause) || !waited && err != nil {
					t.Errorf("%s, answered %v: ended after %v with %v", name, answered, time.Since(began), err)
				}
				time.Sleep(after)
			}
		}
	})
}

// TestContendersReachTheDatabase delays the write of a service until a contender of its order waits for
// the database, because only then can the contender win too. On a busy machine, a contender arrives late.
// A contender that waits for the lock never waits for the database, so the delay has a limit.
func TestContendersReachTheDatabase(t *testing.T) {
	const never = time.Hour
	for arrives, want := range map[time.Duration]time.Duration{
		0:                  simultaneous,
		simultaneous / 2:   simultaneous,
		2 * simultaneous:   2*simultaneous + simultaneous/2,
		4 * simultaneous:   4*simultaneous + simultaneous/2,
		4*simultaneous + 1: 4*simultaneous + simultaneous/2 + pollInterval,
		never:              5 * simultaneous,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			other := &fleet.Instance{AwaitsDatabase: func(long time.Duration) bool { return time.Since(began) >= arrives+long }}
			in := &injection{
				traits: traits{unknownLock: true}, cell: &Cell{}, responses: newResponses(), bursts: load.NewBursts(), ttl: time.Second, other: other,
				strategy: lock.Strategy{Excludes: catalog.Global}, fault: fault.Fault{ContendFor: 1.5, Course: fault.AtOnce}, w: &worker{fleet: &fleet.Fleet{}},
			}
			c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}}
			if err := newStrike(in, c).contention().keepCompeting(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != want || len(c.contenders) != 1 {
				t.Errorf("a contender waits for the database from %v on: the write was delayed by %v, want %v; %d contenders", arrives, took, want, len(c.contenders))
			}
		})
	}
}

// ledgerFunc is a ledger whose rows come from a function.
type ledgerFunc func() ([]order.Grab, error)

func (f ledgerFunc) Create(context.Context, int, int) (int64, error) { panic("not used") }

func (f ledgerFunc) Ledger(context.Context, int64, int) ([]order.Grab, error) { return f() }

// TestNotesOfWritesStay reads a ledger that sometimes fails, or shows a row only temporarily. A
// strike must keep what it has concluded about the writes, and must conclude nothing from a failed
// read.
func TestNotesOfWritesStay(t *testing.T) {
	const kinds, reads = 4, 5
	synctest.Test(t, func(t *testing.T) {
		for script := range 1 << (2 * reads) {
			n := -1
			kind := func() int { return script >> (2 * n) % kinds }
			ledger := ledgerFunc(func() ([]order.Grab, error) {
				return [][]order.Grab{nil, {{Order: 7, Driver: 2}}, {{Order: 7, Driver: 1}}, nil}[kind()], []error{nil, nil, nil, errors.New("no answer")}[kind()]
			})
			in := &injection{traits: traits{liveLedger: true}, cell: &Cell{}, responses: newResponses(), w: &worker{fleet: &fleet.Fleet{Ours: true}, orders: ledger, ledger: true}}
			c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}}
			s := newStrike(in, c)
			passed, open, shown := false, time.Time{}, map[int64]bool{}
			for range reads {
				n++
				if kind() < 2 {
					open = time.Now()
				}
				passed = passed || kind() == 1
				if kind() == 1 || kind() == 2 {
					shown[int64(3-kind())] = true
				}
				claimed := s.in.claimed(t.Context(), s.contests)
				if claimed(c.affected) != (kind() == 2) || c.othersPassed != passed || !c.openUntil.Equal(open) || len(in.shown) != len(shown) {
					t.Fatalf("script %b, read %d: written %v, others passed %v, want %v; not written until %v, want %v; shown %v, want %v",
						script, n, claimed(c.affected), c.othersPassed, passed, c.openUntil, open, in.shown, shown)
				}
				time.Sleep(pollInterval)
			}
		}
	})
}

// TestAbandonedCalls stops up to two calls of the affected driver. The strike must count only if at
// least one of these calls can still arrive late. A proxy cannot forward a call whose client has given
// up.
func TestAbandonedCalls(t *testing.T) {
	states := []control.State{control.Waiting, control.Replied, control.Released, control.Expired}
	for bits := range 1 << 9 {
		ours, counts := bits>>8 == 0, false
		var held []control.Held
		for n := range 2 {
			h := control.Held{State: states[bits>>(4*n)&3], Cancelled: bits>>(4*n+2)&1 != 0}
			if bits>>(4*n+3)&1 != 0 {
				held = append(held, h)
				counts = counts || h.State != control.Released && (ours || !h.Cancelled)
			}
		}
		instance := func(held ...control.Held) *fleet.Instance {
			return &fleet.Instance{Client: func(_ context.Context, _, _ string, _, answer any) error {
				body, err := json.Marshal(map[string][]control.Held{"point-7": held})
				return errors.Join(err, json.Unmarshal(body, answer))
			}}
		}
		in := &injection{cell: &Cell{Struck: new(1)}, struck: instance(held...), other: instance(control.Held{State: control.Waiting}), w: &worker{fleet: &fleet.Fleet{Ours: ours}}}
		c := &contest{order: 7, struck: true}
		if err := newStrike(in, c).cancelAbandoned(t.Context()); err != nil || c.struck != counts {
			t.Errorf("ours %v, %+v: counts %v, want %v: %v", ours, held, c.struck, counts, err)
		}
	}
}

// TestStoppedCallOfATask checks that a strike does not count if the affected driver wins immediately
// although a statement was stopped. In this case, a background task has made the statement. A driver
// that wins later may have repeated the statement.
func TestStoppedCallOfATask(t *testing.T) {
	const lock, read, write, log = "redis SET lock:* NX", "mysql SELECT orders", "mysql INSERT wins", "mysql INSERT log"
	for _, tt := range []struct {
		phase   tap.Phase
		took    time.Duration
		outcome grab.Outcome
		after   time.Duration // how long the service may write after its response
		task    bool
	}{
		{read, 5 * time.Millisecond, grab.Grabbed, 0, true},
		{read, 5 * time.Millisecond, grab.Failed, 0, false},
		{read, 300 * time.Millisecond, grab.Grabbed, 0, false},
		{read, 5 * time.Millisecond, grab.Grabbed, time.Second, false},
		{read, 0, "", 0, false},
		{lock, 5 * time.Millisecond, grab.Grabbed, 0, false},
		{write, 5 * time.Millisecond, grab.Grabbed, 0, true},
		{log, 5 * time.Millisecond, grab.Grabbed, 0, false},
	} {
		calls := []control.Call{{Phase: lock, N: 1, Target: "redis"}, {Phase: read, N: 1, Target: tap.DB}, {Phase: write, N: 1, Target: tap.DB}, {Phase: log, N: 1, Target: tap.DB}}
		in := &injection{trail: trailOf(calls, "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?"), cell: &Cell{Struck: new(1)}, responses: newResponses(), struck: emptyInstance(), other: emptyInstance(), w: &worker{}}
		in.trail.callsAfterAnswer = tt.after
		c := &contest{struck: true, heldSince: time.Now(), point: fault.Point{Point: control.Point{Phase: tt.phase, N: 1}}}
		if tt.outcome != "" {
			in.responses.add(c.affected, response{outcome: tt.outcome, ended: c.heldSince.Add(tt.took)})
		}
		if err := newStrike(in, c).holds.releaseDriver(t.Context(), c); err != nil || c.struck == tt.task {
			t.Errorf("%s, %q after %v: counts %v: %v", tt.phase, tt.outcome, tt.took, c.struck, err)
		}
	}
}

func emptyInstance() *fleet.Instance {
	return &fleet.Instance{Client: func(context.Context, string, string, any, any) error { return nil }}
}

// TestTooLateForContenders stops a driver, after which the service takes some time to reconnect.
// Contenders must start only if they can finish in time. The limit is nine tenths of the service's
// lease or, for our own strategies, the end of the lease. Otherwise, the strike must not count, and the
// driver must continue.
func TestTooLateForContenders(t *testing.T) {
	const lease = 10 * time.Second
	service, err := fleet.ParseService("x {port} {ttl_ms}")
	if err != nil {
		t.Fatal(err)
	}
	courses := [2]fault.Course{fault.BeforeHeal, fault.AfterHeal}
	synctest.Test(t, func(t *testing.T) {
		for elapsed := time.Duration(0); elapsed <= lease; elapsed += lease / 20 {
			for bits := range 1 << 8 {
				has := func(n int) bool { return bits>>n&1 != 0 }
				var removed []string
				instance := &fleet.Instance{Client: func(_ context.Context, method, path string, _, _ any) error {
					removed = append(removed, method+" "+path)
					return nil
				}}
				in := &injection{
					traits: traits{reconnects: has(0), unknownLock: true}, cell: &Cell{Struck: new(0)}, responses: newResponses(), bursts: load.NewBursts(), ttl: lease,
					w: &worker{fleet: &fleet.Fleet{Ours: !has(0)}}, fault: fault.Fault{ContendFor: 0.3, Course: courses[elapsed/(lease/20)%2]}, struck: instance, other: instance,
				}
				c := &contest{order: 7, variation: usual, contenders: []load.Request{{Driver: 2}, {Driver: 3}}, struck: has(1), heldSince: time.Now().Add(-elapsed)}
				needed, limit, late := lease*3/10, lease, has(1)
				if has(0) {
					limit = lease * 9 / 10
				}
				if has(2) {
					c.variation, needed = worksLong, needed+longWork
				}
				if has(3) {
					in.fault.Course, late = fault.AtOnce, false
				}
				if has(4) {
					in.fault.ContendFor, late = 1.5, false
				}
				if has(5) {
					in.w.cfg.Service = &service
				}
				if has(6) {
					in.trail.service, needed = &serviceTrail{takes: lease / 5}, needed+lease/5
				}
				if has(7) {
					in.w.cfg.Target.NoExpiry, late = true, false
				}
				late = late && elapsed+needed > limit
				if err := newStrike(in, c).contention().send(t.Context()); err != nil {
					t.Fatal(err)
				}
				sent := in.bursts.Requests()
				want := map[bool]string{true: ": set a longer -ttl", false: "as its lock TTL"}[has(5)]
				if !has(0) {
					want = "on a less busy machine"
				}
				advice := strings.HasSuffix(c.missed, want)
				if late != (sent == 0) || !late && sent != 2 || late != (len(removed) > 0) || c.struck != (has(1) && !late) || advice != late {
					t.Errorf("%08b after %v: sent %d requests, removed %q, counts %v (%q); want too late: %v", bits, elapsed, sent, removed, c.struck, c.missed, late)
				}
			}
		}
	})
}

// TestStopAtAMoment answers a request before, while or after its process is stopped or killed. A stop
// counts as a strike only if the request got no response. A kill also counts if the response reported a
// failure.
func TestStopAtAMoment(t *testing.T) {
	const at = 10 * time.Millisecond
	ended := errors.New("the test ends here")
	synctest.Test(t, func(t *testing.T) {
		for _, course := range []fault.Course{fault.AfterHeal, fault.Killed} {
			for _, outcome := range []grab.Outcome{"", grab.Grabbed, grab.Taken, grab.Busy, grab.Failed, grab.Timeout} {
				for _, after := range []time.Duration{at / 2, at * 2, simultaneous * 2} {
					in := &injection{
						fault: fault.Fault{Course: course}, cell: &Cell{Struck: new(0)}, responses: newResponses(), bursts: load.NewBursts(), w: &worker{fleet: &fleet.Fleet{Ours: true}},
						prepared: fault.Prepared{Strikes: []fault.Strike{{Do: func(context.Context, time.Duration) (stack.Heal, error) { return func() error { return ended }, nil }}}},
						other:    fleet.New(fleet.Config{Instances: 1}, nil, 0).Instances[0], strategy: lock.Strategy{Excludes: catalog.NoExclusion},
					}
					c := &contest{affected: load.Request{Driver: 1}}
					if outcome != "" {
						time.AfterFunc(after, func() { in.responses.add(c.affected, response{outcome: outcome, ended: time.Now()}) })
					}
					done, err := newStrike(in, c).runAt(t.Context(), at)
					answered := outcome != "" && after < simultaneous+at
					early := answered && after < at
					hit := !answered || !early && course == fault.Killed && !reached(outcome)
					if c.struck != hit || done != (hit || course == fault.Killed && !early) || early != !errors.Is(err, ended) {
						t.Errorf("course %d, %q after %v: struck %v, want %v; done %v, %v", course, outcome, after, c.struck, hit, done, err)
					}
					time.Sleep(time.Second)
				}
			}
		}
	})
}

// TestParallelCallsStop stops some of the calls that the affected driver makes in parallel. The driver
// has reached the point once all of these calls have stopped. If some of them never come, the driver
// has reached it a moment after the others have stopped.
func TestParallelCallsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for calls := 1; calls <= 3; calls++ {
			for stopped := range calls + 2 {
				c := &contest{order: 7, calls: calls}
				m := heldCalls{struck: map[string][]control.Held{holdName(pointHold, c): make([]control.Held, stopped), holdName(callsHold, c): make([]control.Held, 9)}}
				for _, waited := range []time.Duration{0, simultaneous / 2, 2 * simultaneous} {
					time.Sleep(waited)
					if got, want := m.isAtPoint(c), stopped >= calls || stopped > 0 && waited > simultaneous; got != want {
						t.Errorf("%d of %d calls have stopped, and another %v passed: at the point %v", stopped, calls, waited, got)
					}
				}
			}
		}
	})
}

// TestOnlyStoppedCallsLoseReplies stops calls of two orders in every state. The replies to those that still wait are
// lost, and the other calls stay as they are.
func TestOnlyStoppedCallsLoseReplies(t *testing.T) {
	var lost []string
	struck := &fleet.Instance{Client: func(_ context.Context, _, path string, body, answer any) error {
		order := path[strings.LastIndex(path, "point-")+len("point-"):][:1]
		text, err := json.Marshal(body)
		if strings.HasSuffix(path, "/release") {
			var call control.Call
			err = errors.Join(err, json.Unmarshal(text, &call))
			if lost = append(lost, order+string(call.Phase)); !strings.Contains(string(text), string(control.ReplyLost)) {
				t.Errorf("released as %s", text)
			}
			return err
		}
		var held []control.Held
		for _, state := range []control.State{control.Waiting, control.Replied, control.Released, control.Expired, control.Waiting} {
			held = append(held, control.Held{State: state, Call: control.Call{Phase: tap.Phase(fmt.Sprint(state, len(held)))}})
		}
		text, err = json.Marshal(held)
		return errors.Join(err, json.Unmarshal(text, answer))
	}}
	if err := (breakpoints{struck: struck}).loseReplies(t.Context(), []*contest{{order: 7}, {order: 8}}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"7waiting0", "7waiting4", "8waiting0", "8waiting4"}; !slices.Equal(lost, want) {
		t.Errorf("lost are the replies to %q, want %q", lost, want)
	}
}

// TestWindowsOfAFault injects a fault several times, and ends it at random times. Each injection that has hit a driver has
// a window of its own, which ends when the fault ends last. An injection that has missed has none.
func TestWindowsOfAFault(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 18))
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			in := &injection{cell: &Cell{}, began: time.Now()}
			var want [][2]float64
			since := func() float64 { return millis(time.Since(in.began)) }
			for range 3 {
				time.Sleep(time.Duration(1+r.IntN(9)) * time.Millisecond)
				hits := r.IntN(3)
				s := newStrike(in, &contest{struck: hits == 1}, &contest{struck: hits == 2})
				if err := s.openWindow(t.Context()); err != nil {
					t.Fatal(err)
				}
				if hits == 0 {
					continue
				}
				from := since()
				for range 1 + r.IntN(2) {
					time.Sleep(time.Millisecond)
					s.closeWindow()
				}
				want = append(want, [2]float64{from, since()})
			}
			got := catalog.Map(in.cell.Strikes, func(w Window) [2]float64 { return [2]float64{w.FromMS, value(w.ToMS)} })
			if !slices.Equal(got, want) {
				t.Fatalf("windows are %v, want %v", got, want)
			}
		}
	})
}

// TestHungRequestsAddUp leaves the requests of several injections hanging. The load must end without any of them.
func TestHungRequestsAddUp(t *testing.T) {
	in := &injection{cell: &Cell{}}
	total := 0
	for n := range 4 {
		s := newStrike(in)
		for range n {
			s.contests = append(s.contests, &contest{})
		}
		total += n
		if err := s.leaveAffected(t.Context()); err != nil || in.workload.hung != total || !every(s.contests, func(c *contest) bool { return c.hangs }) {
			t.Errorf("%d requests hang, want %d: %v", in.workload.hung, total, err)
		}
	}
}

// TestStoppedProcessReportsNothing asks both instances which contenders have stopped, while one of the
// processes does not respond. The program must use the answer of the other instance, without waiting
// longer than the fault allows.
func TestStoppedProcessReportsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for bits := range 1 << 3 {
			held := func(stopped bool, driver int64) *fleet.Instance {
				return &fleet.Instance{URL: fmt.Sprint("http://", driver), Client: func(ctx context.Context, _, _ string, _, answer any) error {
					if stopped {
						<-ctx.Done()
						return ctx.Err()
					}
					return json.Unmarshal(fmt.Appendf(nil, `{"contender-7-of-%d":[{}],"contender-8-of-%[1]d":[]}`, driver), answer)
				}}
			}
			in := &injection{cell: &Cell{}, struck: held(bits&1 != 0, 3), other: held(bits&2 != 0, 2), traits: traits{tellsDrivers: true}, trail: ourTrail(nil)}
			c := &contest{order: 7, point: pointAt(fault.Alone, tap.Acquire, true), contenders: []load.Request{{Target: in.other.URL, Driver: 2}, {Target: in.struck.URL, Driver: 3}}}
			if bits&4 != 0 { // otherwise, no contender must stop
				c.variation = affectedFirst
			}
			began, want := time.Now(), []int64{}
			for driver, stopped := range map[int64]bool{2: bits&2 != 0, 3: bits&1 != 0} {
				if bits&4 != 0 && !stopped {
					want = append(want, driver)
				}
			}
			got := catalog.Map(in.breakpoints().ofContenders(t.Context(), []*contest{c})[c], func(h hold) int64 { return h.Drivers[0] })
			slices.Sort(got)
			slices.Sort(want)
			if took := time.Since(began); !slices.Equal(got, want) || took > 2*simultaneous {
				t.Errorf("%03b: stopped are %v, want %v, after %v", bits, got, want, took)
			}
		}
	})
}
