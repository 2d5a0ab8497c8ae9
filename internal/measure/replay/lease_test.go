package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/check"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/target"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// testTTL is the TTL of the schedules in these tests.
const testTTL = 100 * time.Millisecond

// withoutServers returns an attempt with the actors A and B at two instances. It starts no process
// and no server. The parameter nodes is the number of lock servers that the attempt assumes.
func withoutServers(nodes int) *attempt {
	r := &replayer{
		Config: Config{
			Schedule: schedule.Schedule{Strategy: "setnx", TTL: testTTL, Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}}},
			Strategy: lock.Strategy{Name: "setnx"},
		},
		fleet: &fleet.Fleet{Instances: []*fleet.Instance{{ID: "8004"}, {ID: "8005"}}}, servers: map[string]*redis.Client{},
	}
	for n := range nodes {
		r.servers[fmt.Sprint("node-", n+1)] = nil
	}
	return &attempt{replayer: r, order: 7, actors: r.assign(), leases: r.newLeases(7)}
}

// TestLeaseLeftByDefinition compares the remaining time of a lease with its definition, for random
// grants to two actors on one to five servers. Only the last grant on each server counts. The lease
// lasts as long as a majority of the servers has it.
func TestLeaseLeftByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for n := range 3000 {
		nodes := []int{1, 3, 5}[n%3]
		a := withoutServers(nodes)
		for range r.IntN(9) {
			a.leases.grants = append(a.leases.grants, grant{
				actor: a.actors[r.IntN(2)], server: fmt.Sprint("node-", 1+r.IntN(nodes)), at: time.Duration(r.IntN(6)), until: time.Duration(r.IntN(20)),
			})
		}
		p, at := a.actors[r.IntN(2)], time.Duration(r.IntN(6))
		p.asked = time.Duration(r.IntN(20))
		last := map[string]grant{}
		for _, g := range a.leases.grants {
			if g.actor == p && g.at <= at {
				last[g.server] = g
			}
		}
		// lasts reports whether the lease lasts that long on a majority of all servers, or on every
		// server that has granted it.
		lasts := func(left time.Duration) bool {
			have := 0
			for _, g := range last {
				if g.until-at >= left {
					have++
				}
			}
			return 2*have > nodes || have == len(last)
		}
		got := a.leases.left(p, at)
		switch {
		case len(last) == 0:
			if want := p.asked + testTTL - at; got != want {
				t.Fatalf("without a grant, %d is left, want %d", got, want)
			}
		case !lasts(got) || lasts(got+1):
			t.Fatalf("%d is left at %d, which is not the largest time of a majority of %+v", got, at, last)
		}
	}
}

// TestLeaseExclusiveByDefinition checks two holds whose leases end at various times. The property
// is violated if the second actor gets a valid lease while the first is inside with a valid lease.
func TestLeaseExclusiveByDefinition(t *testing.T) {
	const entered, second = 2, 5                                              // when each actor got the lock
	for _, left := range []time.Duration{0, second - 1, second, second + 1} { // when the first actor released; 0 means never
		for _, until := range []time.Duration{second - 1, second, second + 1} {
			for _, taken := range []time.Duration{second, second + 1} {
				for _, same := range []bool{false, true} {
					for _, swapped := range []bool{false, true} {
						a := withoutServers(1)
						first, other := a.actors[0], a.actors[1]
						if same {
							other = first
						}
						a.leases.grants = []grant{{actor: first, server: "node-1", at: entered, until: until}}
						if !same {
							a.leases.grants = append(a.leases.grants, grant{actor: other, server: "node-1", at: second, until: taken})
						}
						holds := []check.Hold{
							{Span: check.Span{Driver: first.driver, Instance: first.in.ID, From: entered, To: left}, Closed: left > 0},
							{Span: check.Span{Driver: other.driver, Instance: other.in.ID, From: second}},
						}
						if swapped {
							slices.Reverse(holds)
						}
						want := !same && (left == 0 || left > second) && until > second && taken > second
						broken, why, err := a.leaseExclusive(t.Context(), check.Evidence{Record: &check.Record{Holds: holds}})
						if err != nil || broken != want {
							t.Errorf("left at %d, lease until %d, the other until %d, same actor %v: broken is %v (%s), %v", left, until, taken, same, broken, why, err)
						}
						if broken && !strings.HasPrefix(why, "B got the lock while A was inside, although A's lease had") {
							t.Errorf("the reason is %q", why)
						}
					}
				}
			}
		}
	}
}

// TestNotesOfCalls checks how each kind of call changes the recorded leases, depending on the
// server's keys before and after the call.
func TestNotesOfCalls(t *testing.T) {
	const since = 40 * time.Millisecond
	key := grab.Key("setnx", 7)
	held, renewed := map[string]entry{key: {"x", 50}}, map[string]entry{key: {"x", 90}}
	for _, phase := range []tap.Phase{tap.Acquire, tap.Read, tap.Claim, tap.Release, tap.Renew} {
		for name, state := range map[string][2]map[string]entry{"nothing": {nil, nil}, "the same": {held, held}, "appears": {nil, held}, "renewed": {held, renewed}, "disappears": {held, nil}} {
			for _, target := range []string{"node-1", schedule.DB} {
				a := withoutServers(2)
				old := []grant{{actor: a.actors[0], server: target}, {actor: a.actors[0], server: "node-2"}, {actor: a.actors[1], server: target}}
				a.leases.grants = slices.Clone(old)
				a.leases.note(a.actors[0], schedule.Step{Phase: string(phase), Target: target}, since, state[0], state[1])
				takes := phase == tap.Acquire || phase == tap.Renew
				if want := takes && target != schedule.DB; (a.actors[0].asked == since) != want || a.actors[1].asked != 0 {
					t.Errorf("%s at %s: asked at %d and %d", phase, target, a.actors[0].asked, a.actors[1].asked)
				}
				if got := a.leases.grants[len(old):]; takes && (name == "appears" || name == "renewed") {
					ttl := state[1][key].ttl
					if want := (grant{actor: a.actors[0], server: target, key: key, dump: "x", at: since, until: since + ttl}); len(got) != 1 || got[0] != want {
						t.Errorf("leases after %s, %s: %+v, want %+v", phase, name, got, want)
					}
				} else if len(got) > 0 {
					t.Errorf("%s, %s: %+v, want no grant", phase, name, got)
				}
				for i, g := range a.leases.grants[:len(old)] {
					if want := phase == tap.Release && i == 0 && (name == "appears" || name == "disappears"); g.released != want {
						t.Errorf("%s, %s at %s: lease %d of %s on %s is released: %v", phase, name, target, i, g.Actor.Name, g.server, g.released)
					}
				}
			}
		}
	}
}

// TestGrantedKeyByDefinition compares random pairs of readings of a server. A lease was granted
// under a key that is new, has another value or lasts longer. If there are several such keys,
// grantedKey must return the lock's main key. If that is not among them, it must return the key
// that expires first.
func TestGrantedKeyByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	a := withoutServers(1)
	names := []string{"a:{7}", grab.Key("setnx", 7), "z:{7}"}
	reading := func() map[string]entry {
		held := map[string]entry{}
		for _, name := range names {
			if r.IntN(3) > 0 {
				held[name] = entry{string(rune('x' + r.IntN(2))), time.Duration(1 + r.IntN(3))}
			}
		}
		return held
	}
	for range 3000 {
		before, after := reading(), reading()
		granted := maps.Clone(after)
		maps.DeleteFunc(granted, func(name string, is entry) bool {
			was, there := before[name]
			return there && was.dump == is.dump && was.ttl >= is.ttl
		})
		key, e, ok := a.leases.grantedKey(before, after)
		shortest := time.Duration(len(names) + 1)
		for _, g := range granted {
			shortest = min(shortest, g.ttl)
		}
		_, main := granted[names[1]]
		switch {
		case ok != (len(granted) > 0) || ok && (granted[key] != e || e.dump == ""), main && key != names[1], ok && !main && e.ttl != shortest:
			t.Fatalf("before the call %+v, after it %+v: got key %q with %+v", before, after, key, e)
		}
	}
}

// TestLeaseWithoutExpiry checks that a lease whose key never expires counts as a lease of one TTL.
func TestLeaseWithoutExpiry(t *testing.T) {
	a := withoutServers(1)
	a.leases.grant(a.actors[0], "node-1", "k", entry{"x", -1}, 5)
	a.leases.grant(a.actors[1], "node-1", "k", entry{"x", 1}, 5)
	if g := a.leases.grants[0]; !g.lacksExpiry || g.until != 5+testTTL {
		t.Errorf("%+v, want a lease of one TTL", g)
	}
	if g := a.leases.grants[1]; g.lacksExpiry || g.until != 6 {
		t.Errorf("%+v, want a lease of 1 ns", g)
	}
}

// TestTooSlow checks that an attempt is invalid if a lease ended earlier than the schedule allows.
// A lease that was released, is still running, or was meant to end must not make it invalid.
func TestTooSlow(t *testing.T) {
	for _, until := range []time.Duration{9, 10, 20, 21, 29, 30, 31} {
		for _, released := range []bool{false, true} {
			a := withoutServers(1)
			a.Schedule.Steps, a.Lines = []schedule.Step{{Kind: schedule.Begins, Actor: "B"}}, []int{12}
			a.clock, a.leases.expired = func() time.Duration { return 30 }, 20
			a.leases.grants = []grant{{actor: a.actors[1], server: "node-1", until: until, released: released}}
			err := a.inTime(0)
			if want := !released && until > 20 && until < 30; (err != nil) != want {
				t.Errorf("lease until %d, released %v: %v", until, released, err)
			}
			if err != nil && !strings.Contains(err.Error(), `at line 12, "B begins", B's lease on node-1 had already expired`) {
				t.Error(err)
			}
		}
	}
}

// TestNextLeaseEnd checks that leaseEnd waits for the running lease that ends first, in whatever
// order the leases were granted. It must return an error if there is none.
func TestNextLeaseEnd(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			a := withoutServers(1)
			a.clock = func() time.Duration { return time.Since(began) }
			a.leases.expired = 20 * time.Millisecond
			ends := []grant{
				{actor: a.actors[0], server: "node-1", until: 15 * time.Millisecond}, // the schedule has already waited for this end
				{actor: a.actors[0], server: "node-2", until: 30 * time.Millisecond, released: true},
				{actor: a.actors[1], server: schedule.DB, dump: "x", until: 50 * time.Millisecond},
				{actor: a.actors[1], server: "node-2", dump: "x", until: 70 * time.Millisecond},
			}
			for _, i := range order {
				a.leases.grants = append(a.leases.grants, ends[i])
			}
			seen, err := a.leaseEnd(t.Context(), move{})
			if took := time.Since(began); err != nil || seen != "B's lease has expired on db" || took <= 50*time.Millisecond || took > 55*time.Millisecond {
				t.Errorf("leaseEnd returned %q, %v after %v", seen, err, took)
			}
			a.leases.grants = a.leases.grants[:0]
			if _, err := a.leaseEnd(t.Context(), move{}); err == nil || err.Error() != "no lease is valid" {
				t.Errorf("without a lease: got error %v, want no lease is valid", err)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := a.pass(ended, move{Step: schedule.Step{Duration: time.Hour}}); err == nil {
				t.Error("pass returned no error although the replay was interrupted")
			}
		})
	}
}

// TestWinnersAreNamed checks that winners are named by their actors in row order, and by their
// driver ID if no actor matches.
func TestWinnersAreNamed(t *testing.T) {
	a := withoutServers(1)
	rows := []order.Grab{{Driver: 2, Instance: "8005"}, {Driver: 1, Instance: "8004"}, {Driver: 1, Instance: "8005"}, {Driver: 9, Instance: "8004"}}
	if got, want := a.actors.winners(rows), "B and A and driver 1 and driver 9"; got != want {
		t.Errorf("winners: %q, want %q", got, want)
	}
}

// TestDriversOfActors checks that actors for the same driver share a driver ID, and that all other
// actors have different IDs.
func TestDriversOfActors(t *testing.T) {
	a := withoutServers(1)
	a.Schedule.Actors = []schedule.Actor{{Name: "A", Instance: 2}, {Name: "B", Instance: 1}, {Name: "C", Instance: 1, As: "A"}, {Name: "D", Instance: 2, As: "B"}, {Name: "E", Instance: 1}}
	var got []string
	for _, p := range a.assign() {
		got = append(got, fmt.Sprint(p.Actor.Name, p.driver, "@", p.in.ID))
	}
	if want := []string{"A1@8005", "B2@8004", "C1@8004", "D2@8005", "E5@8004"}; !slices.Equal(got, want) {
		t.Errorf("drivers of the actors: %v, want %v", got, want)
	}
}

// TestEveryKindIsPlayedOrRefused checks that a replay refuses exactly the kinds of steps that real
// servers cannot follow. It tries each kind in the first step and in a later step.
func TestEveryKindIsPlayedOrRefused(t *testing.T) {
	refused := []schedule.Kind{
		schedule.ArrivesLate, schedule.SentTwice, schedule.MessageLost, schedule.MessageTwice, schedule.MessageLate, schedule.MessagesArrive,
		schedule.Cancelled, schedule.Hangs, schedule.FailsOver, schedule.Evicts, schedule.Down, schedule.Up,
		schedule.CutOff, schedule.Reaches, schedule.ClientClock, schedule.NodeClock,
	}
	cfg := withoutServers(1).Config
	cfg.Schedule.Property, cfg.Lines = "one-winner", []int{5, 9}
	for kind := schedule.Begins; kind <= schedule.NodeClock; kind++ {
		for i := range 2 {
			cfg.Schedule.Steps = []schedule.Step{{Kind: schedule.Begins, Actor: "A"}, {Kind: schedule.Begins, Actor: "B"}}
			cfg.Schedule.Steps[i].Kind = kind
			err := cfg.check()
			if (err != nil) != slices.Contains(refused, kind) || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("line %d,", cfg.Lines[i])) {
				t.Errorf("kind %d in step %d: %v", kind, i, err)
			}
		}
	}
}

// TestServerThatAStrategyLacks runs each kind of step on a server that the strategy does not use.
// The error must say that the step is impossible, so that another strategy can skip it.
func TestServerThatAStrategyLacks(t *testing.T) {
	for kind := range kinds {
		a := withoutServers(1)
		_, err := a.do(t.Context(), move{Step: schedule.Step{Kind: kind, Target: "redlock-1"}})
		if why, ok := errors.AsType[neverError](err); !ok || !strings.Contains(string(why), "no server redlock-1") {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
}

// TestAwaitsAllActors makes actors stop at a call, or end, at random times. awaitAll must wait
// until every actor has done so, but not longer than its timeout. It must not wait for actors that
// have not begun, or whose process is stopped.
func TestAwaitsAllActors(t *testing.T) {
	const within = time.Second
	r := rand.New(rand.NewPCG(12, 32))
	synctest.Test(t, func(t *testing.T) {
		for range 300 {
			a := withoutServers(0)
			began, want := time.Now(), time.Duration(0)
			for i, p := range a.actors {
				stops := time.Duration(r.IntN(200)) * pollInterval
				p.begun, p.stopped = r.IntN(4) > 0, r.IntN(4) == 0
				if ends := r.IntN(4) == 0; ends {
					time.AfterFunc(stops, func() { close(p.ended) })
				}
				if p.begun && !p.stopped {
					want = max(want, min(stops, within))
				}
				a.fleet.Instances[i].Client = func(_ context.Context, _, _ string, _, answer any) error {
					if time.Since(began) < stops {
						return nil
					}
					return json.Unmarshal(fmt.Appendf(nil, `[{"driver":%d,"state":%q}]`, p.driver, control.Waiting), answer)
				}
			}
			if err := a.awaitAll(t.Context(), within); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < want || took > want+pollInterval {
				t.Fatalf("waited for %v, want %v", took, want)
			}
			time.Sleep(2 * within)
		}
	})
}

// TestAttemptsOfOneDriver checks that a schedule is refused if it has two actors for the same driver at
// the same instance. The instance could not tell their calls apart.
func TestAttemptsOfOneDriver(t *testing.T) {
	for actors, refused := range map[string]bool{
		"A@1 B@2": false, "A@1 B@1": false, "A@1 B@2/A": false, "A@1 B@1/A": true, "A@1 B@2 C@1/A": true, "A@1 B@2 C@2/A": false,
		"A@1 B@2/A C@2/A": true, "A@1 B@2/A C@3/A": false, "A@1 B@2 C@2/A D@2/A": true, "A@1 B@2 C@1/B D@2/A": false,
	} {
		s, err := schedule.Parse("strategy setnx\nactors " + actors + "\nttl 3s\nproperty one-winner\n\nA begins\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := (Config{Schedule: s, Strategy: lock.Strategy{Name: "setnx"}}).check(); (err != nil) != refused {
			t.Errorf("%s: %v, want refused: %v", actors, err, refused)
		}
	}
}

// TestServerThatCannotBeRead checks a call whose target, Redis or the database, cannot be read
// before or after the call. The step must fail, because it is then unknown what the call changed.
func TestServerThatCannotBeRead(t *testing.T) {
	store := openStore(t)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, fails := range []string{"", "before", "after", schedule.DB} {
		server := miniredis.RunT(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
		defer client.Close()
		a := withoutServers(0)
		a.servers["redis"], a.store, a.clock = client, store, history.Clock
		p, step := a.actors[0], schedule.Step{Actor: "A", Kind: schedule.Call, Phase: "acquire", N: 1, Target: "redis"}
		if p.begun = true; fails == schedule.DB {
			step.Target = schedule.DB
		}
		if fails == "before" {
			server.SetError("LOADING")
		}
		p.in.Client = func(_ context.Context, _, path string, _, answer any) error {
			if !strings.HasSuffix(path, "/release") {
				return json.Unmarshal(fmt.Appendf(nil, `[{"order":7,"driver":1,"phase":"acquire","n":1,"target":%q,"state":"waiting"}]`, step.Target), answer)
			}
			if err := server.Set("lock:{7}", "A"); fails == "after" {
				server.SetError("LOADING")
			} else if err != nil {
				t.Error(err)
			}
			return nil
		}
		_, err := a.do(t.Context(), move{Step: step, actor: p})
		if grants := len(a.leases.grants); (err != nil) != (fails != "") || grants > 0 && fails != "" || grants == 0 && fails == "" {
			t.Errorf("fails %s: %d leases, %v", cmp.Or(fails, "never"), grants, err)
		}
	}
}

// openStore returns an empty store of orders. It closes the store when the test ends.
func openStore(t *testing.T) *order.SQL {
	t.Helper()
	store, err := order.Connect(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "orders.db"), order.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestStuckByDefinition probes orders with various numbers of units and rows. An order is stuck if the
// new driver does not get the lock. It is also stuck if the driver is told that the order is taken
// although a unit has no row.
func TestStuckByDefinition(t *testing.T) {
	store := openStore(t)
	status := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(status)
	}))
	defer service.Close()
	f, err := fleet.Attach(t.Context(), target.Target{URLs: []string{service.URL}, FirstOrder: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Instances[0].Client = func(context.Context, string, string, any, any) error { return nil }
	for stock := range 3 {
		units := max(stock, 1)
		for rows := range units + 1 {
			first, err := store.Create(t.Context(), 1, units)
			if err != nil {
				t.Fatal(err)
			}
			for n := range rows {
				c := order.Claim{Order: first, Driver: int64(n + 1), Token: fmt.Sprint("t", n), PerDriver: 9}
				if stock > 1 {
					c.Stock = int64(stock)
				}
				if err := store.Claim(t.Context(), c, order.Naive); err != nil {
					t.Fatal(err)
				}
			}
			for outcome, want := range map[int]bool{http.StatusOK: false, http.StatusConflict: rows < units, http.StatusLocked: true} {
				a := withoutServers(0)
				a.fleet, a.store, a.order, a.Schedule.Stock, a.Schedule.TTL = f, store, first, stock, 10*time.Millisecond
				status = outcome
				if broken, why, err := a.stuck(t.Context(), check.Evidence{}); err != nil || broken != want {
					t.Errorf("%d of %d units have a row, and a probe gets %d: stuck %v, %s, %v", rows, units, outcome, broken, why, err)
				}
			}
		}
	}
}

// TestEvidenceOfAnOrder sells units of two orders. The evidence must contain only the first order's
// rows and events. The property one-winner is violated if and only if there are more rows than
// units.
func TestEvidenceOfAnOrder(t *testing.T) {
	store := openStore(t)
	for stock := range 4 {
		units := max(stock, 1)
		first, err := store.Create(t.Context(), 2, units)
		if err != nil {
			t.Fatal(err)
		}
		a := withoutServers(1)
		a.store, a.order, a.Schedule.Stock, a.Schedule.Guard = store, first, stock, string(order.Fenced)
		a.events = []history.Event{{Seq: 1, Instance: "8004", T: 1, Kind: history.OK, Op: history.Acquire, Order: first, Driver: 1}}
		sell := func(id int64, rows int) {
			c := order.Claim{Order: id, Driver: int64(rows), Token: fmt.Sprint("t", rows), Stock: int64(stock), PerDriver: 9}
			if stock < 2 {
				c.Stock = 0
			}
			if err := store.Claim(t.Context(), c, order.Naive); err != nil {
				t.Fatal(err)
			}
		}
		for rows := range units + 2 {
			if rows > 0 {
				sell(first, rows)
				sell(first+1, rows)
			}
			e, err := a.evidence(t.Context())
			if err != nil || len(e.Ledger) != rows || len(e.Record.Holds) != 1 || e.Guard != order.Fenced || e.Excludes != a.Strategy.Excludes {
				t.Fatalf("stock %d, %d rows: %+v, %v", stock, rows, e, err)
			}
			broken, why, err := proofs["one-winner"](a, t.Context(), e)
			if err != nil || broken != (rows > units) || !strings.HasSuffix(why, "(seen in the ledger)") {
				t.Errorf("%d units, %d rows: broken is %v (%s), %v", units, rows, broken, why, err)
			}
		}
		a.events = append(a.events, history.Event{Seq: 3, Instance: "8004", T: 2, Kind: history.Invoke, Op: history.Release, Order: first, Driver: 1})
		if _, err := a.evidence(t.Context()); err == nil || !strings.Contains(err.Error(), "1 events are missing") {
			t.Errorf("after a lost event: %v", err)
		}
	}
}
