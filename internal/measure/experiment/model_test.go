package experiment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// model is a service with two instances, a lock and a ledger in the memory of this process. Its
// calls stop at breakpoints like those of a real instance, so fault injection can be tested without
// servers.
type model struct {
	ttl       time.Duration               // TTL of the lock; 0 means that it does not expire
	wait      time.Duration               // how long a driver waits for the lock
	queues    bool                        // whether a driver waits for a message instead of polling
	joins     time.Duration               // how long a driver waits before it queues
	blind     bool                        // whether a release frees the lock of any driver
	outlives  bool                        // whether the lock lives much longer than the lease, and no one can see its TTL
	extends   bool                        // whether each try of a waiting driver extends the holder's lease
	guarded   bool                        // whether only the first write succeeds
	checks    bool                        // whether a driver gives up before its write if its lease has ended by its own clock
	forwards  bool                        // whether one instance makes all grabs
	service   bool                        // whether it acts like a user's service: its calls have only the names in serviceCalls
	open      bool                        // whether a grab continues if it cannot reach the lock
	impatient bool                        // whether it answers a request after 200 ms at the latest, although the grab continues
	unknown   int64                       // the first driver that it does not know; 0 means none
	inserts   func(order.Grab) order.Grab // changes a row before it is written; may be nil
	skips     int64                       // if not 0, grabs of later orders make another read before the work
	keeps     bool                        // whether the ledger keeps only the last winner of an order
	dead      map[int64]int               // how many more requests for an order fail, as on dead connections
	broken    bool                        // whether all requests fail
	unread    bool                        // whether its ledger cannot be read
	hidden    int64                       // the ledger does not show the rows of the orders up to this one
	stocks    string                      // if not empty, one call puts a unit of the order into Redis, and the next call takes it; "refuses" or "sells" if the key is missing then

	lease   time.Duration // lease that the instances report
	work    time.Duration // duration of the work in a grab; 0 means injectionWork
	mu      sync.Mutex
	quick   int64         // an order whose grabs do no work
	frozen  chan struct{} // if not nil, the second instance makes no calls until this channel is closed
	down    bool          // whether the instances cannot reach the lock
	late    chan struct{} // if not nil, the first instance gets no reply from the lock until it is closed
	cut     chan struct{} // if not nil, the first instance's calls to the database wait until it is closed
	stalled chan struct{} // if not nil, writes of winners wait until it is closed
	leader  int           // the instance that makes all grabs, if the others forward them
	last    int64         // last token that was used
	first   int64         // ID of the next order to be created
	locks   map[int64]*modelLock
	stock   map[int64]int // units of an order in Redis
	rows    []order.Grab
	wrote   []order.Grab // every row that was ever written
	read    int          // length of wrote when the ledger was last read
	asked   map[load.Request]int
	told    map[grab.Outcome]int // responses to drivers of the load
	calls   map[string]int       // number of calls to each server
	shown   []map[string]int     // the calls at each reading of the metrics
}

const metricsOfModel = `# TYPE grab_in_flight gauge
grab_in_flight 0
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1
# TYPE grab_redis_commands_total counter
grab_redis_commands_total %d
# TYPE grab_db_statements_total counter
grab_db_statements_total %d
`

type modelLock struct {
	token   int64 // token of the holder; 0 if the lock is free
	until   time.Time
	waiters int
	freed   chan struct{}
}

// start starts two instances of the model and returns their fleet.
func (m *model) start(t *testing.T) *fleet.Fleet {
	m.first, m.locks, m.asked, m.stock = 1, map[int64]*modelLock{}, map[load.Request]int{}, map[int64]int{}
	m.told, m.calls, m.dead = map[grab.Outcome]int{}, map[string]int{}, map[int64]int{}
	var urls []string
	var servers []*control.Server
	m.lease = 50 * time.Millisecond // short, so that a dry run does not wait long for a renewal
	for n := range 2 {
		name := strconv.Itoa(8004 + n)
		holds := control.NewServer(name, 0, history.Discard)
		servers = append(servers, holds)
		mux := http.NewServeMux()
		server := httptest.NewServer(holds.Handler(mux))
		t.Cleanup(server.Close)
		t.Cleanup(holds.Close) // runs before server.Close, which waits for stopped requests
		answer := func(text string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
		}
		mux.HandleFunc("GET /healthz", answer(`{}`))
		mux.HandleFunc("GET /readyz", answer(`{}`))
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
			m.locked(func() {
				calls := maps.Clone(m.calls)
				if n > 0 {
					clear(calls) // the first instance reports all calls
				} else {
					m.shown = append(m.shown, calls)
				}
				fmt.Fprintf(w, metricsOfModel, calls["redis"], calls[tap.DB])
			})
		})
		mux.HandleFunc("GET /orders/{id}", answer(`{"grabs":[]}`)) // the rows are read from the model itself
		mux.HandleFunc("GET /strategies", answer(`[{"name":"model"}]`))
		mux.HandleFunc("PUT /strategy", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"name":"model","lease_ms":%d}`, m.lease.Milliseconds())
		})
		mux.HandleFunc("POST /orders/{id}/grab", func(w http.ResponseWriter, r *http.Request) {
			var in struct {
				Driver int64 `json:"driver_id"`
			}
			id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				t.Error(err)
			}
			m.locked(func() {
				m.asked[load.Request{Target: server.URL, Order: id, Driver: in.Driver}]++
				if id >= m.first {
					t.Errorf("driver %d asks for order %d, which was not opened", in.Driver, id)
				}
			})
			dead := false
			m.locked(func() { dead = m.broken || m.dead[id] > 0; m.dead[id] -= min(1, m.dead[id]) })
			if dead {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			if m.unknown > 0 && in.Driver >= m.unknown {
				http.NotFound(w, r)
				return
			}
			at, wait := holds, m.wait
			if m.forwards {
				m.locked(func() { at = servers[m.leader] })
			}
			if r.URL.Query().Get("wait") == "0" {
				wait = 0
			}
			decided := make(chan grab.Outcome, 1)
			go func() { decided <- m.grab(&at.Holds, id, in.Driver, wait, n) }()
			var gaveUp <-chan time.Time
			if m.impatient {
				gaveUp = time.After(200 * time.Millisecond)
			}
			var outcome grab.Outcome
			select {
			case outcome = <-decided:
			case <-gaveUp:
				outcome = grab.Timeout
			}
			if in.Driver < history.ProbeDriver {
				m.locked(func() { m.told[outcome]++ })
			}
			w.WriteHeader(map[grab.Outcome]int{grab.Grabbed: 200, grab.Taken: 409, grab.Busy: 423, grab.Failed: 503, grab.Timeout: 504}[outcome])
			fmt.Fprintf(w, `{"outcome":%q,"instance":%q}`, outcome, name)
		})
		urls = append(urls, server.URL)
	}
	f, err := fleet.Attach(t.Context(), target.Target{URLs: urls, FirstOrder: 1})
	if err != nil {
		t.Fatal(err)
	}
	f.Shape = target.Own
	return f
}

func (m *model) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func (m *model) of(id int64) *modelLock {
	if m.locks[id] == nil {
		m.locks[id] = &modelLock{freed: make(chan struct{})}
	}
	return m.locks[id]
}

// grab runs the critical section: acquire, read, write and release.
func (m *model) grab(holds *control.Holds, id, driver int64, wait time.Duration, instance int) grab.Outcome {
	caller := driver
	if m.service && instance > 0 {
		caller = 0 // the driver of a call is known only at the instance that the fault hits
	}
	call := func(p tap.Phase, server string, do func()) error {
		if m.service {
			p = serviceCalls[p]
		}
		var frozen chan struct{}
		if m.locked(func() { frozen = m.frozen }); frozen != nil && instance == 1 {
			<-frozen
		}
		return holds.Do(context.Background(), tap.Op{Order: id, Driver: caller, Phase: p, Target: server}, func(context.Context) error {
			var cut, stalled chan struct{}
			m.locked(func() { cut, stalled = m.cut, m.stalled })
			if cut != nil && instance == 0 && server == tap.DB {
				<-cut
			}
			if stalled != nil && p == serviceCalls[tap.Claim] {
				<-stalled
			}
			var late chan struct{}
			defer func() {
				if late != nil && instance == 0 && server != tap.DB {
					<-late
				}
			}()
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.down && server != tap.DB {
				return http.ErrServerClosed
			}
			late = m.late
			m.calls[server]++
			do()
			return nil
		})
	}
	if m.stocks != "" {
		return m.takeUnit(call, id, driver)
	}
	var token int64
	m.locked(func() { m.last++; token = m.last })
	var leased time.Time
	for deadline := time.Now().Add(wait); ; {
		got, freed, again := false, (chan struct{})(nil), deadline
		leased = time.Now()
		err := call(tap.Acquire, "redis", func() {
			l := m.of(id)
			freed = l.freed
			if got = l.token == 0 || m.ttl > 0 && time.Now().After(l.until); got {
				l.token, l.until = token, time.Now().Add(m.ttl)
				if m.outlives {
					l.until = time.Now().Add(time.Hour)
				}
			} else if m.extends {
				l.until = time.Now().Add(m.ttl)
			}
			if l.until.Before(again) {
				again = l.until
			}
		})
		if err == nil && !got && m.queues {
			time.Sleep(m.joins)
			err = call(tap.Acquire, "queue", func() { m.of(id).waiters++ })
		}
		switch {
		case err != nil && m.open:
		case err != nil:
			return grab.Failed
		case !got && time.Now().After(deadline):
			return grab.Busy
		case !got && m.queues:
			select {
			case <-freed:
			case <-time.After(time.Until(again) + time.Millisecond):
			}
			continue
		case !got:
			time.Sleep(20 * time.Millisecond)
			continue
		}
		break
	}
	m.ended(holds, tap.Acquire, id, driver)
	outcome := grab.Grabbed
	taken := func() bool {
		return slices.ContainsFunc(m.rows, func(g order.Grab) bool { return g.Order == id })
	}
	if err := call(tap.Read, tap.DB, func() {
		if taken() {
			outcome = grab.Taken
		}
	}); err != nil {
		outcome = grab.Failed
	}
	m.ended(holds, tap.Read, id, driver)
	if m.skips > 0 && id > m.skips && outcome == grab.Grabbed {
		_ = call(tap.Renew, tap.DB, func() {})
	}
	if outcome == grab.Grabbed {
		if id != m.quick {
			time.Sleep(cmp.Or(m.work, injectionWork))
		}
		if m.checks && time.Since(leased) > m.ttl {
			outcome = grab.Busy
		}
	}
	if outcome == grab.Grabbed {
		if err := call(tap.Claim, tap.DB, func() {
			if m.guarded && taken() {
				outcome = grab.Taken
				return
			}
			if m.keeps {
				m.rows = slices.DeleteFunc(m.rows, func(g order.Grab) bool { return g.Order == id })
			}
			row := order.Grab{Order: id, Driver: driver}
			if m.inserts != nil {
				row = m.inserts(row)
			}
			m.rows, m.wrote = append(m.rows, row), append(m.wrote, row)
		}); err != nil {
			outcome = grab.Failed
		}
		m.ended(holds, tap.Claim, id, driver)
	}
	waiters := 0
	_ = call(tap.Release, "redis", func() {
		if l := m.of(id); l.token == token || m.blind {
			l.token, waiters = 0, l.waiters
			close(l.freed)
			l.waiters, l.freed = 0, make(chan struct{})
		}
	})
	if waiters > 0 {
		_ = call(tap.Release, "queue", func() {})
	}
	m.ended(holds, tap.Release, id, driver)
	return outcome
}

// takeUnit grabs an order whose unit is in Redis. Only the first write succeeds.
func (m *model) takeUnit(call func(tap.Phase, string, func()) error, id, driver int64) grab.Outcome {
	outcome := grab.Taken
	err := call(stockCall, "redis", func() {
		if _, ok := m.stock[id]; !ok {
			m.stock[id] = 1
		}
	})
	if err == nil {
		err = call(takeCall, "redis", func() {
			if left, ok := m.stock[id]; left > 0 || !ok && m.stocks == "sells" {
				outcome = grab.Grabbed
			}
			m.stock[id] = 0
		})
	}
	if err == nil && outcome == grab.Grabbed {
		err = call(tap.Claim, tap.DB, func() {
			if slices.ContainsFunc(m.rows, func(g order.Grab) bool { return g.Order == id }) {
				outcome = grab.Taken
				return
			}
			m.rows, m.wrote = append(m.rows, order.Grab{Order: id, Driver: driver}), append(m.wrote, order.Grab{Order: id, Driver: driver})
		})
	}
	if err != nil {
		return grab.Failed
	}
	return outcome
}

func (m *model) ended(holds *control.Holds, p tap.Phase, id, driver int64) {
	if !m.service {
		holds.PhaseEnded(p, id, driver)
	}
}

// These calls of the model exist only in a service with stocks.
const (
	stockCall tap.Phase = "stock"
	takeCall  tap.Phase = "take"
)

// serviceCalls contains the names that proxies would give to the model's calls.
var serviceCalls = map[tap.Phase]tap.Phase{
	tap.Acquire: "redis SET lock:* PX NX", tap.Read: "mysql SELECT orders", tap.Renew: "mysql SELECT drivers", tap.Claim: "mysql INSERT wins", tap.Release: "redis DEL lock:*",
	stockCall: "redis SET stock:* NX", takeCall: "redis DECR stock:*",
}

// Create implements the store of orders.
func (m *model) Create(_ context.Context, count, _ int) (first int64, err error) {
	m.locked(func() { first = m.first; m.first += int64(count) })
	return first, nil
}

// Ledger implements the store of orders.
func (m *model) Ledger(_ context.Context, first int64, count int) (rows []order.Grab, _ error) {
	m.locked(func() {
		m.read = len(m.wrote)
		rows = catalog.Filter(m.rows, func(g order.Grab) bool { return g.Order >= max(first, m.hidden+1) && g.Order < first+int64(count) })
	})
	return rows, nil
}

// fall makes the lock unreachable until the returned function is called.
func (m *model) fall(context.Context, time.Duration) (stack.Heal, error) {
	m.locked(func() { m.down = true })
	return func() error { m.locked(func() { m.down = false }); return nil }, nil
}

// forget removes all locks, as a restart of Redis does.
func (m *model) forget(context.Context, time.Duration) (stack.Heal, error) {
	m.locked(func() {
		for _, l := range m.locks {
			l.token = 0
		}
		clear(m.stock)
	})
	return nil, nil
}

// freeze stops the second instance until the returned function is called.
func (m *model) freeze(context.Context, time.Duration) (stack.Heal, error) {
	m.locked(func() { m.frozen = make(chan struct{}) })
	return func() error { m.locked(func() { close(m.frozen); m.frozen = nil }); return nil }, nil
}

// separate cuts the first instance off from the database until the returned function is called.
func (m *model) separate(context.Context, time.Duration) (stack.Heal, error) {
	m.locked(func() { m.cut = make(chan struct{}) })
	return func() error { m.locked(func() { close(m.cut); m.cut = nil }); return nil }, nil
}

// delay delays all replies of the lock to the first instance until the returned function is called.
func (m *model) delay(context.Context, time.Duration) (stack.Heal, error) {
	m.locked(func() { m.late = make(chan struct{}) })
	return sync.OnceValue(func() error { m.locked(func() { close(m.late); m.late = nil }); return nil }), nil
}

// stall delays all writes of winners until the returned function is called.
func (m *model) stall(context.Context, time.Duration) (stack.Heal, error) {
	m.locked(func() { m.stalled = make(chan struct{}) })
	return func() error { m.locked(func() { close(m.stalled); m.stalled = nil }); return nil }, nil
}

// modelTrails caches the calls of a grab for polling and for queueing models.
var modelTrails trails

// injection returns the injection of a fault into the model. Before that, it records the calls of a
// grab.
func (m *model) injection(t *testing.T, f fault.Fault) *injection {
	cfg := Config{TTL: m.ttl, Wait: m.wait, Asked: Asked{TTL: true, Wait: true}, Instances: 2, Seed: 7, Out: t.TempDir(), Load: Load{Drivers: injectionDrivers, Timeout: 3 * m.ttl, MaxWorkers: 1000}}
	w := &worker{cfg: cfg, stack: new(stack.Stack), fleet: m.start(t), orders: m, ledger: true, progress: &workerProgress{progress: newProgress(cfg)}, journal: &journal{dir: cfg.Out}, trails: &modelTrails}
	in := &injection{
		traits: ourInstances{}.traits(), w: w, strategy: lock.Strategy{Name: fmt.Sprintf("model %v", m.queues), Excludes: catalog.Global}, fault: f, ttl: m.ttl,
		cell: &Cell{Strategy: "model", Fault: f.Name, Struck: new(0)}, struck: w.fleet.Instances[0], other: w.fleet.Instances[1], bursts: load.NewBursts(), responses: newResponses(),
	}
	ttl := m.ttl
	wait := m.wait
	m.ttl, m.wait = dryTTL, dryTTL // in a dry run, a driver must wait for the holder and not for the end of its lease
	err := in.readTrail(t.Context(), w.recorder().record)
	m.ttl, m.wait, m.lease = ttl, wait, ttl
	if err != nil {
		t.Fatal(err)
	}
	w.fleet.Ours = true // not earlier, because the dry run would then read events, which the model does not record
	return in
}

// inject tests the model under a fault. The parameter do is the step that changes the lock. inject
// returns the cell, the points, and the first order.
func (m *model) inject(t *testing.T, f fault.Fault, do fault.Step) (Cell, []fault.Point, int64) {
	in := m.injection(t, f)
	if err := in.choosePoints(); err != nil {
		t.Fatal(err)
	}
	prepared := fault.Prepared{Strikes: []fault.Strike{{Do: do}}}
	first := m.first
	clear(m.asked)
	clear(m.told)
	if f.Course != fault.Never {
		in.w.fleet.Ours, in.w.fleet.Settings.OnLost = false, grab.Abort // like a running grabsvc, because the model records no events
		f.Prepare = func(context.Context, fault.Target) (fault.Prepared, error) { return prepared, nil }
		return in.w.inject(t.Context(), in.strategy, f), in.points, first
	}
	// Do not call worker.inject for a fault of the course Never. It would end the cell by killing an
	// instance's process, but the model has no process.
	in.prepared = prepared
	_, _ = m.Create(t.Context(), 100, 1)
	if _, err := in.sending(in.strikeAll)(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	rows, _ := m.Ledger(t.Context(), first, in.next)
	in.cell.Points = catalog.Map(in.points, func(p fault.Point) Point { return judgement{in: in, evidence: check.Evidence{Ledger: rows}}.row(p) })
	return *in.cell, in.points, first
}

// TestCoursesOfAModel injects each kind of fault into model locks whose behaviour is known. Every
// fault must strike at every point, and each driver must send exactly one request. The cell's
// verdicts and figures must match the lock's behaviour.
func TestCoursesOfAModel(t *testing.T) {
	t.Parallel()
	inWork := func(p fault.Point) bool { // an expired lock lets a second driver in, but the ledger shows only writes
		return p.Role != fault.HandingOver && (p.Phase == tap.Read && p.After || p.Phase == tap.Claim && !p.After)
	}
	never := func(fault.Point) bool { return false }
	for name, tt := range map[string]struct {
		fault  catalog.Fault
		lock   *model
		unsafe func(fault.Point) bool // whether the order of a point is grabbed twice
		mode   string                 // failure mode of these points
	}{
		"stopped":                       {catalog.Pause, &model{}, inWork, "F11"},
		"stopped, drivers queue":        {catalog.Pause, &model{queues: true}, inWork, "F11"},
		"stopped, the write is guarded": {catalog.Slow, &model{guarded: true}, never, ""},
		"released late":                 {catalog.LateRelease, &model{}, never, ""},
		"released late, of any driver": {catalog.LateRelease, &model{blind: true}, func(p fault.Point) bool {
			return p.Phase == tap.Acquire && p.After || p.Phase == tap.Read || p.Phase == tap.Release && !p.After
		}, "F11"},
		"hangs":                   {catalog.Hang, &model{}, never, ""},
		"disconnects":             {catalog.Cancel, &model{}, never, ""},
		"without a server":        {catalog.RedisDown, &model{}, never, ""},
		"forgotten by the server": {catalog.RedisRestart, &model{}, inWork, "F17"},
		"cut off":                 {catalog.Partition, &model{}, inWork, "F11"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := fault.Find(tt.fault)
			if err != nil {
				t.Fatal(err)
			}
			tryLeases(t, 800*time.Millisecond, func(ttl time.Duration) []string {
				return tt.lock.again(ttl).wrongUnder(t, f, tt.unsafe, tt.mode)
			})
		})
	}
}

// TestPausedServiceIsAnswered pauses a process of a user's service while its write is stopped. The
// reply must arrive before the process continues, as from a real server. Otherwise, the process
// might give up the call.
func TestPausedServiceIsAnswered(t *testing.T) {
	t.Parallel()
	service, err := fleet.ParseService("x {port}")
	if err != nil {
		t.Fatal(err)
	}
	m := &model{ttl: 300 * time.Millisecond, wait: time.Second}
	in := m.injection(t, fault.Fault{Name: catalog.Pause, ContendFor: 1.5, Freezes: true})
	in.w.cfg.Service = &service
	answered := 0
	in.prepared.Strikes = []fault.Strike{{Do: func(context.Context, time.Duration) (stack.Heal, error) {
		return func() error {
			held, err := in.struck.Holds(t.Context())
			for _, c := range in.contests {
				for _, h := range held[holdName(callsHold, c)] {
					if h.Call.Phase == tap.Claim && h.State == control.Released {
						answered++
					}
				}
			}
			return err
		}, nil
	}}}
	in.points = []fault.Point{pointAt(fault.Alone, tap.Claim, false)}
	first, _ := m.Create(t.Context(), 100, 1)
	if _, err := in.sending(in.strikeAll)(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if answered != 1 {
		t.Errorf("%d writes had a reply when the process continued, want 1", answered)
	}
}

// again returns a new model with the same behaviour.
func (m *model) again(ttl time.Duration) *model {
	return &model{ttl: ttl, wait: 2 * ttl, queues: m.queues, blind: m.blind, guarded: m.guarded, open: m.open, keeps: m.keeps, impatient: m.impatient, extends: m.extends, outlives: m.outlives, checks: m.checks}
}

// wrongUnder injects a fault at each step of a grab. It returns the differences between the cell
// and what happened in the model.
func (m *model) wrongUnder(t *testing.T, f fault.Fault, unsafe func(fault.Point) bool, mode string) (wrong []string) {
	c, at, first := m.inject(t, f, map[catalog.Fault]fault.Step{catalog.RedisDown: m.fall, catalog.RedisRestart: m.forget}[f.Name])
	expect := func(what string, got, want any) {
		if got, want := textOf(got), textOf(want); got != want {
			wrong = append(wrong, fmt.Sprintf("%s: %s, want %s", what, got, want))
		}
	}
	var roles []fault.Role
	var twice []string
	for i, p := range c.Points {
		roles = append(roles, at[i].Role)
		want := Point{Point: at[i].String(), Strikes: 1, Struck: 1, Verdict: catalog.Safe, DoubleGrabs: new(0), StuckOrders: new(0)}
		if unsafe(at[i]) {
			twice = append(twice, p.Point)
			want.Verdict, want.DoubleGrabs, want.FailureMode = catalog.Unsafe, new(1), mode
		}
		expect(p.Point, p, want)
	}
	for r, n := range m.asked {
		if r.Driver < history.ProbeDriver {
			expect(fmt.Sprintf("requests of driver %d for order %d", r.Driver, r.Order), n, 1)
		}
	}
	if f.Name == catalog.Pause {
		expect("roles", len(catalog.Distinct(roles)), 3)
	}
	if expect("points", len(c.Points), len(at)); f.Course == fault.Never {
		return wrong
	}
	grabs := check.CountGrabs(slices.DeleteFunc(slices.Clone(m.rows), func(g order.Grab) bool { return g.Order < first }), 1)
	reason := ""
	if n := len(twice); n > 0 {
		reason = fmt.Sprintf("%d of %d orders were grabbed more than once: %s", n, len(at)+2, strings.Join(twice, "; "))
	}
	unknown := 0 // number of winners that closed their connection before the response
	if f.Course == fault.HungUp {
		unknown = grabs.Rows - c.Outcomes[grab.Grabbed]
	} else {
		expect("outcomes", c.Outcomes, added(noOutcomes(), m.told))
	}
	calls := func(server string) int { return m.shown[1][server] - m.shown[0][server] }
	expect("verdict", []any{c.Verdict, c.Reason, c.Exclusive, c.CountedFrom}, []any{map[bool]catalog.Verdict{true: catalog.Unsafe, false: catalog.Safe}[len(twice) > 0], reason, nil, fromLedger})
	expect("orders, requests, hits, stuck orders", []any{c.Orders, c.Requests, c.Struck, c.StuckOrders}, []any{len(at) + 2, injectionDrivers * (len(at) + 2), len(at), 0})
	expect("ledger", []any{c.Grabs, c.OrdersGrabbed, c.DoubleGrabs, c.OrdersDoubleGrabbed}, []any{grabs.Rows, grabs.Orders, len(twice), len(twice)})
	expect("phantoms, unacknowledged", []any{c.PhantomGrabs, c.UnacknowledgedGrabs}, []any{0, unknown})
	expect("lease", c.LeaseMS, millis(m.ttl))
	expect("calls", []any{c.RedisCommands, *c.DBStatementsPerRequest * float64(c.Requests)}, []any{calls("redis"), calls(tap.DB)})
	if n := len(c.Strikes); n != 1 || c.Strikes[0].ToMS == nil || *c.Strikes[0].ToMS < c.Strikes[0].FromMS {
		expect("times of the fault", c.Strikes, "one")
	}
	return wrong
}

// TestServicesOfAModel injects faults during the work of a driver, into model services like those that
// a run starts. Each fault is injected twice. In the two pauses, this driver writes last and then
// first. In the two outages, other drivers compete after the outage and then during it.
func TestServicesOfAModel(t *testing.T) {
	t.Parallel()
	const at = ": after mysql SELECT orders 1"
	for name, tt := range map[string]struct {
		fault   catalog.Fault
		lock    *model
		verdict catalog.Verdict
		double  int // number of orders that are grabbed twice
		reason  string
		mode    string
		from    string
	}{
		"stopped":                       {catalog.Pause, &model{}, catalog.Unsafe, 2, "2 of 5 orders were grabbed more than once, for example order 3" + at, "F11", fromLedger},
		"stopped, the write is guarded": {catalog.Pause, &model{guarded: true}, catalog.Safe, 0, "", "", fromLedger},
		"stopped, the last one stays": {catalog.Pause, &model{keeps: true}, catalog.Unsafe, 2, "2 of 5 orders were grabbed more than once, for example order 3" + at +
			", according to the responses: more drivers were told that they had won than the ledger names, so the ledger may keep only one of them", "F11", fromAnswers},
		"stopped, its response does not wait":      {catalog.Pause, &model{impatient: true}, catalog.Unsafe, 2, "2 of 5 orders were grabbed more than once, for example order 3" + at, "F11", fromLedger},
		"stopped, waiting drivers extend its lock": {catalog.Pause, &model{extends: true}, catalog.Unsafe, 1, "1 of 5 orders was grabbed more than once, for example order 5" + at, "F11", fromLedger},
		"stopped, its lock lives longer": {catalog.Pause, &model{outlives: true}, catalog.Unknown, 0, "no other driver got past the lock while a driver was stopped, so the lock may live longer than the lease of TTL: " +
			"set lease to its lifetime, or pass {ttl_ms} to the service as its lock TTL. If it never expires, add no-expiry: true", "", fromLedger},
		"without its lock": {catalog.RedisDown, &model{}, catalog.Safe, 0, "", "", fromLedger},
		"goes on without its lock": {catalog.RedisDown, &model{open: true}, catalog.Unsafe, 1, "1 of 5 orders was grabbed more than once, for example order 3" + at +
			"; one driver was stopped in its work while Redis could not be reached, and another driver won meanwhile: if Redis fails, a grab must fail too", "", fromLedger},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := fault.Find(tt.fault)
			if err != nil {
				t.Fatal(err)
			}
			tryLeases(t, 800*time.Millisecond, func(ttl time.Duration) (wrong []string) {
				m := tt.lock.again(ttl)
				c := m.injectService(t, f, nil)
				expect := func(what string, got, want any) {
					if got, want := textOf(got), textOf(want); got != want {
						wrong = append(wrong, fmt.Sprintf("%s: %s, want %s", what, got, want))
					}
				}
				rows, told := len(m.rows)-1, m.told[grab.Grabbed] // without the row of the order that only shows whether the service works
				double := rows - c.Orders
				if m.keeps {
					double = tt.double
				}
				point := Point{Point: at[2:], Strikes: 2, Struck: 2, Verdict: tt.verdict, DoubleGrabs: &double, StuckOrders: new(0), FailureMode: tt.mode}
				expect("verdict", []any{c.Verdict, c.Reason, c.CountedFrom}, []any{tt.verdict, strings.ReplaceAll(tt.reason, "of TTL:", "of "+ttl.String()+":"), tt.from})
				expect("points", c.Points, []Point{point})
				expect("orders, requests, hits, stuck orders", []any{c.Orders, c.Requests, c.Struck, c.StuckOrders}, []any{5, sum(m.told), 2, 0})
				expect("ledger", []any{c.OrdersGrabbed, c.DoubleGrabs, c.OrdersDoubleGrabbed, c.RepeatedRows}, []any{5, double, tt.double, 0})
				expect("phantoms, unacknowledged", []any{c.PhantomGrabs, c.UnacknowledgedGrabs}, []any{max(0, told-rows), max(0, rows-told)})
				if len(c.Strikes) != 2 || c.SettleMS == nil {
					wrong = append(wrong, fmt.Sprintf("times of the fault %s, settled after %v", textOf(c.Strikes), c.SettleMS))
				}
				return wrong
			})
		})
	}
}

// TestDelayedServicesOfAModel injects faults that delay a driver's write until its lease has ended. If the lock lives longer
// than the lease, no other driver gets past it in time, so the test cannot show that the lock is safe.
func TestDelayedServicesOfAModel(t *testing.T) {
	t.Parallel()
	for _, name := range []catalog.Fault{catalog.PartitionDB, catalog.SlowDB, catalog.Partition, catalog.LateRelease} {
		for kind, tt := range map[string]struct {
			lock    *model
			verdict catalog.Verdict
			reason  string
		}{
			"its lock lives longer": {&model{outlives: true}, catalog.Unknown, "no other driver got past the lock while a driver was stopped"},
			"unguarded":             {&model{blind: true}, catalog.Unsafe, "1 of 3 orders was grabbed more than once"},
			"guarded":               {&model{blind: true, guarded: true}, catalog.Safe, ""},
		} {
			t.Run(string(name)+", "+kind, func(t *testing.T) {
				t.Parallel()
				f, err := fault.Find(name)
				if err != nil {
					t.Fatal(err)
				}
				tryLeases(t, 800*time.Millisecond, func(ttl time.Duration) (wrong []string) {
					c := tt.lock.again(ttl).injectService(t, f, nil)
					if c.Verdict != tt.verdict || !strings.HasPrefix(c.Reason, tt.reason) {
						wrong = append(wrong, fmt.Sprintf("%s: %s; want %s: %s", c.Verdict, c.Reason, tt.verdict, tt.reason))
					}
					return wrong
				})
			})
		}
	}
}

// TestLostStockOfAModel restarts Redis between two calls of a grab, once so that other drivers come first, and once so that
// they come after its response. If the grab takes a missing key for sold, the order is stuck, but only until Redis restarts
// again.
func TestLostStockOfAModel(t *testing.T) {
	for stocks, tt := range map[string]struct {
		verdict catalog.Verdict
		stuck   int
	}{"refuses": {catalog.Stuck, 1}, "sells": {catalog.Safe, 0}} {
		t.Run(stocks, func(t *testing.T) {
			t.Parallel()
			f, err := fault.Find(catalog.RedisRestart)
			if err != nil {
				t.Fatal(err)
			}
			tryLeases(t, 800*time.Millisecond, func(ttl time.Duration) (wrong []string) {
				c := (&model{ttl: ttl, wait: ttl, stocks: stocks}).injectService(t, f, nil)
				point := Point{Point: "before redis DECR stock:* 1", Strikes: 2, Struck: 2, Verdict: tt.verdict, DoubleGrabs: new(0), StuckOrders: &tt.stuck}
				for i := range c.Points {
					c.Points[i].FailureMode = ""
				}
				if got, want := textOf([]any{c.Verdict, c.StuckOrders, c.Points}), textOf([]any{tt.verdict, tt.stuck, []Point{point}}); got != want {
					wrong = append(wrong, fmt.Sprintf("%s: %s; want %s", got, c.Reason, want))
				}
				return wrong
			})
		})
	}
}

// TestMissedInjectionsOfAModel injects a fault at a call that a service does not make for its first
// orders. The injection must be repeated with other orders, up to a limit, and must count only if
// it strikes in the end.
func TestMissedInjectionsOfAModel(t *testing.T) {
	t.Parallel()
	const at = "after mysql SELECT drivers 1"
	for _, tt := range []struct {
		skips   int64
		orders  int
		struck  int
		verdict catalog.Verdict
		reason  string
	}{
		{4, 7, 2, catalog.Safe, ""},
		{1000, 13, 0, catalog.Unknown, "the fault could not be tested. The grab had ended after redis DEL lock:*. Points without a verdict: " + at},
	} {
		t.Run(fmt.Sprint(tt.skips), func(t *testing.T) {
			t.Parallel()
			f, err := fault.Find(catalog.Pause)
			if err != nil {
				t.Fatal(err)
			}
			tryLeases(t, 800*time.Millisecond, func(ttl time.Duration) (wrong []string) {
				m := &model{ttl: ttl, wait: 2 * ttl, guarded: true, skips: tt.skips}
				c := m.injectService(t, f, nil)
				point := Point{Point: at, Strikes: 2, Struck: tt.struck, Verdict: tt.verdict, DoubleGrabs: new(0), StuckOrders: new(0)}
				got, want := textOf([]any{c.Verdict, c.Reason, c.Orders, c.Struck, c.Points, len(c.Strikes)}), textOf([]any{tt.verdict, tt.reason, tt.orders, tt.struck, []Point{point}, tt.struck})
				if got != want {
					wrong = append(wrong, got+", want "+want)
				}
				return wrong
			})
		})
	}
}

func sum[K comparable](counts map[K]int) (all int) {
	for _, n := range counts {
		all += n
	}
	return all
}

// injectService tests the model as a user's service, with a fault that strikes during a driver's
// work. If prepare is nil, the step of the fault comes from the model.
func (m *model) injectService(t *testing.T, f fault.Fault, prepare func(context.Context, fault.Target) (fault.Prepared, error)) Cell {
	m.service = true
	service, err := fleet.ParseService("x {port} {redis}")
	if err != nil {
		t.Fatal(err)
	}
	phases := []tap.Phase{tap.Acquire, tap.Read, tap.Claim, tap.Release}
	work := tap.Read
	if m.skips > 0 {
		phases, work = slices.Insert(phases, 2, tap.Renew), tap.Renew
	}
	at := fault.Point{Point: control.Point{Phase: serviceCalls[work], N: 1, After: true}}
	if f.RepliesAfter > 0 {
		at.Point = control.Point{Phase: serviceCalls[tap.Acquire], N: 1}
	}
	if m.stocks != "" {
		phases, at.Point = []tap.Phase{stockCall, takeCall, tap.Claim}, control.Point{Phase: serviceCalls[takeCall], N: 1}
	}
	cfg := Config{
		TTL: m.ttl, Wait: m.wait, Asked: Asked{TTL: true, Wait: true, Work: true}, Instances: 2, Seed: 7, Out: t.TempDir(), Load: Load{MaxWorkers: 1000},
		Service: &service, At: &at, Settle: 200 * time.Millisecond,
	}
	if !m.unread {
		cfg.Target.Database.Query = "SELECT"
	}
	w := &worker{cfg: cfg, stack: new(stack.Stack), fleet: m.start(t), orders: m, ledger: true, progress: &workerProgress{progress: newProgress(cfg)}, journal: &journal{dir: cfg.Out}, trails: new(trails)}
	m.lease, w.fleet.Foreign = m.ttl, m.unread // then the program has no way to read the ledger
	if _, err := w.trails.get("service", func() (trail, error) {
		var calls []control.Call
		for _, p := range phases {
			server := tap.DB
			if strings.HasPrefix(string(serviceCalls[p]), "redis ") {
				server = "redis"
			}
			calls = append(calls, control.Call{Phase: serviceCalls[p], N: 1, Target: server})
		}
		grab := trailOf(calls, "")
		grab.service.leased = true
		return grab, nil
	}); err != nil {
		t.Fatal(err)
	}
	do := map[catalog.Fault]fault.Step{catalog.RedisDown: m.fall, catalog.RedisRestart: m.forget, catalog.PartitionDB: m.separate, catalog.SlowDB: m.stall, catalog.Latency: m.delay}[f.Name]
	if f.Prepare = prepare; prepare == nil {
		f.Prepare = func(context.Context, fault.Target) (fault.Prepared, error) {
			return fault.Prepared{Strikes: []fault.Strike{{Do: do}}}, nil
		}
	}
	return w.inject(t.Context(), lock.Strategy{Name: "service", Excludes: catalog.NoExclusion}, f)
}

// TestMomentsOfAModel stops the process of a running service at eight moments of a grab. If a
// request ends before its moment, the injection must be repeated with another order, and the
// request must count as one without a fault.
func TestMomentsOfAModel(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]bool{"bare": false, "guarded": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tryLeases(t, 400*time.Millisecond, func(ttl time.Duration) []string {
				m := &model{ttl: ttl, wait: 2 * ttl, work: ttl / 5, guarded: guarded}
				return m.wrongAtMoments(t)
			})
		})
	}
}

// injectAtMoments stops the second instance of the model, as a running target, at moments of a grab.
func (m *model) injectAtMoments(t *testing.T, noExpiry bool, prepared func(fault.Target)) Cell {
	cfg := Config{TTL: m.ttl, Wait: m.wait, Asked: Asked{TTL: true, Wait: true, Work: true}, Instances: 2, Seed: 7, Out: t.TempDir(), Load: Load{MaxWorkers: 1000}, Settle: 100 * time.Millisecond}
	w := &worker{stack: new(stack.Stack), fleet: m.start(t), orders: m, ledger: true, progress: &workerProgress{progress: newProgress(cfg)}, journal: &journal{dir: cfg.Out}}
	cfg.Target.URLs, cfg.Target.PIDs, cfg.Target.NoExpiry, m.lease = w.fleet.URLs(), []int{os.Getpid(), os.Getpid()}, noExpiry, m.ttl
	w.cfg = cfg
	return w.inject(t.Context(), lock.Strategy{Name: "model", Excludes: catalog.NoExclusion}, fault.Fault{Name: catalog.Crash, ContendFor: 1.5, Prepare: func(_ context.Context, to fault.Target) (fault.Prepared, error) {
		prepared(to)
		return fault.Prepared{Strikes: []fault.Strike{{Do: m.freeze}}}, nil
	}})
}

// TestMomentsOfALongLock stops a process while its lock lives longer than the lease. No other driver gets past the lock, so
// the test shows nothing, unless the user says that the lock never expires.
func TestMomentsOfALongLock(t *testing.T) {
	for name, tt := range map[string]struct {
		noExpiry bool
		verdict  catalog.Verdict
		words    string
	}{
		"lives longer":  {false, catalog.Unknown, "so the lock may live longer than the lease of TTL: set lease to its lifetime. If it never expires, add -no-expiry"},
		"never expires": {true, catalog.Safe, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tryLeases(t, 400*time.Millisecond, func(ttl time.Duration) (wrong []string) {
				m := &model{ttl: ttl, wait: 2 * ttl, work: ttl / 2, outlives: true}
				c := m.injectAtMoments(t, tt.noExpiry, func(fault.Target) {})
				if c.Verdict != tt.verdict || !strings.Contains(c.Reason, strings.ReplaceAll(tt.words, "TTL", ttl.String())) {
					wrong = append(wrong, fmt.Sprintf("%s (%s), want %s: %s", c.Verdict, c.Reason, tt.verdict, tt.words))
				}
				return wrong
			})
		})
	}
}

func (m *model) wrongAtMoments(t *testing.T) (wrong []string) {
	expect := func(what string, got, want any) {
		if got, want := textOf(got), textOf(want); got != want {
			wrong = append(wrong, fmt.Sprintf("%s: %s, want %s", what, got, want))
		}
	}
	const spare, first, tried = 1, 1 + 1 + 1 + momentRuns, momentCount + 1
	m.quick = first + 1
	c := m.injectAtMoments(t, false, func(to fault.Target) {
		expect("stopped and contending instances", []string{to.Affected.Name(), to.Contender.Name()}, []string{"instance 2", "instance 1"})
	})
	verdict, double := catalog.Safe, 0
	var moments []string
	if !m.guarded {
		verdict, double = catalog.Unsafe, 1
	}
	for i, p := range c.Points {
		var n, of int
		var at, took float64
		if _, err := fmt.Sscanf(p.Point, "moment %d of %d (%f of %f ms)", &n, &of, &at, &took); err != nil || n != i+1 || of != momentCount || math.Abs(at/took-(float64(i)+0.5)/momentCount) > 0.005 || took < 80 || !p.IsMoment() {
			t.Errorf("moment %d: %s", i+1, p.Point) // this does not depend on the machine's speed
		}
		moments = append(moments, p.Point)
		expect(p.Point, p, Point{Point: p.Point, Strikes: 1, Struck: 1, Verdict: verdict, DoubleGrabs: &double, StuckOrders: new(0)}) // no known mode fits a crash
	}
	reason, orders := "", 2*tried+1
	if !m.guarded {
		reason = fmt.Sprintf("%d of %d orders were grabbed more than once, for example order %d: %s", momentCount, orders, first+3, strings.Join(moments, "; "))
	}
	expect("cell", []any{c.Verdict, c.Reason, c.Orders, c.Requests, c.Struck, len(c.Points), c.LeaseMS}, []any{verdict, reason, orders, orders * injectionDrivers, momentCount, momentCount, millis(m.ttl)})
	expect("ledger", []any{c.CountedFrom, c.Grabs, c.OrdersGrabbed, c.DoubleGrabs, c.PhantomGrabs, c.UnacknowledgedGrabs}, []any{fromLedger, orders + double*momentCount, orders, double * momentCount, 0, 0})
	return wrong
}

// textOf returns x as JSON.
func textOf(x any) string {
	b, err := json.Marshal(x)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// tryLeases runs a test that needs real time with the lease ttl, twice ttl and four times ttl, until
// it finds nothing wrong. On a busy machine, a step may take longer than a short lease.
func tryLeases(t *testing.T, ttl time.Duration, run func(ttl time.Duration) (wrong []string)) {
	t.Helper()
	var wrong []string
	for n := range 3 {
		if wrong = run(ttl << n); len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// TestTrailOfAHandOver checks the calls that a dry run records if a driver queues for the lock some
// time after its first try. The dry run must wait until the driver has queued, because otherwise
// the holder would make no call to wake it.
func TestTrailOfAHandOver(t *testing.T) {
	t.Parallel()
	m := &model{ttl: dryTTL, wait: dryTTL, queues: true, joins: quietFor * 2 / 3}
	f := m.start(t)
	got, err := recorder{Config{Instances: 2}, nil, f, m}.record(t.Context(), lock.Strategy{Name: "model"})
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[fault.Role]string{
		fault.Alone:       "acquire 1 at redis, read 1 at db, claim 1 at db, release 1 at redis",
		fault.Waiting:     "acquire 1 at redis, acquire 1 at queue, acquire 2 at redis, read 1 at db, claim 1 at db, release 1 at redis",
		fault.HandingOver: "release 1 at redis, release 1 at queue",
	} {
		if text := catalog.Join(got.calls[role], ", ", func(c control.Call) string { return fmt.Sprintf("%s %d at %s", c.Phase, c.N, c.Target) }); text != want {
			t.Errorf("%q makes the calls %s, want %s", role, text, want)
		}
	}
	if got.queued != 2 || got.renews {
		t.Errorf("queued after %d calls, renews %v; want 2 and no renewals", got.queued, got.renews)
	}
}

// TestCallsAfterTheResponse checks which calls are recorded for a service that makes calls after its
// response. Each of these calls follows the previous one within quietFor, so the list must contain all
// of them, in order.
func TestCallsAfterTheResponse(t *testing.T) {
	t.Parallel()
	holds := control.NewServer("8004", 0, history.Discard)
	call := func(p tap.Phase) {
		_ = holds.Do(context.Background(), tap.Op{Order: 7, Driver: 1, Phase: p, Target: tap.DB}, func(context.Context) error { return nil })
	}
	late := []tap.Phase{"mysql BEGIN", "mysql INSERT wins", "mysql COMMIT", "mysql UPDATE orders"}
	var working sync.WaitGroup
	defer working.Wait()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/grab", func(http.ResponseWriter, *http.Request) {
		call("mysql SELECT orders")
		working.Go(func() {
			for _, p := range late {
				time.Sleep(quietFor * 5 / 6)
				call(p)
			}
		})
	})
	server := httptest.NewServer(holds.Handler(mux))
	defer server.Close()
	f, err := fleet.Attach(t.Context(), target.Target{URLs: []string{server.URL}, FirstOrder: 7})
	if err != nil {
		t.Fatal(err)
	}
	f.Instances[0].Client = holds.Client()
	req, err := recorder{fleet: f}.listCalls(t.Context(), f.Instances[0], 7)
	if err != nil || callNames(req.calls) != "mysql SELECT orders" || callNames(req.behind) != callNames(catalog.Map(late, func(p tap.Phase) control.Call { return control.Call{Phase: p} })) {
		t.Errorf("%s before the response, %s after it: %v", callNames(req.calls), callNames(req.behind), err)
	}
	if req.listened < 4*quietFor || len(holds.All()) != 0 {
		t.Errorf("listened for %v, and left the breakpoints %v", req.listened, holds.All())
	}
}

// TestGrabHeldInItsWork stops a grab before its work. If the service repeats a call while the grab is
// stopped, the trail must list this call once, as a renewal. Afterwards, the service may answer with
// any status, but it must answer.
func TestGrabHeldInItsWork(t *testing.T) {
	const reads, renews = "mysql SELECT orders", "redis PEXPIRE lock:*"
	for _, status := range []int{http.StatusOK, http.StatusGatewayTimeout, 0} { // 0 closes the connection instead
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			holds := control.NewServer("8004", 0, history.Discard)
			call := func(p tap.Phase, at string) {
				_ = holds.Do(context.Background(), tap.Op{Order: 7, Driver: 1, Phase: p, Target: at}, func(context.Context) error { return nil })
			}
			mux := http.NewServeMux()
			mux.HandleFunc("POST /orders/{id}/grab", func(w http.ResponseWriter, _ *http.Request) {
				renewed := make(chan struct{})
				go func() {
					defer close(renewed)
					for range 3 {
						time.Sleep(quietFor / 2)
						call(renews, "redis")
					}
				}()
				call(reads, tap.DB)
				<-renewed
				if status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(status)
			})
			server := httptest.NewServer(holds.Handler(mux))
			defer server.Close()
			f, err := fleet.Attach(t.Context(), target.Target{URLs: []string{server.URL}, FirstOrder: 7})
			if err != nil {
				t.Fatal(err)
			}
			f.Instances[0].Client = holds.Client()
			tr := trail{service: new(serviceTrail), work: control.Point{Phase: reads, N: 1, After: true}}
			_, err = recorder{stack: new(stack.Stack), fleet: f}.holdInWork(t.Context(), f.Instances[0], 7, &tr, 3*quietFor)
			if (err == nil) != (status > 0) || callNames(tr.service.renewal) != renews || len(holds.All()) != 0 {
				t.Errorf("%v; renewals %s; left the breakpoints %v", err, callNames(tr.service.renewal), holds.All())
			}
		})
	}
}

// TestLeaderThatMoves injects a fault that makes the other instance the leader, each time or only the first time. Instances
// forward their grabs to the leader, so the fault must follow it.
func TestLeaderThatMoves(t *testing.T) {
	service, err := fleet.ParseService("x {port}")
	if err != nil {
		t.Fatal(err)
	}
	for once, want := range map[bool][]bool{false: {true, false, true, true, true}, true: {true, false, true, false, true, true}} {
		t.Run(fmt.Sprintf("only once %v", once), func(t *testing.T) {
			t.Parallel()
			m, moves := &model{ttl: 2 * time.Second, wait: 4 * time.Second}, 0
			in := m.injection(t, fault.Fault{Name: catalog.Pause, ContendFor: 0.1, Prepare: func(_ context.Context, to fault.Target) (fault.Prepared, error) {
				return fault.Prepared{Strikes: []fault.Strike{{Do: func(context.Context, time.Duration) (stack.Heal, error) {
					m.locked(func() {
						if hit := to.Affected.Name() == fmt.Sprintf("instance %d", m.leader+1); hit && (moves == 0 || !once) {
							m.leader, moves = 1-m.leader, moves+1
						}
					})
					return nil, nil
				}}}}, nil
			}})
			m.forwards, in.repeats = true, repeatedStrikes
			in.traits, in.w.cfg.Service = traits{tellsDrivers: true, unknownLock: true, reconnects: true, liveLedger: true}, &service
			in.spare, _ = m.Create(t.Context(), 1, 1)
			first, _ := m.Create(t.Context(), 100, 1)
			if _, err := in.sending(func(ctx context.Context) error {
				p := pointAt(fault.Alone, tap.Read, true)
				p.Part = fault.Work
				err := in.prepareFault(ctx)
				for range 4 {
					err = errors.Join(err, in.strikeUntilHit(ctx, []fault.Point{p}, 0, usual))
				}
				return err
			})(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			if hits := catalog.Map(in.contests, func(c *contest) bool { return c.struck }); !slices.Equal(hits, want) || in.repeats != repeatedStrikes+4-len(want) {
				t.Errorf("the injections hit: %v, and %d more may be repeated; want %v", hits, in.repeats, want)
			}
		})
	}
}

// TestRestartOfTheOtherInstance pauses a driver at one instance while the other instance is killed
// and restarts. If the second instance forwards its grabs to the first one, the instances must swap
// roles. The order must be grabbed twice only if the start-up code of the killed instance removes
// the locks.
func TestRestartOfTheOtherInstance(t *testing.T) {
	service, err := fleet.ParseService("x {port}")
	if err != nil {
		t.Fatal(err)
	}
	for _, forwards := range []bool{false, true} {
		for _, eraser := range []string{"instance 1", "instance 2"} {
			t.Run(fmt.Sprintf("forwards %v, %s erases", forwards, eraser), func(t *testing.T) {
				t.Parallel()
				m := &model{ttl: 2 * time.Second, wait: 4 * time.Second}
				var prepared, killed []string
				in := m.injection(t, fault.Fault{Name: catalog.Crash, Course: fault.Killed, ContendFor: 1.5, Prepare: func(_ context.Context, to fault.Target) (fault.Prepared, error) {
					name := to.Affected.Name()
					prepared = append(prepared, name)
					return fault.Prepared{Strikes: []fault.Strike{{Do: func(ctx context.Context, lease time.Duration) (stack.Heal, error) {
						killed = append(killed, name)
						if name == eraser {
							return m.forget(ctx, lease)
						}
						return nil, nil
					}}}}, nil
				}})
				m.forwards = forwards
				in.traits, in.w.cfg.Service = traits{tellsDrivers: true, unknownLock: true, reconnects: true, liveLedger: true}, &service
				in.spare, _ = m.Create(t.Context(), 1, 1)
				struck, other := in.struck, in.other
				first, _ := m.Create(t.Context(), 100, 1)
				_, err := in.sending(func(ctx context.Context) error {
					p := pointAt(fault.Alone, tap.Read, true)
					p.Part = fault.Work
					return errors.Join(in.prepareFault(ctx), in.strikeAtOther(ctx, p))
				})(t.Context(), first)
				if err != nil {
					t.Fatal(err)
				}
				last := in.contests[len(in.contests)-1]
				pausedAt, kills, prepares := other, "instance 1", "instance 1"
				if forwards {
					pausedAt, kills, prepares = struck, "instance 1 instance 2", "instance 1 instance 2 instance 1"
				}
				if in.struck != struck || in.other != other || last.affected.Target != pausedAt.URL || !last.struck || strings.Join(killed, " ") != kills || strings.Join(prepared, " ") != prepares {
					t.Errorf("paused at %s (hit %v), killed %q, prepared %q; want %s, %s, %s; instances swapped %v", last.affected.Target, last.struck, killed, prepared, pausedAt.URL, kills, prepares, in.struck != struck)
				}
				for _, c := range in.contests[:len(in.contests)-1] {
					if !c.repeated || c.struck {
						t.Errorf("the first try counts: %+v", c)
					}
				}
				rows, _ := m.Ledger(t.Context(), last.order, 1)
				if twice := (eraser == "instance 2") == forwards; len(rows) != map[bool]int{true: 2, false: 1}[twice] {
					t.Errorf("%d drivers grabbed the order", len(rows))
				}
			})
		}
	}
}
