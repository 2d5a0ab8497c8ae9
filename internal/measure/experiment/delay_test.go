package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
)

// TestLateRepliesOfAModel delays the reply that grants the lock to a driver of a user's service, until its lease has
// ended. Each verdict must be true, however long the other drivers wait for the lock.
func TestLateRepliesOfAModel(t *testing.T) {
	t.Parallel()
	f, err := fault.Find(catalog.Latency)
	if err != nil {
		t.Fatal(err)
	}
	for kind, tt := range map[string]struct {
		lock    *model
		verdict catalog.Verdict
		reason  string
	}{
		"believes the late reply":    {&model{}, catalog.Unsafe, "1 of 3 orders was grabbed more than once"},
		"guards its write":           {&model{guarded: true}, catalog.Safe, ""},
		"checks its lease":           {&model{checks: true}, catalog.Safe, ""},
		"its lock lives longer":      {&model{outlives: true}, catalog.Unknown, "no other driver got past the lock while a driver was stopped"},
		"drivers wait for a message": {&model{queues: true}, catalog.Unsafe, "1 of 3 orders was grabbed more than once"},
	} {
		for _, wait := range []float64{0, 0.9, 1, 1.1, 4} { // in leases
			t.Run(fmt.Sprintf("%s, waits %v", kind, wait), func(t *testing.T) {
				t.Parallel()
				tryLeases(t, 800*time.Millisecond, func(ttl time.Duration) (wrong []string) {
					m := tt.lock.again(ttl)
					m.wait = time.Duration(wait * float64(ttl))
					c := m.injectService(t, f, nil)
					if c.Verdict != tt.verdict || !strings.HasPrefix(c.Reason, tt.reason) {
						wrong = append(wrong, fmt.Sprintf("%s: %s; want %s: %s", c.Verdict, c.Reason, tt.verdict, tt.reason))
					}
					return wrong
				})
			})
		}
	}
}

// late returns the injection of a delayed reply into a user's service with a lock in Redis, and an order whose driver
// waits for this reply. calls returns the calls that other drivers have made for the order.
func late(t *testing.T, lease time.Duration, calls func() []control.Held) (*injection, *contest) {
	t.Helper()
	f, err := fault.Find(catalog.Latency)
	if err != nil {
		t.Fatal(err)
	}
	in := &injection{
		traits: traits{reconnects: true, unknownLock: true}, ttl: lease, fault: f, cell: &Cell{Struck: new(1)}, responses: newResponses(), bursts: load.NewBursts(),
		struck: holding(nil, nil), other: &fleet.Instance{URL: "http://other"}, w: &worker{fleet: &fleet.Fleet{}},
		trail: trailOf([]control.Call{
			{Phase: "redis SET lock:* NX PX", N: 1, Target: "redis"}, {Phase: "mysql SELECT orders", N: 1, Target: tap.DB}, {Phase: "mysql INSERT wins", N: 1, Target: tap.DB}, {Phase: "redis DEL lock:*", N: 1, Target: "redis"},
		}, ""),
	}
	in.other.Client = func(_ context.Context, _, _ string, _, answer any) error {
		body, err := json.Marshal(map[string][]control.Held{"calls-7": calls()})
		return errors.Join(err, json.Unmarshal(body, answer))
	}
	point := fault.Point{Point: control.Point{Phase: "redis SET lock:* NX PX", N: 1}, Part: tap.Acquire}
	return in, &contest{order: 7, point: point, struck: true, affected: load.Request{Order: 7, Driver: 1}, heldSince: time.Now(), contendedSince: time.Now()}
}

// TestDriversInTheWindow checks which drivers show that a service is safe although a reply came after its lease. They must
// have got past the lock before the reply, or must have been refused in this time. A driver that was refused before the
// lease had ended, or that came after the reply, shows nothing.
func TestDriversInTheWindow(t *testing.T) {
	const lease = time.Second
	began := time.Unix(1000, 0)
	ms := func(n int) time.Time { return began.Add(time.Duration(n) * time.Millisecond) }
	for name, tt := range map[string]struct {
		contender response
		window    window
		writes    bool // whether the affected driver writes after its late reply
		inTime    bool // whether it has written or given up before its lease ended
		noExpiry  bool
		endless   bool // whether the key of the lock never expires
		gaveUp    int  // when the client gave up the delayed call, in ms; 0 if it did not
		claims    bool // whether the affected driver was seen to send its write
		renewed   int  // when the lock was last renewed, in ms; 0 if never
		want      bool
	}{
		"passed":                     {contender: response{grab.Taken, ms(10), ms(1400)}, window: window{passed: true}, writes: true, want: true},
		"passed, and won":            {contender: response{grab.Grabbed, ms(10), ms(1400)}, window: window{passed: true}, want: true},
		"passed, and sold the order": {contender: response{grab.Taken, ms(10), ms(1400)}, window: window{passed: true, sold: true}},
		"passed and sold, but the other one wrote": {contender: response{grab.Taken, ms(10), ms(1400)}, window: window{passed: true, sold: true}, claims: true, want: true},
		"found the order taken, but it is sold":    {contender: response{grab.Taken, ms(1050), ms(1060)}, window: window{sold: true}},
		"refused by a renewed lock":                {contender: response{grab.Busy, ms(10), ms(1290)}, renewed: 1200, writes: true, want: true},
		"refused, but it was renewed too early":    {contender: response{grab.Busy, ms(10), ms(1290)}, renewed: 300, writes: true},
		"refused by a lock without renewals":       {contender: response{grab.Busy, ms(10), ms(1290)}, writes: true},
		"renewed, but another driver sold it":      {contender: response{grab.Grabbed, ms(10), ms(1290)}, window: window{sold: true}, renewed: 1200},
		"gave up as the lease ended":               {contender: response{grab.Busy, ms(0), ms(1010)}, writes: true},
		"gave up long after the lease":             {contender: response{grab.Busy, ms(0), ms(2000)}, writes: true},
		"gave up, and no one wrote":                {contender: response{grab.Busy, ms(0), ms(1010)}},
		"waited until the order was sold":          {contender: response{grab.Taken, ms(0), ms(1320)}, writes: true},
		"came after the reply":                     {contender: response{grab.Taken, ms(1310), ms(1320)}, writes: true},
		"came after the reply, and was refused":    {contender: response{grab.Busy, ms(1310), ms(2320)}, writes: true},
		"won, but too late":                        {contender: response{grab.Grabbed, ms(0), ms(1320)}},
		"found the order taken in the window":      {contender: response{grab.Taken, ms(1050), ms(1060)}, writes: true, want: true},
		"was refused in the window":                {contender: response{grab.Busy, ms(1050), ms(1060)}, want: true},
		"was refused in the window, and one wrote": {contender: response{grab.Busy, ms(1050), ms(1060)}, writes: true},
		"was refused by a key that stays":          {contender: response{grab.Busy, ms(1050), ms(1060)}, writes: true, endless: true, want: true},
		"asked in the window":                      {contender: response{grab.Busy, ms(0), ms(2000)}, window: window{tried: true}, want: true},
		"asked in the window, and one wrote":       {contender: response{grab.Busy, ms(0), ms(2000)}, window: window{tried: true}, writes: true},
		"failed in the window":                     {contender: response{grab.Failed, ms(1050), ms(1060)}},
		"in time":                                  {contender: response{grab.Taken, ms(0), ms(10)}, writes: true, inTime: true, want: true},
		"won, and the client gave up early":        {contender: response{grab.Grabbed, ms(0), ms(1320)}, gaveUp: 300, want: true},
		"won, and the client gave up late":         {contender: response{grab.Grabbed, ms(0), ms(1320)}, gaveUp: 1000},
		"waits for a lock that does not expire":    {contender: response{grab.Taken, ms(0), ms(1400)}, writes: true, noExpiry: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			in, c := late(t, lease, nil)
			in.w.cfg.Target.NoExpiry = tt.noExpiry
			c.heldSince, c.contendedSince, c.openUntil, c.window, c.endedInTime = ms(-100), ms(0), ms(1300), tt.window, tt.inTime
			c.reachedClaim, c.window.closedAt = tt.claims, ms(1300)
			if tt.renewed > 0 {
				c.renewedAt = ms(tt.renewed)
			}
			c.contenders, c.lateDriver = []load.Request{{Order: 7, Driver: 2}}, load.Request{Order: 7, Driver: 3}
			if tt.gaveUp > 0 {
				c.movedOnAt = ms(tt.gaveUp)
			}
			if tt.endless {
				in.trail.service.endless, c.tries = []string{"lock:*"}, []control.Call{{Phase: "redis SET lock:* NX PX", N: 1}}
			}
			in.responses.add(c.contenders[0], tt.contender)
			in.responses.add(c.lateDriver, response{grab.Taken, ms(3000), ms(3010)})
			affected, evidence := response{grab.Busy, ms(-110), ms(1305)}, check.Evidence{}
			if tt.writes {
				affected.outcome, evidence.Ledger = grab.Failed, []order.Grab{{Order: 7, Driver: 1}} // a service may fail after its write
			}
			in.responses.add(c.affected, affected)
			if got := (judgement{in: in, evidence: evidence}).competed(c); got != tt.want {
				t.Errorf("competed: %v, want %v", got, tt.want)
			}
			evidence.FromAnswers, evidence.Ledger = true, nil
			if evidence.Unsure = []check.Pair{{Order: 7, Driver: 1}}; !tt.writes {
				evidence.Unsure = nil
			}
			if got := (judgement{in: in, evidence: evidence}).competed(c); got != tt.want {
				t.Errorf("without a ledger, competed: %v, want %v", got, tt.want)
			}
		})
	}
}

// TestDelayEndsWhenOthersHavePassed checks when the delay of replies ends in a user's service. It must last until another
// driver has got past the lock after the lease, but neither shorter nor much longer than a quarter of a lease. Meanwhile,
// fresh drivers must come, even if others still wait. A lock that cannot expire needs no such drivers.
func TestDelayEndsWhenOthersHavePassed(t *testing.T) {
	const lease = time.Second
	for name, tt := range map[string]struct {
		passes   time.Duration // when another driver gets past the lock; 0 if none does
		noExpiry bool
		least    time.Duration // when the delay ends
		fresh    int           // how many fresh drivers come
	}{
		"before the lease ends": {passes: lease / 2, least: lease * 5 / 4},
		"soon":                  {passes: lease * 9 / 8, least: lease * 5 / 4, fresh: 2},
		"late":                  {passes: lease * 3 / 2, least: lease * 3 / 2, fresh: 5},
		"never":                 {least: lease * 7 / 4, fresh: 7},
		"cannot pass":           {noExpiry: true, least: lease * 5 / 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var in *injection
				var c *contest
				began := time.Now()
				in, c = late(t, lease, func() []control.Held {
					c.othersPassed = tt.passes > 0 && time.Since(began) >= tt.passes
					return nil
				})
				in.w.cfg.Target.NoExpiry = tt.noExpiry
				c.contenders = []load.Request{{Order: 7, Driver: 2, Target: in.other.URL}} // waits for the lock
				s, healed, fresh := newStrike(in, c), time.Duration(0), 0
				s.heals = append(s.heals, func() error { healed, fresh = time.Since(began), len(c.contenders)-1; return nil })
				if err := s.awaitReplies(t.Context()); err != nil {
					t.Fatal(err)
				}
				if healed < tt.least || healed > tt.least+lease/20 || fresh != tt.fresh {
					t.Errorf("the delay ended after %v, with %d fresh drivers; want %v and %d", healed, fresh, tt.least, tt.fresh)
				}
				if passed := tt.passes > 0; c.window.passed != passed || c.window.closedAt.IsZero() {
					t.Errorf("%+v", c.window)
				}
			})
		})
	}
}

// TestCallsInTheWindow checks that only a call for the lock counts as a try, and only if it was made after the lease had
// ended.
func TestCallsInTheWindow(t *testing.T) {
	const lease = time.Second
	for name, tt := range map[string]struct {
		call control.Call
		at   time.Duration
		want bool
	}{
		"for the lock":         {control.Call{Phase: "redis SET lock:* NX PX", N: 1, Target: "redis"}, lease * 9 / 8, true},
		"before the lease end": {control.Call{Phase: "redis SET lock:* NX PX", N: 1, Target: "redis"}, lease * 7 / 8, false},
		"after the reply":      {control.Call{Phase: "redis SET lock:* NX PX", N: 1, Target: "redis"}, lease * 15 / 8, false},
		"for the database":     {control.Call{Phase: "mysql SELECT orders", N: 1, Target: tap.DB}, lease * 9 / 8, false},
		"for another key":      {control.Call{Phase: "redis SET cache:* NX", N: 1, Target: "redis"}, lease * 9 / 8, false},
		"a release":            {control.Call{Phase: "redis DEL lock:*", N: 1, Target: "redis"}, lease * 9 / 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				in, c := late(t, lease, func() (calls []control.Held) {
					if time.Since(began) >= tt.at {
						calls = append(calls, control.Held{Call: tt.call})
					}
					return calls
				})
				s := newStrike(in, c)
				s.heals = append(s.heals, func() error { in.responses.add(c.affected, response{grab.Failed, c.heldSince, time.Now()}); return nil })
				if err := s.awaitReplies(t.Context()); err != nil || c.window.tried != tt.want {
					t.Errorf("tried: %v, want %v (%v)", c.window.tried, tt.want, err)
				}
			})
		})
	}
}

// TestLastUnitIsStopped checks which driver of a user's service stops before its write while a reply is late. It must be the
// one who would sell the last unit, because the affected driver may otherwise find the order sold.
func TestLastUnitIsStopped(t *testing.T) {
	for units := 1; units <= 3; units++ {
		in, c := late(t, time.Second, nil)
		c.units, c.contenders = units, []load.Request{{Order: 7, Driver: 2}, {Order: 7, Driver: 3}, {Order: 7, Driver: 4}}
		stops := 0
		for _, h := range in.breakpoints().of(c) {
			if h.kind == contenderHold {
				stops = h.At.N
			}
		}
		if stops != units {
			t.Errorf("%d units: call %d stops", units, stops)
		}
		for wrote := range 4 {
			claimed := func(r load.Request) bool { return r.Driver < 2+int64(wrote) }
			g := gate{holds: in.breakpoints(), units: units}
			if got, want := g.arePast(c, 1, claimed), wrote+1 >= units; got != want {
				t.Errorf("%d units, %d have written: arePast: %v, want %v", units, wrote, got, want)
			}
		}
	}
}

// TestRenewalsOfALateDriver checks which calls show that a lock is still renewed while a reply is late.
func TestRenewalsOfALateDriver(t *testing.T) {
	const renew, beat = "redis PEXPIRE lock:*", "redis PEXPIRE driver:*"
	in, c := late(t, time.Second, nil)
	in.trail.service.renewal = []control.Call{{Phase: renew, N: 1, Target: "redis"}, {Phase: beat, N: 1, Target: "redis"}}
	c.callsBefore = 2
	call := func(phase tap.Phase) control.Held {
		return control.Held{Call: control.Call{Phase: phase, Target: "redis"}}
	}
	var held []control.Held
	for _, tt := range []struct {
		phase tap.Phase
		want  int // renewals after this call
	}{{"redis SET lock:* NX PX", 0}, {renew, 0}, {"redis GET lock:*", 0}, {beat, 0}, {renew, 1}, {renew, 2}} { // a pipeline sent the first two calls
		held = append(held, call(tt.phase))
		m := heldCalls{struck: map[string][]control.Held{holdName(callsHold, c): held}}
		if got := m.renewalsOf(c, in.trail); got != tt.want {
			t.Errorf("%v: %d renewals, want %d", held, got, tt.want)
		}
	}
}

// TestWindowAfterTheDelay checks that a driver who passes after the end of the delay counts only if the ledger shows that the
// affected driver had not written by then. A call from before the window does not count as a try.
func TestWindowAfterTheDelay(t *testing.T) {
	const lease = time.Second
	for _, tt := range []struct {
		counted       time.Duration // when the calls were counted
		closed, reads bool          // whether the delay has ended, and whether the ledger can be read
		want          bool
	}{
		{counted: lease * 9 / 8, want: true},
		{counted: lease * 9 / 8, closed: true},
		{counted: lease * 9 / 8, closed: true, reads: true, want: true},
		{counted: lease * 7 / 8, reads: true},
	} {
		in, c := late(t, lease, nil)
		in.w.ledger, in.traits.liveLedger = tt.reads, tt.reads
		c.contendedSince = time.Now().Add(-2 * lease)
		if c.othersPassed = true; tt.closed {
			c.window.closedAt = time.Now()
		}
		newStrike(in, c).contention().watchWindow(c, 1, c.contendedSince.Add(tt.counted))
		if c.window.passed != tt.want || c.window.opened != tt.want {
			t.Errorf("%+v: %+v", tt, c.window)
		}
	}
}
