package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// model is a service with two instances, a lock and a ledger in the memory of this process. Its calls stop at
// breakpoints like those of a real instance, so the whole engine of faults can be tested without servers.
type model struct {
	ttl      time.Duration // of the lock; 0: it does not expire
	wait     time.Duration // how long a driver waits for the lock
	queues   bool          // whether a driver waits for a message instead of polling
	joins    time.Duration // how long a driver waits before it queues
	blind    bool          // whether a release frees the lock of any driver
	guarded  bool          // whether only the first write succeeds
	forwards bool          // whether the first instance makes all grabs

	lease time.Duration // that the instances report
	mu    sync.Mutex
	down  bool // whether no instance reaches the lock
	last  int64
	first int64 // of the orders that do not exist yet
	locks map[int64]*modelLock
	rows  []order.Grab
	asked map[load.Request]int
}

type modelLock struct {
	token   int64 // 0: free
	until   time.Time
	waiters int
	freed   chan struct{}
}

// start serves two instances of the model.
func (m *model) start(t *testing.T) *fleet.Fleet {
	m.first, m.locks, m.asked = 1, map[int64]*modelLock{}, map[load.Request]int{}
	var urls []string
	var leader *control.Server
	m.lease = 50 * time.Millisecond // in a dry run, so that it does not wait long for a renewal
	for n := range 2 {
		name := strconv.Itoa(8004 + n)
		holds := control.NewServer(name, 0, history.Discard)
		if leader == nil {
			leader = holds
		}
		mux := http.NewServeMux()
		server := httptest.NewServer(holds.Handler(mux))
		t.Cleanup(server.Close)
		t.Cleanup(holds.Close) // before the server, which waits for its requests
		answer := func(text string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
		}
		mux.HandleFunc("GET /healthz", answer(`{}`))
		mux.HandleFunc("GET /readyz", answer(`{}`))
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
			m.locked(func() { m.asked[load.Request{Target: server.URL, Order: id, Driver: in.Driver}]++ })
			at, wait := holds, m.wait
			if m.forwards {
				at = leader
			}
			if r.URL.Query().Get("wait") == "0" {
				wait = 0
			}
			outcome := m.grab(&at.Holds, id, in.Driver, wait)
			w.WriteHeader(map[grab.Outcome]int{grab.Grabbed: 200, grab.Taken: 409, grab.Busy: 423, grab.Failed: 503}[outcome])
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
func (m *model) grab(holds *control.Holds, id, driver int64, wait time.Duration) grab.Outcome {
	call := func(p tap.Phase, server string, do func()) error {
		return holds.Do(context.Background(), tap.Op{Order: id, Driver: driver, Phase: p, Target: server}, func(context.Context) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.down && server != tap.DB {
				return http.ErrServerClosed
			}
			do()
			return nil
		})
	}
	var token int64
	m.locked(func() { m.last++; token = m.last })
	for deadline := time.Now().Add(wait); ; {
		got, freed, again := false, (chan struct{})(nil), deadline
		err := call(tap.Acquire, "redis", func() {
			l := m.of(id)
			freed = l.freed
			if got = l.token == 0 || m.ttl > 0 && time.Now().After(l.until); got {
				l.token, l.until = token, time.Now().Add(m.ttl)
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
	holds.PhaseEnded(tap.Acquire, id, driver)
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
	holds.PhaseEnded(tap.Read, id, driver)
	if outcome == grab.Grabbed {
		time.Sleep(injectionWork)
		if err := call(tap.Claim, tap.DB, func() {
			if m.guarded && taken() {
				outcome = grab.Taken
				return
			}
			m.rows = append(m.rows, order.Grab{Order: id, Driver: driver})
		}); err != nil {
			outcome = grab.Failed
		}
		holds.PhaseEnded(tap.Claim, id, driver)
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
	holds.PhaseEnded(tap.Release, id, driver)
	return outcome
}

// Create opens orders.
func (m *model) Create(_ context.Context, count, _ int) (first int64, err error) {
	m.locked(func() { first = m.first; m.first += int64(count) })
	return first, nil
}

// Ledger returns the rows of the orders.
func (m *model) Ledger(_ context.Context, first int64, count int) (rows []order.Grab, _ error) {
	m.locked(func() {
		rows = catalog.Filter(m.rows, func(g order.Grab) bool { return g.Order >= first && g.Order < first+int64(count) })
	})
	return rows, nil
}

// fall makes the lock unreachable until it is healed.
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
	})
	return nil, nil
}

// modelTrails caches the calls of polling and queueing models.
var modelTrails trails

// injection prepares the injection of a fault into the model, and records the calls of a grab.
func (m *model) injection(t *testing.T, f fault.Fault) *injection {
	cfg := Config{TTL: m.ttl, Wait: m.wait, Instances: 2, Seed: 7, Out: t.TempDir(), Load: Load{Drivers: injectionDrivers, Timeout: 3 * m.ttl, MaxWorkers: 1000}}
	w := &worker{cfg: cfg, fleet: m.start(t), orders: m, ledger: true, progress: &workerProgress{progress: newProgress(cfg)}, journal: &journal{dir: cfg.Out}, trails: &modelTrails}
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
	w.fleet.Ours = true // from now on, because the dry run would read the events of our instances
	return in
}

// inject injects a fault at each step of a grab. It returns the tests of all orders, and the verdict of each point.
func (m *model) inject(t *testing.T, f fault.Fault, do fault.Step) (*injection, []Point) {
	in := m.injection(t, f)
	in.prepared.Strikes = []fault.Strike{{Do: do}}
	if err := in.choosePoints(); err != nil {
		t.Fatal(err)
	}
	first, _ := m.Create(t.Context(), 1000, 1)
	a, err := in.sending(in.strikeAll)(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := m.Ledger(t.Context(), first, in.next)
	e := check.Evidence{Ledger: rows, Told: a.told, Excludes: catalog.Global}
	m.locked(func() {
		for id := first; id < first+int64(in.next); id++ {
			if m.ttl == 0 && m.of(id).token != 0 {
				e.Stuck = append(e.Stuck, id)
			}
		}
	})
	return in, catalog.Map(in.points, func(p fault.Point) Point { return in.row(p.String(), e, nil) })
}

// TestCoursesOfAModel injects faults of each course into locks whose behaviour is known. Every fault must hit every
// point, each point must have the verdict of the lock, and each driver must ask exactly once.
func TestCoursesOfAModel(t *testing.T) {
	const ttl = 800 * time.Millisecond
	inWork := func(p fault.Point) bool { // an expired lock lets a second driver in, but the ledger shows only writes
		return p.Role != fault.HandingOver && (p.Phase == tap.Read && p.After || p.Phase == tap.Claim && !p.After)
	}
	never := func(fault.Point) bool { return false }
	for name, tt := range map[string]struct {
		fault  catalog.Fault
		lock   *model
		unsafe func(fault.Point) bool // whether the order is grabbed twice
	}{
		"stopped":                       {catalog.Pause, &model{}, inWork},
		"stopped, drivers queue":        {catalog.Pause, &model{queues: true}, inWork},
		"stopped, the write is guarded": {catalog.Slow, &model{guarded: true}, never},
		"released late":                 {catalog.LateRelease, &model{}, never},
		"released late, of any driver": {catalog.LateRelease, &model{blind: true}, func(p fault.Point) bool {
			return p.Phase == tap.Acquire && p.After || p.Phase == tap.Read || p.Phase == tap.Release && !p.After
		}},
		"hangs":                   {catalog.Hang, &model{}, never},
		"disconnects":             {catalog.Cancel, &model{}, never},
		"without a server":        {catalog.RedisDown, &model{}, never},
		"forgotten by the server": {catalog.RedisRestart, &model{}, inWork},
		"cut off":                 {catalog.Partition, &model{}, inWork},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := fault.Find(tt.fault)
			if err != nil {
				t.Fatal(err)
			}
			var wrong []string
			for range 5 {
				longest := watchStalls(t)
				wrong = tt.lock.again(2*ttl).wrongUnder(t, f, tt.unsafe)
				if len(wrong) == 0 {
					return
				}
				if longest() < ttl/8 {
					t.Fatal(strings.Join(wrong, "\n"))
				}
			}
			t.Skipf("this machine is too slow:\n%s", strings.Join(wrong, "\n"))
		})
	}
}

// again returns a new model of the same kind.
func (m *model) again(wait time.Duration) *model {
	return &model{ttl: wait / 2, wait: wait, queues: m.queues, blind: m.blind, guarded: m.guarded}
}

// wrongUnder injects a fault at each step of a grab, and lists what is not as it should be.
func (m *model) wrongUnder(t *testing.T, f fault.Fault, unsafe func(fault.Point) bool) (wrong []string) {
	in, points := m.inject(t, f, map[catalog.Fault]fault.Step{catalog.RedisDown: m.fall, catalog.RedisRestart: m.forget}[f.Name])
	roles := map[fault.Role]bool{}
	for i, p := range points {
		roles[in.points[i].Role] = true
		want := map[bool]catalog.Verdict{true: catalog.Unsafe, false: catalog.Safe}[unsafe(in.points[i])]
		if p.Verdict != want || p.Struck != 1 || p.Strikes != 1 {
			wrong = append(wrong, fmt.Sprintf("%s: %s, hit %d of %d; want %s", p.Point, p.Verdict, p.Struck, p.Strikes, want))
		}
	}
	for _, c := range in.contests {
		for _, r := range c.all() {
			if n := m.asked[r]; n != 1 {
				wrong = append(wrong, fmt.Sprintf("%s: driver %d asked for order %d %d times", c.point, r.Driver, r.Order, n))
			}
		}
	}
	if f.Name == catalog.Pause && len(roles) != 3 {
		wrong = append(wrong, fmt.Sprintf("roles %v", roles))
	}
	return wrong
}

// watchStalls returns a function that returns for how long the machine has stopped this test since then.
func watchStalls(t *testing.T) (longest func() time.Duration) {
	var most time.Duration
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			time.Sleep(pollInterval)
			most = max(most, time.Since(began)-pollInterval)
		}
	})
	return func() time.Duration {
		cancel()
		watching.Wait()
		return most
	}
}

// TestTrailOfAHandOver lets drivers queue for a lock a while after their first try. The dry run must wait until the
// driver has queued. Otherwise, the holder would not wake it, and that call could not be tested.
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
	if got.queued != 2 || got.renews || got.shares {
		t.Errorf("queued after %d calls, renews %v, shares %v; want 2 and no renewals", got.queued, got.renews, got.shares)
	}
}

// TestCallsAfterTheResponse lets a service make calls for a while after its response. All of them must be listed, in
// their order, if each follows the one before soon enough.
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

// TestRestartOfTheOtherInstance pauses a driver at one instance while the other one is killed and restarts. The second
// instance makes the grabs itself, or forwards them to the first one. In that case, the instances must swap their roles.
// The order is grabbed twice only if the start-up code of the killed instance removes the locks.
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
