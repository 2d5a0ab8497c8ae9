package experiment

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// TestServedRequests checks the time by which half of the requests were served. Times are measured
// from the start of the load, and only requests that reached the lock count.
func TestServedRequests(t *testing.T) {
	a := newAccounting(10, nil, target.Own)
	for n := range 10 {
		due := a.began.Add(time.Duration(n) * time.Second)
		code := uint16(200)
		if n%5 == 0 {
			code = 503
		}
		r := &vegeta.Result{Code: code, Timestamp: due, Latency: time.Second / 4, URL: load.Request{Target: "http://a", Order: 1, Driver: int64(n)}.URL([]byte("/orders/1/grab")), Seq: uint64(n)}
		if err := a.add(r, due.Add(-time.Second/8)); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[float64]time.Duration{1: 1250 * time.Millisecond, 4: 4250 * time.Millisecond, 8: 9250 * time.Millisecond} {
		if got := a.served.At(n); (got - want).Abs() > 10*time.Millisecond {
			t.Errorf("%v requests were served after %v, want %v", n, got, want)
		}
	}
	c := Cell{OfferedRPS: new(1.0), Latency: a.scheduled.Latency()}
	if half, due, late := a.servedHalf(&c); late || due.Round(time.Millisecond) != 8875*time.Millisecond || (half-6250*time.Millisecond).Abs() > 10*time.Millisecond {
		t.Errorf("half were served after %v, and were due after %v; late is %v", half, due, late)
	}
	if l := a.sent.Latency(); math.Abs(l.Max-250) > 1 {
		t.Errorf("longest latency %v ms", l.Max)
	}
	if l := a.scheduled.Latency(); math.Abs(l.Max-375) > 1 {
		t.Errorf("longest latency since a request was due %v ms", l.Max)
	}
}

// TestTooSlowByDefinition serves requests at various times after they were due. The service is too
// slow only if the delay is longer than 100 ms and longer than twice the quickest response.
func TestTooSlowByDefinition(t *testing.T) {
	t.Parallel()
	for _, quickest := range []time.Duration{time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond} {
		for _, delay := range []time.Duration{0, 90 * time.Millisecond, 110 * time.Millisecond, 150 * time.Millisecond, 170 * time.Millisecond, time.Second} {
			a := newAccounting(4, nil, target.Own)
			a.requests, a.lastDue = 4, a.began.Add(time.Second)
			a.sent.Add(quickest)
			for range 4 {
				a.served.Add(time.Second + delay)
			}
			c := Cell{OfferedRPS: new(4.0), Latency: a.sent.Latency()}
			late := delay > max(2*quickest, 100*time.Millisecond)
			if got := a.tooSlow(&c); (got != "") != late || late && !strings.Contains(got, "although all of them were due within 1s. Such a slow service hides its races") {
				t.Errorf("quickest response %v, served %v late: %q", quickest, delay, got)
			}
			for name, c := range map[string]Cell{"all at once": {Latency: c.Latency}, "no response": {OfferedRPS: c.OfferedRPS}} {
				if got := a.tooSlow(&c); got != "" {
					t.Errorf("%s: tooSlow: %s", name, got)
				}
			}
		}
	}
}

// TestCountersOfALoad checks the figures that are computed from the instances' counters before and
// after a load. A figure must be unknown if a counter is missing, an instance has restarted, or
// there were no requests.
func TestCountersOfALoad(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name          string
		before, after fleet.Counters
		err           error
		requests      int
		redis         *int
		each, db      *float64
	}{
		{"all", fleet.Counters{RedisCommands: 10, DBStatements: 4, Epoch: 1}, fleet.Counters{RedisCommands: 40, DBStatements: 10, Epoch: 1}, nil, 20, new(30), new(1.5), new(0.3)},
		{"no Redis", fleet.Counters{RedisCommands: nan, DBStatements: 4}, fleet.Counters{RedisCommands: nan, DBStatements: 10}, nil, 20, nil, nil, new(0.3)},
		{"no database", fleet.Counters{RedisCommands: 10, DBStatements: nan}, fleet.Counters{RedisCommands: 40, DBStatements: 7}, nil, 20, new(30), new(1.5), nil},
		{"restarted", fleet.Counters{RedisCommands: 10, Epoch: 1}, fleet.Counters{RedisCommands: 40, Epoch: 2}, nil, 20, nil, nil, nil},
		{"unreadable", fleet.Counters{RedisCommands: 10}, fleet.Counters{RedisCommands: 40}, errors.New("no answer"), 20, nil, nil, nil},
		{"no requests", fleet.Counters{RedisCommands: 10}, fleet.Counters{RedisCommands: 40}, nil, 0, nil, nil, nil},
	} {
		c := Cell{Requests: tt.requests}
		c.count(tt.before, tt.after, tt.err)
		if got, want := textOf([]any{c.RedisCommands, c.RedisCommandsPerRequest, c.DBStatementsPerRequest}), textOf([]any{tt.redis, tt.each, tt.db}); got != want {
			t.Errorf("counters of %s: %s, want %s", tt.name, got, want)
		}
	}
}

// TestCompletedRate checks that the rate of completed requests excludes refused and interrupted
// ones.
func TestCompletedRate(t *testing.T) {
	a := newAccounting(10, nil, target.Own)
	a.requests, a.errors = 100, map[string]int{load.Refused: 7, load.Interrupted: 11, load.Timeout: 13, "http 503": 17}
	a.scheduled.Add(time.Second)
	a.sent.Add(time.Second)
	c := Cell{DurationS: new(2.0)}
	c.answers(a)
	if c.CompletedRPS == nil || *c.CompletedRPS != 41 || c.Requests != 100 || c.Sale != nil {
		t.Errorf("%v per second of %d requests", textOf(c.CompletedRPS), c.Requests)
	}
}

// TestWhyMissedByDefinition checks the reason for missed strikes, for random injections. It must be
// that of the first injection that missed for a known reason and was not repeated.
func TestWhyMissedByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 3))
	for range 1000 {
		in := &injection{}
		if r.IntN(2) == 0 {
			in.trail.callsAfterAnswer = time.Second
		}
		want := ""
		for n := range r.IntN(5) {
			c := &contest{struck: r.IntN(2) == 0, repeated: r.IntN(3) == 0, forwarded: r.IntN(2) == 0}
			if r.IntN(3) > 0 {
				c.missed = fmt.Sprintf("reason %d", n)
			}
			in.contests = append(in.contests, c)
			if want != "" || c.struck || c.repeated || c.missed == "" {
				continue
			}
			want = fmt.Sprintf(". Reason %d", n)
			if in.trail.callsAfterAnswer > 0 {
				want += ". " + ownQueue
			} else if c.forwarded {
				want += ", and its instance wrote nothing. " + oneLeads
			}
		}
		if got := (judgement{in: in}).whyMissed(); got != want {
			t.Fatalf("whyMissed: %q, want %q", got, want)
		}
	}
}

// TestDoubtOfEachFigure changes one measurement of a service at a time. Each change that makes the
// verdict doubtful must produce its own reason.
func TestDoubtOfEachFigure(t *testing.T) {
	none := func(*auditor, *Cell, *measured) {}
	noLedger := func(au *auditor, _ *Cell, _ *measured) { au.ledger = false }
	for _, tt := range []struct {
		name            string
		drained, faulty bool
		change, change2 func(*auditor, *Cell, *measured)
		reason, vacuous string // the expected beginnings of both texts
		note, counted   string
		reasonEnds      string
	}{
		{name: "nothing", change: none},
		{name: "a phantom", change: func(_ *auditor, c *Cell, _ *measured) { c.PhantomGrabs = new(1) }, reason: "1 grab was promised that the ledger does not have: does -ledger-query read all of them?"},
		{name: "phantoms under a fault", faulty: true, change: func(_ *auditor, c *Cell, _ *measured) { c.PhantomGrabs = new(2) }, reason: "2 grabs were promised that the ledger does not have", reasonEnds: "set -settle to the time that this takes"},
		{name: "a time-out", change: func(_ *auditor, _ *Cell, m *measured) { m.outcomes[grab.Timeout] = 1 }, reason: "1 request was not answered, and may still have been in progress"},
		{name: "resets", change: func(_ *auditor, _ *Cell, m *measured) { m.errors[load.Reset], m.errors[load.Other] = 1, 1 }, reason: "2 requests were not answered, and may still have been in progress"},
		{name: "a refused connection", change: func(_ *auditor, _ *Cell, m *measured) { m.errors[load.Refused] = 1 }},
		{name: "a time-out, and all grabs have ended", drained: true, change: func(_ *auditor, _ *Cell, m *measured) { m.outcomes[grab.Timeout] = 1 }},
		{name: "a time-out without a ledger", change: noLedger, change2: func(_ *auditor, _ *Cell, m *measured) { m.outcomes[grab.Timeout] = 1 }},
		{name: "unsure without a ledger", change: noLedger, change2: func(_ *auditor, _ *Cell, m *measured) {
			m.unsure, m.hiding = []check.Pair{{Order: 1, Driver: 9}}, map[string]int{"http 500": 1}
		}, reason: "1 answer may hide a grab: http 500 1. There is no ledger to check"},
		{name: "unsure with a ledger", change: func(_ *auditor, _ *Cell, m *measured) { m.unsure = []check.Pair{{Order: 1, Driver: 9}} }},
		{name: "unreadable", change: func(_ *auditor, _ *Cell, m *measured) { m.unreadable = "every response was 200" }, reason: "every response was 200: "},
		{name: "no order was grabbed", change: func(_ *auditor, c *Cell, _ *measured) { c.OrdersGrabbed = new(0) }, vacuous: "no order was grabbed at all: 4 responses were grabbed, 6 responses were taken. Check that"},
		{name: "orders without a winner", change: func(_ *auditor, _ *Cell, m *measured) { m.unclaimed = []int64{8, 9} }, vacuous: "2 of 4 orders were reported as taken, but no driver was told that it had won"},
		{name: "orders without a told winner", change: func(_ *auditor, _ *Cell, m *measured) { m.unclaimed = []int64{1, 2} }},
		{name: "half served", change: func(_ *auditor, _ *Cell, m *measured) { m.requests = 20 }},
		{name: "less than half served", change: func(_ *auditor, _ *Cell, m *measured) { m.requests, m.errors["http 503"] = 21, 11 }, vacuous: "the targets served 10 of 21 requests, too few for a race: http 503 11" + ifLost},
		{name: "busy drivers are served", change: func(_ *auditor, _ *Cell, m *measured) { m.requests, m.outcomes[grab.Busy] = 30, 5 }},
		{name: "more winners told than named", change: func(_ *auditor, _ *Cell, m *measured) { m.told = append(m.told, check.Pair{Order: 1, Driver: 9}) }, counted: fromAnswers,
			note: ", according to the responses: more drivers were told that they had won than the ledger names, so the ledger may keep only one of them"},
		{name: "no ledger was read", change: func(_ *auditor, c *Cell, m *measured) {
			c.DoubleGrabs, m.told = nil, append(m.told, check.Pair{Order: 1, Driver: 9})
		}, counted: fromAnswers, note: ", according to the responses"},
		{name: "no ledger was read, and all won once", change: func(_ *auditor, c *Cell, _ *measured) { c.DoubleGrabs = nil }},
		{name: "a hidden double-grab", change: noLedger, change2: func(_ *auditor, c *Cell, m *measured) {
			c.DoubleGrabs, c.LowerBound, m.unsure, m.hiding = new(1), true, []check.Pair{{Order: 1, Driver: 9}}, map[string]int{"http 500": 1}
		}, reason: "1 answer may hide a grab", note: "; 1 answer may hide more of them"},
	} {
		au := &auditor{cfg: Config{}, fleet: fleet.New(fleet.Config{Instances: 2}, nil, 0), ledger: true}
		au.fleet.Ours, au.fleet.Foreign, au.fleet.Shape = false, true, target.Own
		c := Cell{Orders: 4, Fault: catalog.NoFault, CountedFrom: fromLedger, DoubleGrabs: new(0), OrdersGrabbed: new(4), PhantomGrabs: new(0), RepeatedRows: new(0)}
		if tt.faulty {
			c.Fault = catalog.Pause
		}
		m := measured{accounting: newAccounting(5, nil, target.Own)}
		for id := range int64(4) {
			m.told = append(m.told, check.Pair{Order: id, Driver: 1})
		}
		m.requests, m.outcomes[grab.Grabbed], m.outcomes[grab.Taken] = 10, 4, 6
		m.evidence = check.Evidence{Foreign: true, Ledger: check.Rows(m.told)}
		for _, change := range []func(*auditor, *Cell, *measured){tt.change, tt.change2} {
			if change != nil {
				change(au, &c, &m)
			}
		}
		reason := au.doubt(t.Context(), &c, &m, tt.drained)
		counted := tt.counted
		if counted == "" {
			counted = fromLedger
		}
		if !strings.HasPrefix(reason, tt.reason) || (reason == "") != (tt.reason == "") || !strings.HasSuffix(reason, tt.reasonEnds) || !strings.HasPrefix(m.vacuous, tt.vacuous) || (m.vacuous == "") != (tt.vacuous == "") || m.note != tt.note || c.CountedFrom != counted {
			t.Errorf("%s: %q, nothing shown: %q, note %q, counted from the %s; want %q, %q, %q, %s", tt.name, reason, m.vacuous, m.note, c.CountedFrom, tt.reason, tt.vacuous, tt.note, counted)
		}
	}
}

// TestPointsOfATrail checks which strike points a grab has, with and without renewals in the background.
func TestPointsOfATrail(t *testing.T) {
	calls := map[fault.Role][]control.Call{
		fault.Alone:   {{Phase: tap.Acquire, N: 1}, {Phase: tap.Acquire, N: 1}, {Phase: tap.Read, N: 1}, {Phase: tap.Renew, N: 1}, {Phase: tap.Claim, N: 1}},
		fault.Waiting: {{Phase: tap.Acquire, N: 1}, {Phase: tap.Read, N: 2}},
	}
	for _, renews := range []bool{false, true} {
		tr := ourTrail(calls)
		tr.renews = renews
		const want = "before acquire 1, after acquire 1, before read 1, after read 1, after read, before renew 1, after renew 1, before claim 1, after claim 1, " +
			"waiting: before acquire 1, waiting: after acquire 1, waiting: before read 2, waiting: after read 2"
		points := tr.points()
		background := slices.ContainsFunc(points, func(p fault.Point) bool { return p.Background && p.Phase != tap.Renew })
		renewals := slices.ContainsFunc(points, func(p fault.Point) bool { return p.Background && p.Phase == tap.Renew })
		if got := names(points); got != want || background || renewals != tr.renews {
			t.Errorf("renews %v: %s, background %v; want %s", tr.renews, got, renewals, want)
		}
	}
	tr := ourTrail(calls)
	for p, want := range map[fault.Point]int{pointAt(fault.Alone, tap.Acquire, true): 2, pointAt(fault.Alone, tap.Read, false): 1, pointAt(fault.Waiting, tap.Acquire, true): 1, {Point: fault.AfterRead}: 1} {
		if got := tr.callsAt(p); got != want {
			t.Errorf("%s: %d calls, want %d", p, got, want)
		}
	}
}

// TestLedgerIsHeld checks during which calls a transaction blocks the ledger: from its first write
// to that table until it ends.
func TestLedgerIsHeld(t *testing.T) {
	tr := trail{ledger: "wins"}
	for _, tt := range []struct {
		calls string // separated by semicolons
		want  string // for each call: h if the ledger is held
	}{
		{"mysql BEGIN;mysql INSERT wins;mysql UPDATE orders;mysql COMMIT;mysql SELECT wins", "-hh--"},
		{"mysql BEGIN;mysql UPDATE wins;mysql ROLLBACK;mysql SELECT wins", "-h--"},
		{"mysql BEGIN;mysql INSERT orders;mysql COMMIT", "---"},
		{"mysql BEGIN + INSERT wins + COMMIT;mysql INSERT wins + COMMIT;mysql COMMIT + INSERT wins", "--h"},
		{"mysql SELECT wins FOR UPDATE;mysql COMMIT", "h-"},
		{"postgres wins FOR UPDATE;postgres INSERT wins;postgres ROLLBACK", "-h-"},
		{"mysql SELECT orders FOR UPDATE;mysql DELETE wins", "-h"},
	} {
		got, held := "", false
		for _, name := range strings.Split(tt.calls, ";") {
			held = tr.holdsLedger(control.Call{Phase: tap.Phase(name), Target: tap.DB}, held)
			got += map[bool]string{true: "h", false: "-"}[held]
		}
		if got != tt.want {
			t.Errorf("ledger is held during %s: %s, want %s", tt.calls, got, tt.want)
		}
	}
}

// TestLongestTimeAfterAResponse checks for how long a request is assumed to make calls after its
// response. This must be the longest time of all recorded requests, in any order.
func TestLongestTimeAfterAResponse(t *testing.T) {
	call := func(p tap.Phase) control.Call { return control.Call{Phase: p, N: 1, Target: tap.DB} }
	late := func(d time.Duration) request {
		return request{calls: []control.Call{call("mysql SELECT orders")}, behind: []control.Call{call("mysql INSERT wins")}, listened: d}
	}
	for _, times := range [][]time.Duration{{time.Second, 3 * time.Second}, {3 * time.Second, time.Second}} {
		got, err := findTrail("", func(n int64) (request, error) { return late(times[n]), nil }, func(int64) ([]control.Call, error) { return nil, nil })
		if err != nil || got.callsAfterAnswer != 3*time.Second {
			t.Errorf("findTrail(%v): %v, %v", times, got.callsAfterAnswer, err)
		}
	}
}

// TestRenewalsAreListedOnce checks that only the first renewal is listed if a background task makes
// the renewals, because their number depends on time. Other calls must all stay.
func TestRenewalsAreListedOnce(t *testing.T) {
	call := func(p tap.Phase, n int) control.Call { return control.Call{Phase: p, N: n} }
	for _, renews := range []bool{false, true} {
		tr := trail{renews: renews, calls: map[fault.Role][]control.Call{
			fault.Alone:   {call(tap.Acquire, 1), call(tap.Acquire, 2), call(tap.Renew, 1), call(tap.Renew, 2), call(tap.Renew, 3)},
			fault.Waiting: {call(tap.Renew, 2), call(tap.Read, 1)},
		}}
		tr.renewOnce()
		alone, waiting := "acquire 1, acquire 2, renew 1, renew 2, renew 3", "renew 2, read 1"
		if renews {
			alone, waiting = "acquire 1, acquire 2, renew 1", "read 1"
		}
		for role, want := range map[fault.Role]string{fault.Alone: alone, fault.Waiting: waiting} {
			if got := catalog.Join(tr.calls[role], ", ", func(c control.Call) string { return fmt.Sprintf("%s %d", c.Phase, c.N) }); got != want {
				t.Errorf("renews %v, %q: %s, want %s", renews, role, got, want)
			}
		}
	}
}

// TestPartsOfReads checks which part of a grab each call of a service is. A database call before
// the write is a read, even after a further call to the lock server. A call to the lock server
// between the work and the write counts as a renewal.
func TestPartsOfReads(t *testing.T) {
	var calls []control.Call
	for _, name := range []string{"redis SET lock:*", "mysql SELECT drivers", "mysql SELECT orders", "redis GET lock:*", "mysql BEGIN", "mysql INSERT wins", "mysql COMMIT", "redis DEL lock:*"} {
		server := "redis"
		if strings.HasPrefix(name, "mysql") {
			server = tap.DB
		}
		calls = append(calls, control.Call{Phase: tap.Phase(name), N: 1, Target: server})
	}
	got := catalog.Join(trailOf(calls, "").service.parts, " ", func(p tap.Phase) string { return string(p) })
	if want := "acquire read work renew read claim claim release"; got != want {
		t.Errorf("the parts are %s, want %s", got, want)
	}
}

// TestWinnerAsksAgain checks that a winner's request is repeated only if nothing else can show that
// the orders were new.
func TestWinnerAsksAgain(t *testing.T) {
	t.Parallel()
	for bits := range 1 << 5 {
		has := func(n int) bool { return bits>>n&1 != 0 }
		m, au, first := modelAuditor(t) // in this model, each driver of an open order wins
		a := newAccounting(1, nil, target.Own)
		if au.ledger = has(0); has(1) {
			au.cfg.Target.FirstOrder = 1
		}
		if has(2) {
			au.cfg.Target.Open = new(target.Opening)
		}
		if has(3) {
			a.told = []check.Pair{{Order: first, Driver: 7}}
		}
		if has(4) {
			a.told = append(a.told, check.Pair{Order: first + 1, Driver: 7})
		}
		asks := !has(0) && has(1) && !has(2) && (has(3) || has(4))
		why := au.askAgain(t.Context(), a)
		if (len(m.asked) > 0) != asks || (why != "") != (asks && has(3)) || why != "" && !strings.HasPrefix(why, fmt.Sprintf("driver 7 asked again and was told again that it had won order %d, ", first)) {
			t.Errorf("ledger %v, first order %v, opens %v, told %v: asked %v, %q", has(0), has(1), has(2), a.told, m.asked, why)
		}
	}
}
