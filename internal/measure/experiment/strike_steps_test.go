package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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

// TestExpiryIsAwaited checks when contenders come only after the lease. A fault that ends within the lease never makes
// them late. Otherwise, they are late if the lock does not make them wait: for our own strategies, this is known. For a
// service, every order of the injection must be the second one of its point.
func TestExpiryIsAwaited(t *testing.T) {
	const lease = time.Second
	synctest.Test(t, func(t *testing.T) {
		for bits := range 1 << 4 {
			has := func(n int) bool { return bits>>n&1 != 0 }
			for _, contendFor := range []float64{0.9, 1, 1.5} {
				for _, excludes := range []catalog.Exclusion{catalog.NoExclusion, catalog.PerProcess, catalog.Global} {
					in := &injection{
						traits: traits{unknownLock: has(0)}, cell: &Cell{}, responses: newResponses(), ttl: lease, w: &worker{fleet: &fleet.Fleet{}},
						strategy: lock.Strategy{Excludes: excludes}, fault: fault.Fault{ContendFor: contendFor},
					}
					if has(1) {
						in.trail.calls = map[fault.Role][]control.Call{fault.Waiting: make([]control.Call, 1)}
					}
					first, second := &contest{}, &contest{}
					for n, c := range []*contest{first, second} {
						if has(2 + n) {
							c.variation = affectedFirst
						}
					}
					late := excludes == catalog.Global && !has(1)
					if has(0) {
						late = has(2) && has(3)
					}
					want := time.Duration(0)
					if late && contendFor >= 1 {
						want = lease * 11 / 10
					}
					began := time.Now()
					if err := newStrike(in, first, second).contention().awaitExpiry(t.Context()); err != nil || time.Since(began) != want {
						t.Errorf("%04b, contend for %v leases, %v: waited for %v, want %v: %v", bits, contendFor, excludes, time.Since(began), want, err)
					}
				}
			}
		}
	})
}

// TestContendersStart checks what a strike records when it sends the contenders. The contest begins before the wait for
// the lease. The ledger of a service is read before any contender can overwrite its row.
func TestContendersStart(t *testing.T) {
	const lease, before = time.Second, time.Millisecond
	for bits := range 1 << 2 {
		ours, stopped := bits&1 != 0, bits&2 != 0
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			in := &injection{
				traits: traits{liveLedger: true}, cell: &Cell{}, responses: newResponses(), bursts: load.NewBursts(), ttl: lease,
				strategy: lock.Strategy{Excludes: catalog.Global}, fault: fault.Fault{ContendFor: 1.5, Course: fault.AtOnce},
			}
			reads, sent := 0, 0
			in.w = &worker{fleet: &fleet.Fleet{Ours: ours}, ledger: true, orders: ledgerFunc(func() ([]order.Grab, error) {
				reads++
				sent = in.bursts.Requests()
				return nil, nil
			})}
			c := &contest{order: 7, contenders: []load.Request{{Order: 7, Driver: 2}, {Order: 7, Driver: 3}}}
			held := began.Add(lease * 11 / 10)
			if stopped {
				held = began.Add(-before)
				c.heldSince = held
			}
			if err := newStrike(in, c).contention().send(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !c.contendedSince.Equal(began) || !c.heldSince.Equal(held) || in.bursts.Requests() != 2 || sent != 0 || (reads > 0) == ours {
				t.Errorf("ours %v, stopped %v: contended since %v, held since %v, want %v and %v; %d requests, %d of them before the last of %d reads",
					ours, stopped, c.contendedSince, c.heldSince, began, held, in.bursts.Requests(), sent, reads)
			}
		})
	}
}

// TestEndOfTheContest checks how long a strike waits for its contenders, in different states of one order.
func TestEndOfTheContest(t *testing.T) {
	const lease = time.Second
	const usually, longer = lease * 3 / 2, lease * 5 / 2
	other := &fleet.Instance{URL: "http://other"}
	pending := func(_ *injection, c *contest) {
		c.contenders = []load.Request{{Target: other.URL, Order: 7, Driver: 2}}
	}
	answers := func(outcome grab.Outcome) func(*injection, *contest) {
		return func(in *injection, c *contest) {
			pending(in, c)
			in.responses.add(c.contenders[0], response{outcome, time.Now(), time.Now()})
		}
	}
	type change = func(*injection, *contest)
	unknown := func(in *injection, _ *contest) { in.traits.unknownLock = true }
	locksNone := func(in *injection, _ *contest) { in.strategy.Excludes = catalog.NoExclusion }
	gaveUp := func(_ *injection, c *contest) { c.gaveUp = true }
	stops := func(_ *injection, c *contest) { c.contenderHeldSince = time.Now() }
	freed := func(_ *injection, c *contest) { c.contenderFreed = true }
	competed := func(_ *injection, c *contest) { c.endedInTime = true } // then a refusal at any time counts
	wins := func(driver int64) change {
		return func(in *injection, _ *contest) {
			in.w.orders = ledgerFunc(func() ([]order.Grab, error) { return []order.Grab{{Order: 7, Driver: driver}}, nil })
		}
	}
	for name, tt := range map[string]struct {
		changes []change
		want    time.Duration
	}{
		"pending":                           {[]change{pending}, usually},
		"pending, unknown lock":             {[]change{unknown, pending}, usually},
		"given up":                          {[]change{unknown, pending, gaveUp}, 0},
		"failed":                            {[]change{answers(grab.Failed)}, usually},
		"failed, unknown lock":              {[]change{unknown, answers(grab.Failed)}, longer},
		"failed, unknown lock, none known":  {[]change{unknown, locksNone, answers(grab.Failed)}, longer},
		"failed, no lock":                   {[]change{locksNone, answers(grab.Failed)}, 0},
		"pending, no lock":                  {[]change{locksNone, pending}, usually},
		"refused in time":                   {[]change{answers(grab.Taken), competed}, 0},
		"refused in time, unknown lock":     {[]change{unknown, answers(grab.Taken), competed}, usually},
		"stopped":                           {[]change{pending, stops}, 0},
		"stopped and freed":                 {[]change{pending, stops, freed}, usually},
		"a contender wins":                  {[]change{pending, wins(2)}, 0},
		"the affected driver wins":          {[]change{answers(grab.Failed), wins(1)}, 0},
		"the affected driver wins, pending": {[]change{pending, wins(1)}, usually},
		"another driver wins":               {[]change{pending, wins(9)}, usually},
	} {
		synctest.Test(t, func(t *testing.T) {
			in := &injection{
				traits: traits{liveLedger: true}, cell: &Cell{}, responses: newResponses(), bursts: load.NewBursts(), ttl: lease, other: other, trail: ourTrail(nil),
				w:        &worker{fleet: &fleet.Fleet{Ours: true}, ledger: true, orders: ledgerFunc(func() ([]order.Grab, error) { return nil, nil })},
				strategy: lock.Strategy{Excludes: catalog.Global}, fault: fault.Fault{ContendFor: 1.5, Course: fault.AfterHeal},
			}
			c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, retriedAt: time.Now().Add(time.Hour)} // sends no more drivers
			for _, change := range tt.changes {
				change(in, c)
			}
			began := time.Now()
			err := newStrike(in, c).contention().await(t.Context())
			if took := time.Since(began); err != nil || took < tt.want || took > tt.want+2*pollInterval {
				t.Errorf("%s: waited for %v, want %v: %v", name, took, tt.want, err)
			}
		})
	}
}

// TestMoreDriversCompete checks when a strike sends another driver although the contenders have their responses: only
// if the fault outlasts the lease, and no contender is still waiting at the other instance.
func TestMoreDriversCompete(t *testing.T) {
	for bits := range 1 << 6 {
		has := func(n int) bool { return bits>>n&1 != 0 }
		synctest.Test(t, func(t *testing.T) {
			in := &injection{
				traits: traits{unknownLock: has(0)}, cell: &Cell{}, responses: newResponses(), bursts: load.NewBursts(), ttl: time.Second, w: &worker{fleet: &fleet.Fleet{}},
				other:    &fleet.Instance{URL: "http://other", AwaitsDatabase: func(time.Duration) bool { return true }},
				strategy: lock.Strategy{Excludes: catalog.Global}, fault: fault.Fault{ContendFor: 0.9, Course: fault.AtOnce, Lasts: has(2)},
			}
			if has(1) {
				in.fault.ContendFor = 1.1
			}
			c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}, contenders: []load.Request{{Target: in.other.URL, Order: 7, Driver: 2}}}
			if !has(3) {
				in.responses.add(c.contenders[0], response{outcome: grab.Failed})
			}
			if has(4) {
				in.responses.add(c.affected, response{outcome: grab.Grabbed})
			}
			step, want := contending(contention.keepCompeting), has(0) && has(1) && !has(2) && !has(3)
			if has(5) {
				step, want = (*strike).awaitQuiet, has(1) && !has(3) && !has(4)
			}
			if err := step(newStrike(in, c), t.Context()); err != nil || (in.bursts.Requests() > 0) != want || len(c.contenders) != 1+in.bursts.Requests() {
				t.Errorf("%06b: sent %d drivers, want some: %v: %v", bits, in.bursts.Requests(), want, err)
			}
		})
	}
}

// TestWaitsForOthers checks when a missing write is explained by the contenders' own locks: only if the instance waits for
// the database, and the fault hits neither the database nor nothing at all.
func TestWaitsForOthers(t *testing.T) {
	for bits := range 1 << 4 {
		has := func(n int) bool { return bits>>n&1 != 0 }
		in := &injection{w: &worker{}, cell: &Cell{}, ttl: time.Second, struck: &fleet.Instance{}, fault: fault.Fault{Freezes: has(0)}}
		if has(1) {
			in.fault.Hits = lock.Redis
		}
		if has(2) {
			in.struck.AwaitsDatabase = func(time.Duration) bool { return has(3) }
		}
		if got, want := newStrike(in).contention().gate().waitsForOthers(), (has(0) || has(1)) && has(2) && has(3); got != want {
			t.Errorf("%04b: %v, want %v", bits, got, want)
		}
	}
}

// TestEndOfTheWindow heals a fault once more after its window has ended. Only a heal that undoes something moves the end.
func TestEndOfTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for changes := range 3 {
			in := &injection{cell: &Cell{}, began: time.Now()}
			s := newStrike(in, &contest{struck: true})
			if err := s.openWindow(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.closeWindow()
			for range changes {
				s.heals = append(s.heals, stack.Heal(func() error { time.Sleep(time.Millisecond); return nil }))
			}
			time.Sleep(time.Second)
			err := s.heal(t.Context())
			if got, moved := value(in.cell.Strikes[0].ToMS), changes > 0; err != nil || (got >= 1000) != moved || moved && got != millis(time.Since(in.began)) {
				t.Errorf("%d changes undone: the window ends after %v ms: %v", changes, got, err)
			}
		}
	})
}

// TestBreakpointsThatStay checks that a strike reports each breakpoint that it could not remove. One that is already gone
// is no error, whatever its instance calls that.
func TestBreakpointsThatStay(t *testing.T) {
	failed := errors.New("no answer")
	for n, tt := range []struct {
		err  error
		gone bool
	}{
		{nil, true}, {failed, false}, {control.ErrNoHold, true}, {fmt.Errorf("instance: %w", control.ErrNoHold), true},
		{&fleet.StatusError{Code: http.StatusNotFound}, true}, {&fleet.StatusError{Code: http.StatusInternalServerError}, false},
	} {
		instance := func(fails bool) *fleet.Instance {
			return &fleet.Instance{Client: func(_ context.Context, method, _ string, _, answer any) error {
				if method != http.MethodDelete {
					return json.Unmarshal([]byte(`{"a":[]}`), answer)
				}
				if fails {
					return tt.err
				}
				return nil
			}}
		}
		for _, at := range []string{"struck", "other"} {
			in := &injection{struck: instance(at == "struck"), other: instance(at == "other"), trail: ourTrail(nil), cell: &Cell{}}
			if err := in.breakpoints().clear(t.Context()); (err == nil) != (tt.err == nil) {
				t.Errorf("case %d: the instance %s fails to remove a breakpoint: %v", n, at, err)
			}
		}
		in := &injection{struck: instance(true), other: instance(true), trail: ourTrail(nil), cell: &Cell{}}
		if err := in.breakpoints().remove(t.Context(), &contest{}, pointHold); (err == nil) != tt.gone || !tt.gone && !errors.Is(err, tt.err) {
			t.Errorf("case %d: got error %v, want %v", n, err, tt.err)
		}
	}
}

// TestRepliesAreLostFirst lets an affected driver continue. If the fault loses replies, the stopped call must be released
// without its reply before the breakpoint is removed, because the removal would deliver the reply.
func TestRepliesAreLostFirst(t *testing.T) {
	for _, loses := range []bool{false, true} {
		var did []string
		struck := &fleet.Instance{Client: func(_ context.Context, method, path string, _, answer any) error {
			switch {
			case method == http.MethodDelete && strings.Contains(path, pointHold):
				did = append(did, "remove")
			case strings.HasSuffix(path, "/release"):
				did = append(did, "lose")
			case method != http.MethodDelete:
				text, err := json.Marshal([]control.Held{{State: control.Waiting}})
				return errors.Join(err, json.Unmarshal(text, answer))
			}
			return nil
		}}
		in := &injection{struck: struck, other: struck, trail: ourTrail(nil), cell: &Cell{}, responses: newResponses(), prepared: fault.Prepared{Loses: loses}, w: &worker{}}
		want := []string{"remove"}
		if loses {
			want = []string{"lose", "remove"}
		}
		if err := newStrike(in, &contest{order: 7}).releaseAffected(t.Context()); err != nil || !slices.Equal(did, want) {
			t.Errorf("loses replies %v: did %q, want %q: %v", loses, did, want, err)
		}
	}
}

// TestWhereAMissedDriverWas checks the explanation of an injection that did not reach its driver.
func TestWhereAMissedDriverWas(t *testing.T) {
	for calls := range 3 {
		for _, answered := range []bool{false, true} {
			in := &injection{responses: newResponses()}
			c := &contest{order: 7, affected: load.Request{Order: 7, Driver: 1}}
			m := heldCalls{struck: map[string][]control.Held{}}
			want := "before its first call"
			for n := range calls {
				h := control.Held{}
				h.Call.Phase = []tap.Phase{tap.Acquire, tap.Read}[n]
				m.struck[holdName(callsHold, c)] = append(m.struck[holdName(callsHold, c)], h)
				want = "after " + string(h.Call.Phase)
			}
			if answered {
				in.responses.add(c.affected, response{})
				want = "the grab had ended " + want
			} else {
				want = "the grab was waiting " + want + ": if it was only slow, set a longer -ttl or -lease"
			}
			if got := (approach{responses: in.responses}).whereItWas(c, m); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}
