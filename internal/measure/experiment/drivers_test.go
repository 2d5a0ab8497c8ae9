package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
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
)

// holding returns an instance that reports the calls in held, which lists stopped calls by
// breakpoint. It appends the names of removed breakpoints to removed.
func holding(held map[string][]control.Held, removed *[]string) *fleet.Instance {
	return &fleet.Instance{URL: "http://instance", Client: func(_ context.Context, method, path string, _, answer any) error {
		if method == "DELETE" && removed != nil {
			*removed = append(*removed, path[strings.LastIndex(path, "/")+1:])
		}
		if answer == nil {
			return nil
		}
		body, err := json.Marshal(held)
		return errors.Join(err, json.Unmarshal(body, answer))
	}}
}

// TestOthersPassedByDefinition checks on random ledgers when enough other drivers have passed: they
// must have a row for each unit. With the course Released, the affected driver's rows count too. A
// later read must not reset the result.
func TestOthersPassedByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 1))
	for range 500 {
		units := 1 + r.IntN(3)
		course := []fault.Course{fault.AfterHeal, fault.AtOnce, fault.Released}[r.IntN(3)]
		var rows []order.Grab
		others, affected := 0, false
		for range r.IntN(5) {
			g := order.Grab{Order: 7 + r.Int64N(2), Driver: 1 + r.Int64N(3)}
			rows = append(rows, g)
			if g.Order == 7 && (g.Driver != 1 || course == fault.Released) {
				others++
			}
			affected = affected || g == order.Grab{Order: 7, Driver: 1}
		}
		ours, late, told := r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
		ledger := ledgerFunc(func() ([]order.Grab, error) { return rows, nil })
		in := &injection{
			traits: traits{liveLedger: r.IntN(4) > 0}, cell: &Cell{}, responses: newResponses(), fault: fault.Fault{Course: course},
			w: &worker{cfg: Config{Stock: units}, fleet: &fleet.Fleet{Ours: ours}, orders: ledger, ledger: r.IntN(4) > 0},
		}
		if late {
			in.trail.callsAfterAnswer = time.Second
		}
		before := r.IntN(4) == 0
		c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, othersPassed: before}
		if told {
			in.responses.got[c.affected] = response{outcome: grab.Grabbed}
		}
		reads := in.traits.liveLedger && in.w.ledger
		claimed := in.claimed(t.Context(), []*contest{c})
		wantPassed, wantClaimed := before || reads && others >= units, reads && affected || told && !ours && !late
		if c.othersPassed != wantPassed || claimed(c.affected) != wantClaimed || c.openUntil.IsZero() != wantClaimed {
			t.Fatalf("%v, %d units, course %d, reads %v, ours %v, told %v, writes late %v: passed %v, want %v; written %v, want %v; open until %v",
				rows, units, course, reads, ours, told, late, c.othersPassed, wantPassed, claimed(c.affected), wantClaimed, c.openUntil)
		}
	}
}

// TestReleaseOfTheAffectedDriver makes the affected driver continue under each course of a fault.
// Its breakpoints must be removed, and the fault's period must end. Only with the course AtOnce, in
// which the contenders' calls could overtake its delayed call, must the strike wait first.
func TestReleaseOfTheAffectedDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for course := fault.AfterHeal; course <= fault.HungUp; course++ {
			for _, late := range []time.Duration{0, time.Second} {
				var removed []string
				claim := beforeClaim
				in := &injection{
					cell: &Cell{Strikes: []Window{{FromMS: 5}}}, responses: newResponses(), began: time.Now(), fault: fault.Fault{Course: course}, trail: trail{claim: &claim, release: &beforeRelease, callsAfterAnswer: late},
					struck: holding(nil, &removed), other: holding(nil, &removed),
				}
				c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, point: pointAt(fault.HandingOver, tap.Release, false), contenders: []load.Request{{Driver: 2}}, variation: affectedFirst}
				s := newStrike(in, c)
				s.holds.setPaused(c, true)
				began := time.Now()
				if err := s.releaseAffected(t.Context()); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(began); waited != map[bool]time.Duration{true: simultaneous}[course == fault.AtOnce] || in.responses.paused[c.affected] || in.cell.Strikes[0].ToMS == nil {
					t.Errorf("course %d: waited %v, paused %v, %+v", course, waited, in.responses.paused, in.cell.Strikes)
				}
				if slices.Sort(removed); strings.Join(removed, " ") != "point-7 work-7" {
					t.Errorf("course %d: removed %q", course, removed)
				}
			}
		}
	})
}

// TestPausedRequests checks when a stopped request counts as unanswered. It counts only if it can write
// after its response. It does not count if the fault kills the process, hangs, or closes the client's
// connection.
func TestPausedRequests(t *testing.T) {
	for course := fault.AfterHeal; course <= fault.HungUp; course++ {
		for _, late := range []time.Duration{0, time.Second} {
			in := &injection{responses: newResponses(), fault: fault.Fault{Course: course}, trail: trail{callsAfterAnswer: late}, cell: &Cell{}}
			c := &contest{affected: load.Request{Driver: 1}}
			newStrike(in, c).holds.setPaused(c, true)
			want := late > 0 && !slices.Contains([]fault.Course{fault.Killed, fault.Never, fault.HungUp}, course)
			if got := in.responses.paused[c.affected]; got != want {
				t.Errorf("course %d, calls for %v after its response: %v, want %v", course, late, got, want)
			}
		}
	}
}

// TestFaultsThatOutlastALease checks which faults delay a write until after the lease. A strategy
// without a lock has no lease, but a service whose lock is unknown may have one.
func TestFaultsThatOutlastALease(t *testing.T) {
	for _, f := range fault.Faults {
		long := slices.Contains([]catalog.Fault{
			catalog.Slow, catalog.Pause, catalog.Partition, catalog.PartitionDB, catalog.Latency, catalog.SlowDB, catalog.LateRelease,
		}, f.Name)
		for _, excludes := range []catalog.Exclusion{catalog.NoExclusion, catalog.PerProcess, catalog.Global} {
			for _, unknown := range []bool{false, true} {
				in := &injection{fault: f, strategy: lock.Strategy{Excludes: excludes}, traits: traits{unknownLock: unknown}}
				if want := long && (excludes != catalog.NoExclusion || unknown); in.outlasts() != want {
					t.Errorf("%s, excludes %v, unknown lock %v: outlasts %v, want %v", f.Name, excludes, unknown, !want, want)
				}
			}
		}
	}
}

// TestLocksThatOutliveAFault checks for which faults a service's lock is in doubt if no contender gets past it. The driver
// has its lock in its work and, if the fault delays a reply, as soon as the lock server has received the call. If it has
// given up before the delayed reply, the lock is not in doubt.
func TestLocksThatOutliveAFault(t *testing.T) {
	const acquires, reads, writes = "redis SET lock:* NX PX", "mysql SELECT orders", "mysql INSERT wins"
	for _, f := range fault.Faults {
		for name, tt := range map[string]struct {
			renews, passed, gaveUp, noExpiry bool

			before string // further calls before the lock, if any
			doubt  []catalog.Fault
		}{
			"no one passes": {doubt: []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Partition, catalog.PartitionDB, catalog.Latency, catalog.SlowDB, catalog.LateRelease}},
			"one passes":    {passed: true},
			"never expires": {noExpiry: true},
			"gave up":       {gaveUp: true, doubt: []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Partition, catalog.PartitionDB, catalog.SlowDB, catalog.LateRelease}},
			"renews":        {renews: true, doubt: []catalog.Fault{catalog.Pause}},
			"transaction":   {before: "mysql BEGIN|", doubt: []catalog.Fault{catalog.Pause}},
			"session lock":  {before: "mysql SELECT GET_LOCK|"},
			"written before": {before: writes + "|" + reads + "|mysql COMMIT|", doubt: []catalog.Fault{
				catalog.Slow, catalog.Pause, catalog.Partition, catalog.PartitionDB, catalog.Latency, catalog.LateRelease}},
		} {
			var calls []control.Call
			seen := map[string]int{}
			for _, text := range strings.Split(tt.before+acquires+"|"+reads+"|"+writes, "|") {
				seen[text]++
				server, _, _ := strings.Cut(text, " ")
				calls = append(calls, control.Call{Phase: tap.Phase(text), N: seen[text], Target: strings.Replace(server, "mysql", tap.DB, 1)})
			}
			in := &injection{fault: f, trail: trailOf(calls, ""), cell: &Cell{}, traits: traits{unknownLock: true}, ttl: time.Second, w: &worker{}}
			in.trail.renews, in.w.cfg.Target.NoExpiry = tt.renews, tt.noExpiry
			for _, p := range in.trail.points() {
				in.contests = append(in.contests, &contest{point: p, struck: f.Reaches(p), passed: tt.passed || !(judgement{in: in}).holdsLock(p), endedInTime: tt.gaveUp})
			}
			if got, want := (judgement{in: in}).outlived(), slices.Contains(tt.doubt, f.Name); (got != "") != want {
				t.Errorf("%s under %s: %q, want a doubt: %v", name, f.Name, got, want)
			}
		}
	}
}

// TestDoubtAtMoments checks when a moment shows nothing, because the lock of a running target may have lived longer than
// the fault, so that it refused all other drivers.
func TestDoubtAtMoments(t *testing.T) {
	const lease, took = time.Second, 100 * time.Millisecond
	type change = func(in *injection, c, other *contest)
	answers := func(of func(c, other *contest) *contest, outcome grab.Outcome, after time.Duration) change {
		return func(in *injection, c, other *contest) {
			c = of(c, other)
			in.responses.add(c.contenders[0], response{outcome, c.contendedSince, c.contendedSince.Add(after)})
			c.passed, c.foundSold = c.passed || outcome == grab.Grabbed, c.foundSold || outcome == grab.Taken
		}
	}
	this, other := func(c, _ *contest) *contest { return c }, func(_, o *contest) *contest { return o }
	hasLedger := func(in *injection, _, _ *contest) { in.w.ledger = true }
	for name, tt := range map[string]struct {
		changes []change
		want    bool
	}{
		"refused":                          {nil, true},
		"not stopped":                      {[]change{func(_ *injection, c, _ *contest) { c.struck = false }}, false},
		"written before":                   {[]change{func(_ *injection, c, _ *contest) { c.endedInTime = true }}, false},
		"never expires":                    {[]change{func(in *injection, _, _ *contest) { in.w.cfg.Target.NoExpiry = true }}, false},
		"no process IDs":                   {[]change{func(in *injection, _, _ *contest) { in.w.cfg.Target.PIDs = nil }}, false},
		"killed":                           {[]change{func(in *injection, _, _ *contest) { in.fault.Course = fault.Killed }}, false},
		"a contender wins":                 {[]change{answers(this, grab.Grabbed, 0)}, false},
		"another order is won at once":     {[]change{answers(other, grab.Grabbed, took)}, true},
		"another order is won by expiry":   {[]change{answers(other, grab.Grabbed, lease)}, false},
		"taken":                            {[]change{answers(this, grab.Taken, 0)}, true},
		"taken, and another order is busy": {[]change{answers(this, grab.Taken, 0), answers(other, grab.Busy, 0)}, false},
		"taken after the fault, and busy":  {[]change{answers(this, grab.Taken, 0), answers(other, grab.Busy, 0), func(_ *injection, c, _ *contest) { c.foundSold = false }}, true},
		"taken, busy, with a ledger":       {[]change{answers(this, grab.Taken, 0), answers(other, grab.Busy, 0), hasLedger}, true},
	} {
		in := &injection{fault: fault.Fault{ContendFor: 1.5}, cell: &Cell{}, traits: traits{unknownLock: true}, ttl: lease, took: took, responses: newResponses(), w: &worker{fleet: &fleet.Fleet{}}}
		in.w.cfg.Target.PIDs = []int{1, 2}
		for order := range int64(2) {
			in.contests = append(in.contests, &contest{struck: true, contendedSince: time.Now(), contenders: []load.Request{{Order: order, Driver: 2}}})
		}
		for _, change := range tt.changes {
			change(in, in.contests[0], in.contests[1])
		}
		if got := (judgement{in: in}).inDoubt(in.contests[0]); got != tt.want {
			t.Errorf("%s: in doubt %v, want %v", name, got, tt.want)
		}
	}
}

// TestDriversPassUntilTheFaultEnds checks that a contender counts as having got past the lock if it sends the
// winner's write at any time before the fault ends. This may come only after the affected driver has given up. A
// driver that writes without reading the order may have been refused, and only counts its tries. If every driver is
// told that the lock is busy, even a driver that reads the order and writes was refused. keepCompeting sends another
// driver, who may pass.
func TestDriversPassUntilTheFaultEnds(t *testing.T) {
	for n, step := range []step{contending(contention.await), (*strike).awaitQuiet, contending(contention.keepCompeting)} {
		for kind := range 16 {
			reads, writes, named, refused := kind&1 != 0, kind&2 != 0, kind&4 != 0, kind&8 != 0 && n < 2
			synctest.Test(t, func(t *testing.T) {
				calls := []control.Call{{Phase: "redis SET lock:* NX PX", N: 1, Target: "redis"}, {Phase: "mysql SELECT orders", N: 1, Target: tap.DB}, {Phase: "mysql INSERT wins", N: 1, Target: tap.DB}}
				if named { // calls of contenders contain their own drivers
					calls[1].Phase = "mysql SELECT orders {driver}"
				}
				c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, retriedAt: time.Now().Add(time.Hour)} // with a wait in the future, no more drivers are sent
				held := []control.Held{{Call: calls[0]}}
				if reads && !named {
					held = append(held, control.Held{Call: calls[1]})
				}
				if writes {
					held = append(held, control.Held{Call: calls[2]})
				}
				in := &injection{
					traits: traits{unknownLock: true}, cell: &Cell{}, responses: newResponses(), bursts: load.NewBursts(), ttl: time.Second, trail: trailOf(calls, ""), w: &worker{fleet: &fleet.Fleet{}},
					struck: holding(nil, nil), other: holding(map[string][]control.Held{holdName(callsHold, c): held}, nil), fault: fault.Fault{ContendFor: 1.5, Course: fault.AtOnce},
				}
				if refused {
					c.contenders = []load.Request{{Order: 7, Driver: 2}}
					in.responses.add(c.contenders[0], response{grab.Busy, time.Now(), time.Now()})
				}
				if err := step(newStrike(in, c), t.Context()); err != nil || c.passed != ((reads || named) && writes && !refused) || len(c.tries) != len(held) {
					t.Errorf("step %d, a contender reads %v, writes %v, the read contains the driver %v, it is told busy %v: passed %v, calls %v, %v", n, reads, writes, named, refused, c.passed, c.tries, err)
				}
			})
		}
	}
}

// TestRefusedDriversWhoWrite sends another driver to an order at which every driver was refused, but has counted its try in
// the table of the winners. The new driver has got past the lock only if it writes too.
func TestRefusedDriversWhoWrite(t *testing.T) {
	for _, stops := range []bool{false, true} {
		for _, writes := range []bool{false, true} {
			calls := []control.Call{{Phase: "redis SET lock:* NX PX", N: 1, Target: "redis"}, {Phase: "mysql SELECT orders", N: 1, Target: tap.DB}, {Phase: "mysql INSERT wins", N: 1, Target: tap.DB}}
			c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, contenders: []load.Request{{Order: 7, Driver: 2}}}
			if stops {
				c.contenderHeldSince = time.Now()
			}
			made := map[string][]control.Held{holdName(callsHold, c): catalog.Map(calls, func(c control.Call) control.Held { return control.Held{Call: c} })}
			in := &injection{cell: &Cell{}, traits: traits{unknownLock: true}, responses: newResponses(), trail: trailOf(calls, ""), struck: holding(nil, nil), other: holding(made, nil)}
			in.responses.add(c.contenders[0], response{grab.Busy, time.Now(), time.Now()})
			s := newStrike(in, c).contention()
			err := s.noteTries(t.Context())
			first := c.passed
			c.contenders = append(c.contenders, load.Request{Order: 7, Driver: 3})
			if writes {
				made[holdName(callsHold, c)] = append(made[holdName(callsHold, c)], control.Held{Call: calls[2]})
			}
			if err = errors.Join(err, s.noteTries(t.Context())); err != nil || first || c.passed != writes {
				t.Errorf("the first driver was stopped before its write %v, the second one writes %v: passed %v, then %v (%v)", stops, writes, first, c.passed, err)
			}
		}
	}
}

// TestContendersAreAwaited checks, for each state of an order, how long an injected fault waits for
// the contenders. The wait may end early only if the order can no longer change. If all contenders
// were refused although a driver could still win, fresh drivers must be sent.
func TestContendersAreAwaited(t *testing.T) {
	const lease, poll = time.Second, pollInterval
	after := map[fault.Role][]control.Call{fault.Alone: {{Phase: "mysql INSERT wins", N: 1, Target: tap.DB}, {Phase: "mysql UPDATE orders", N: 1, Target: tap.DB}}}
	synctest.Test(t, func(t *testing.T) {
		for bits := range 1 << 6 {
			has := func(n int) bool { return bits>>n&1 != 0 }
			unknown, long, wrote, changes, pending, won := has(0), has(1), has(2), has(3), has(4), has(5)
			written := map[int64]time.Time{}
			in := &injection{
				traits: traits{liveLedger: true, unknownLock: unknown}, cell: &Cell{}, responses: newResponses(), bursts: load.NewBursts(), ttl: lease, strategy: lock.Strategy{Excludes: catalog.Global},
				fault: fault.Fault{ContendFor: 0.5}, struck: holding(nil, nil), other: holding(nil, nil), w: &worker{fleet: &fleet.Fleet{Ours: true}, orders: slowLedger{0, written}, ledger: true},
			}
			if long {
				in.fault.ContendFor = 1.5
			}
			if changes {
				in.trail.calls = after
			}
			c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, point: fault.Point{Point: control.Point{Phase: "mysql INSERT wins", N: 1, After: true}}, heldSince: time.Now(), contendedSince: time.Now()}
			for driver := range int64(2) {
				r := load.Request{Order: 7, Driver: 2 + driver, Target: in.other.URL}
				c.contenders = append(c.contenders, r)
				if !pending {
					in.responses.add(r, response{outcome: grab.Busy, sent: time.Now(), ended: time.Now()})
				}
			}
			if wrote {
				written[1] = time.Now()
			}
			if won {
				written[2] = time.Now()
			}
			began := time.Now()
			if err := newStrike(in, c).contention().await(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := lease / 2
			early := won || !pending && (wrote && !(unknown && changes) || !unknown && !long)
			if early {
				want = 0
			} else if long { // a driver that still waits after this time has competed long enough
				want = lease * 3 / 2
			}
			took := time.Since(began)
			fresh := !early && !pending // fresh drivers must be sent, because all contenders were refused
			if took < want || took > want+2*poll && !fresh || fresh != (in.bursts.Requests() > 0) {
				t.Errorf("unknown lock %v, outlasts %v, affected wrote %v, changes more %v, contenders wait %v, one won %v: ended after %v, want %v; sent %d, want some: %v",
					unknown, long, wrote, changes, pending, won, took, want, in.bursts.Requests(), fresh)
			}
			time.Sleep(lease)
		}
	})
}

// TestContendersPassTheLock stops a contender before its write. It must continue when the affected
// driver has written or has its response, or when a time limit is over. If the affected driver must
// write first but did not, the strike must not count.
func TestContendersPassTheLock(t *testing.T) {
	const lease = time.Second
	synctest.Test(t, func(t *testing.T) {
		for bits := range 1 << 4 {
			has := func(n int) bool { return bits>>n&1 != 0 }
			wrote, answered, first, stops := has(0), has(1), has(2), has(3)
			var removed []string
			held := map[string][]control.Held{}
			if stops {
				held["contender-7-of-2"] = []control.Held{{State: control.Waiting}}
			}
			written := map[int64]time.Time{}
			if wrote {
				written[1] = time.Now()
			}
			in := &injection{
				traits: traits{liveLedger: true, tellsDrivers: true}, cell: &Cell{Struck: new(1)}, responses: newResponses(), ttl: lease, fault: fault.Fault{HoldContenders: true},
				struck: holding(nil, nil), other: holding(held, &removed), w: &worker{fleet: &fleet.Fleet{Ours: true}, orders: slowLedger{0, written}, ledger: true},
			}
			c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, contenders: []load.Request{{Order: 7, Driver: 2, Target: in.other.URL}}, struck: true}
			if first {
				c.variation = affectedFirst
			}
			if answered {
				in.responses.add(c.affected, response{ended: time.Now()})
			}
			in.other.URL, c.contenders[0].Target = "http://other", "http://other"
			s := newStrike(in, c)
			began := time.Now()
			var freed time.Duration
			for range 100 {
				claimed := s.in.claimed(t.Context(), s.contests)
				time.Sleep(pollInterval) // each read of the ledger must begin after the events that it shows
				if err := s.contention().gate().free(t.Context(), claimed); err != nil {
					t.Fatal(err)
				}
				if c.contenderFreed {
					freed = time.Since(began)
					break
				}
			}
			limit := lease * 2 / 3
			if first {
				limit = lease / 2
			}
			over := wrote || answered
			want := limit
			if over {
				want = 0
			}
			if c.contenderFreed != stops || stops && (freed < want || freed > want+3*pollInterval) || c.contenderHeldSince.IsZero() == stops || slices.Equal(removed, []string{"contender-7-of-2"}) != stops {
				t.Errorf("wrote %v, answered %v, must be first %v, stops %v: freed after %v, want %v; removed %q", wrote, answered, first, stops, freed, want, removed)
			}
			if c.struck != (!stops || over || !first) {
				t.Errorf("wrote %v, answered %v, must be first %v, stops %v: counts %v (%s)", wrote, answered, first, stops, c.struck, c.missed)
			}
			if first && !c.struck && c.missed != "the affected driver did not write before the others, who waited 500ms for it: if its work takes longer, set a longer lease" {
				t.Errorf("the strike missed because %q", c.missed)
			}
			time.Sleep(lease)
		}
	})
}

// TestDatabaseMakesAffectedWait checks when a strike counts although the affected driver did not write
// first. The database must have made its write wait, and the fault must not be the reason.
func TestDatabaseMakesAffectedWait(t *testing.T) {
	for _, tt := range []struct {
		fault  fault.Fault
		waited time.Duration // how long the database has not replied
		counts bool
	}{
		{fault.Fault{Freezes: true}, 300 * time.Millisecond, true},
		{fault.Fault{Hits: lock.Redis}, 300 * time.Millisecond, true},
		{fault.Fault{}, 300 * time.Millisecond, false},
		{fault.Fault{Freezes: true}, 200 * time.Millisecond, false},
	} {
		in := &injection{
			cell: &Cell{Struck: new(1)}, responses: newResponses(), ttl: time.Second, fault: tt.fault,
			struck: holding(nil, nil), other: holding(nil, nil), w: &worker{fleet: &fleet.Fleet{}},
		}
		in.struck.AwaitsDatabase = func(long time.Duration) bool { return tt.waited >= long }
		c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, variation: affectedFirst, struck: true}
		newStrike(in, c).contention().gate().cancelUnlessFirst(c, func(load.Request) bool { return false })
		if c.struck != tt.counts {
			t.Errorf("%+v, no reply for %v: counts %v, want %v (%s)", tt.fault, tt.waited, c.struck, tt.counts, c.missed)
		}
	}
}

// TestReasonsToGiveUp checks the reason that is reported if contenders cannot compete in time. After a
// restart of the other instance, the reason must mention a lock that all orders share. The lock of a database session
// does not expire, but ends with its connection.
func TestReasonsToGiveUp(t *testing.T) {
	for n, want := range []string{"did not reconnect to its servers within 1s, so its lock may have expired", "or all orders share one lock", "within 10s, so no other driver could compete: let its clients reconnect sooner"} {
		v, calls := usual, "redis SET lock:* NX PX"
		switch n {
		case 1:
			v = otherRestarts
		case 2:
			calls = "mysql SELECT GET_LOCK"
		}
		in := &injection{cell: &Cell{Struck: new(1)}, responses: newResponses(), ttl: time.Second, struck: holding(nil, nil), other: holding(nil, nil), w: &worker{fleet: &fleet.Fleet{}}}
		in.trail = trailOf([]control.Call{{Phase: tap.Phase(calls), N: 1, Target: map[bool]string{true: tap.DB, false: "redis"}[n == 2]}, {Phase: "mysql SELECT orders", N: 1, Target: tap.DB}, {Phase: "mysql INSERT wins", N: 1, Target: tap.DB}}, "")
		c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, variation: v, struck: true}
		if err := newStrike(in, c).contention().giveUp(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if c.struck || !strings.Contains(c.missed, want) {
			t.Errorf("variation %v: counts %v (%s), want a reason with %q", v, c.struck, c.missed, want)
		}
	}
}

// TestOthersPassWhileStopped stops a contender before its write. The contender may count as having
// passed the lock before the affected driver. This is so only if a later read of the ledger shows no
// row of the affected driver.
func TestOthersPassWhileStopped(t *testing.T) {
	for _, wrote := range []bool{false, true} {
		held := map[string][]control.Held{"contender-7-of-2": {{State: control.Waiting}}}
		written := map[int64]time.Time{}
		in := &injection{
			traits: traits{liveLedger: true, tellsDrivers: true}, cell: &Cell{}, responses: newResponses(), ttl: time.Second, fault: fault.Fault{HoldContenders: true},
			struck: holding(nil, nil), other: holding(held, nil), w: &worker{fleet: &fleet.Fleet{Ours: true}, orders: slowLedger{pollInterval, written}, ledger: true},
		}
		c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, contenders: []load.Request{{Order: 7, Driver: 2, Target: in.other.URL}}}
		in.other.URL, c.contenders[0].Target = "http://other", "http://other"
		s := newStrike(in, c)
		noClaims := func(load.Request) bool { return false }
		if wrote {
			written[1] = time.Now()
		}
		for range 2 {
			if err := s.contention().gate().free(t.Context(), noClaims); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pollInterval)
		}
		if c.openUntil.IsZero() != wrote || c.othersPassed == wrote {
			t.Errorf("wrote %v: open until %v, passed %v", wrote, c.openUntil, c.othersPassed)
		}
	}
}

// TestHolderMustHaveEnded stops a waiting driver at its strike point. The strike counts only if the
// driver that held the lock before has its response.
func TestHolderMustHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, holds := range []bool{false, true} {
			for _, answered := range []bool{false, true} {
				for _, stops := range []bool{false, true} {
					held := map[string][]control.Held{}
					c := &contest{order: 7, calls: 1, point: pointAt(fault.Waiting, tap.Acquire, true), affected: load.Request{Order: 7, Driver: 1}}
					if holds {
						c.holder = &load.Request{Order: 7, Driver: 2}
					}
					if stops {
						held[holdName(pointHold, c)] = []control.Held{{State: control.Waiting}}
					}
					in := &injection{cell: &Cell{}, bursts: load.NewBursts(), responses: newResponses(), struck: holding(held, nil), other: holding(nil, nil), trail: trail{queued: 1}}
					if answered && holds {
						in.responses.add(*c.holder, response{})
					}
					if err := newStrike(in, c).approach().run(t.Context(), time.Second); err != nil {
						t.Fatal(err)
					}
					want := stops && (!holds || answered)
					if c.struck != want || (c.missed == "") != want {
						t.Errorf("holder %v, answered %v, stops %v: struck %v (%s), want %v", holds, answered, stops, c.struck, c.missed, want)
					}
				}
			}
		}
	})
}

// TestStoppedRequestsKeepTheirResponse marks requests as continuing. A request that was stopped ends at
// that moment. A request that was never stopped keeps the original time of its response.
func TestStoppedRequestsKeepTheirResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stopped := range []bool{false, true} {
			rs, r := newResponses(), load.Request{Driver: 1}
			ended := time.Now()
			rs.add(r, response{outcome: grab.Grabbed, sent: ended, ended: ended})
			rs.setPaused(r, stopped)
			time.Sleep(time.Second)
			rs.setPaused(r, false)
			want := ended
			if stopped {
				want = ended.Add(time.Second)
			}
			if a, ok := rs.of(r); !ok || !a.ended.Equal(want) || !a.sent.Equal(ended) {
				t.Errorf("stopped %v: %+v, want an end at %v", stopped, a, want)
			}
		}
	})
}

// TestSettingsUnderAFault checks the TTL, wait, work and timeout of a cell with a fault. Settings
// that the user chose must not change.
func TestSettingsUnderAFault(t *testing.T) {
	service, err := fleet.ParseService("x {port} {ttl_ms}")
	if err != nil {
		t.Fatal(err)
	}
	fixed, err := fleet.ParseService("x {port}")
	if err != nil {
		t.Fatal(err)
	}
	const s = time.Second
	for name, tt := range map[string]struct {
		service *fleet.Service
		urls    []string
		fault   fault.Fault
		asked   Asked
		want    string // TTL, wait, work and timeout of the cell
	}{
		"ours":                     {fault: fault.Fault{TTL: 3 * s}, want: "3s 6s 5ms 18s"},
		"ours, everything is set":  {fault: fault.Fault{TTL: 3 * s}, asked: Asked{true, true, true, true}, want: "7s 11s 13ms 39s"},
		"ours, the TTL is set":     {fault: fault.Fault{TTL: 3 * s}, asked: Asked{TTL: true}, want: "7s 14s 5ms 42s"},
		"ours, hangs":              {fault: fault.Fault{TTL: 3 * s, Course: fault.Never}, want: "3s 6s 5ms 7s"},
		"ours, hangs, short wait":  {fault: fault.Fault{TTL: 3 * s, Course: fault.Never}, asked: Asked{Wait: true}, want: "3s 11s 5ms 12s"},
		"ours, hangs, long TTL":    {fault: fault.Fault{TTL: 3 * s, Course: fault.Never}, asked: Asked{TTL: true, Wait: true}, want: "7s 11s 5ms 15s"},
		"ours, hangs, timeout set": {fault: fault.Fault{TTL: 3 * s, Course: fault.Never}, asked: Asked{Timeout: true}, want: "3s 6s 5ms 18s"},
		"a service":                {service: &service, fault: fault.Fault{TTL: 3 * s}, want: "3s 6s 5ms 18s"},
		"a service reconnects":     {service: &service, fault: fault.Fault{TTL: 3 * s, Severs: true}, want: "12s 24s 5ms 1m12s"},
		"a service, a long fault":  {service: &service, fault: fault.Fault{TTL: 20 * s, Severs: true}, want: "20s 40s 5ms 2m0s"},
		"a service of its own TTL": {service: &fixed, fault: fault.Fault{TTL: 3 * s, Severs: true}, want: "7s 14s 5ms 42s"},
		"targets":                  {urls: []string{"http://a", "http://b"}, fault: fault.Fault{TTL: 3 * s}, want: "7s 14s 5ms 42s"},
	} {
		w := &worker{cfg: Config{TTL: 7 * s, Wait: 11 * s, Work: 13 * time.Millisecond, Load: Load{Timeout: 17 * s, Rate: 500, Drivers: 20, MaxWorkers: 9}, Service: tt.service, Asked: tt.asked, Stock: 3}}
		w.cfg.Target.URLs = tt.urls
		under := w.withSettingsFor(tt.fault)
		if got := fmt.Sprintf("%v %v %v %v", under.cfg.TTL, under.cfg.Wait, under.cfg.Work, under.cfg.Load.Timeout); got != tt.want {
			t.Errorf("TTL, wait, work and timeout under %s: %s, want %s", name, got, tt.want)
		}
		if under.cfg.Load.Drivers != injectionDrivers+4 || under.cfg.Load.Rate != 0 || w.cfg.TTL != 7*s || w.cfg.Load.Drivers != 20 {
			t.Errorf("%s: the load is %+v, and the worker's own load is %+v", name, under.cfg.Load, w.cfg.Load)
		}
	}
}

// TestSettingsReachTheInstances changes the settings of a run one at a time. If our instances have a
// setting of the same name, it must get the new value.
func TestSettingsReachTheInstances(t *testing.T) {
	for i := range reflect.TypeFor[fleet.Config]().NumField() {
		var cfg Config
		f := reflect.TypeFor[fleet.Config]().Field(i)
		setting := reflect.ValueOf(&cfg).Elem().FieldByName(f.Name)
		if !setting.IsValid() { // the run has no setting Lab or Say
			continue
		}
		fill(setting, 2)
		if got := reflect.ValueOf(cfg.forInstances()).Field(i); setting.IsZero() || !got.Equal(setting) {
			t.Errorf("%s: the instances get %v, want %v", f.Name, got, setting)
		}
	}
}

// TestSettingsOfRunningInstances checks that each setting that running instances report replaces that of the run.
func TestSettingsOfRunningInstances(t *testing.T) {
	cfg := Config{Work: time.Hour, TTL: time.Hour, Wait: time.Hour, Guard: order.Naive, OnLost: grab.Abort}
	cfg.asRunning(grab.Settings{WorkMS: 1.5, TTLMS: 2000, WaitMS: 300, Guard: order.Fenced, OnLost: grab.Ignore})
	got := []any{cfg.Work, cfg.TTL, cfg.Wait, cfg.Guard, cfg.OnLost}
	if want := []any{1500 * time.Microsecond, 2 * time.Second, 300 * time.Millisecond, order.Fenced, grab.Ignore}; !slices.Equal(got, want) {
		t.Errorf("the settings are %v, want %v", got, want)
	}
}

// TestOutageOfEveryLockServer checks when drivers compete during an outage: only if the fault
// affects all servers on which the lock depends.
func TestOutageOfEveryLockServer(t *testing.T) {
	p := pointAt(fault.Alone, tap.Read, true)
	p.Part = fault.Work
	for _, hits := range []lock.Backend{lock.Redis, lock.RedisQuorum, lock.Redis | lock.RedisQuorum} {
		for _, needs := range []lock.Backend{lock.Redis, lock.RedisQuorum, lock.Redis | lock.RedisQuorum, lock.SQLLocks, 0} {
			v := variations{reconnects: true, fault: fault.Fault{Hits: hits, Course: fault.AtOnce, Lasts: true}, needs: needs}
			want := needs == lock.Redis || needs == lock.RedisQuorum && hits == lock.RedisQuorum
			if got := slices.Contains(v.at(p), inOutage); got != want {
				t.Errorf("hits %b, needs %b: %v, want %v", hits, needs, got, want)
			}
		}
	}
}

// TestFreshDriversTakeTurns checks the intervals at which fresh drivers are sent. Each interval must be
// a twentieth of a lease, but long enough that no two drivers count as simultaneous. Each must be a new
// driver at the other instance.
func TestFreshDriversTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, lease := range []time.Duration{time.Second, 2 * time.Second, 10 * time.Second} {
			in := &injection{cell: &Cell{}, ttl: lease, bursts: load.NewBursts(), responses: newResponses(), w: &worker{}, other: &fleet.Instance{URL: "http://other"}}
			c := &contest{order: 7, contenders: []load.Request{{Order: 7, Driver: 2}}}
			s := newStrike(in, c)
			const polls = 400
			for range polls {
				s.contention().sendAgain(c)
				time.Sleep(pollInterval)
			}
			each := max(lease/20, simultaneous) + pollInterval // the next wait begins with the next poll
			if want := int(polls * pollInterval / each); in.bursts.Requests() != want || len(c.contenders) != 1+want {
				t.Errorf("lease %v: %d drivers in %v, want %d", lease, in.bursts.Requests(), polls*pollInterval, want)
			}
			drivers := map[int64]bool{}
			for _, r := range c.contenders {
				drivers[r.Driver] = true
				if r != c.contenders[0] && (r.Target != in.other.URL || r.Order != 7 || r.Driver < injectionDrivers) {
					t.Errorf("a fresh driver sends %+v", r)
				}
			}
			if len(drivers) != len(c.contenders) {
				t.Errorf("%d drivers send %d requests", len(drivers), len(c.contenders))
			}
		}
	})
}
