package experiment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/tap"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
)

// loaded returns a worker that tests the model without a fault.
func (m *model) loaded(t *testing.T) *worker {
	cfg := Config{TTL: time.Second, Instances: 2, Seed: 7, Out: t.TempDir(), Load: Load{Orders: 4, Drivers: 6, Timeout: 10 * time.Second, MaxWorkers: 1000}, Settle: 50 * time.Millisecond}
	w := &worker{cfg: cfg, stack: new(stack.Stack), fleet: m.start(t), orders: m, ledger: true, progress: &workerProgress{progress: newProgress(cfg)}, journal: &journal{dir: cfg.Out}, trails: new(trails)}
	w.fleet.Settings.OnLost = grab.Abort // like a running grabsvc
	return w
}

// TestLoadsOfAModel sends a load to model locks whose behaviour is known, with all drivers of an
// order at once. The cell's verdict and figures must match this behaviour.
func TestLoadsOfAModel(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lock    *model
		change  func(*worker, *model)
		verdict catalog.Verdict
		reason  string
		grabbed int
	}{
		"correct":            {&model{wait: 10 * time.Second, queues: true}, nil, catalog.Safe, "", 4},
		"refuses at once":    {&model{}, nil, catalog.Safe, "", 4},
		"only one instance":  {&model{wait: 10 * time.Second, queues: true}, func(w *worker, _ *model) { w.fleet.Instances = w.fleet.Instances[:1] }, catalog.Unknown, "only one instance answered, so this run cannot show whether the lock works between processes", 4},
		"one driver alone":   {&model{}, func(w *worker, _ *model) { w.cfg.Drivers = 1 }, catalog.Unknown, "no two drivers competed for the same order: raise -rate or -drivers", 4},
		"never frees a lock": {&model{}, func(_ *worker, m *model) { m.of(3).token = 9 }, catalog.Stuck, "1 of 4 orders can no longer be grabbed", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := tt.lock
			w := m.loaded(t)
			m.work = 50 * time.Millisecond // long enough that all drivers of an order compete
			if tt.change != nil {
				tt.change(w, m)
			}
			c := w.cell(t.Context(), lock.Strategy{Name: "model"}, w.cfg.Load)
			requests := w.cfg.Orders * w.cfg.Drivers
			outcomes := added(noOutcomes(), m.told)
			if c.Verdict != tt.verdict || c.Reason != tt.reason {
				t.Errorf("verdict %s (%s), want %s (%s)", c.Verdict, c.Reason, tt.verdict, tt.reason)
			}
			calls := func(server string) float64 { return float64(m.shown[1][server]-m.shown[0][server]) / float64(requests) }
			contended := w.cfg.Orders
			if w.cfg.Drivers == 1 {
				contended = 0
			}
			stuck := w.cfg.Orders - tt.grabbed
			if outcomes[grab.Grabbed] != tt.grabbed || sum(outcomes) != requests {
				t.Errorf("the model answered %v to %d requests", outcomes, requests)
			}
			if got, want := textOf([]any{c.Requests, c.Outcomes, c.Errors, sum(c.ServedBy), c.OfferedRPS, c.RedisCommandsPerRequest, c.DBStatementsPerRequest, c.CountedFrom, c.ContendedOrders, c.SettleMS}),
				textOf([]any{sum(outcomes), outcomes, map[string]int{}, requests, nil, calls("redis"), calls(tap.DB), fromLedger, contended, nil}); got != want {
				t.Errorf("figures are %s, want %s", got, want)
			}
			if got, want := textOf([]any{c.Grabs, c.OrdersGrabbed, c.DoubleGrabs, c.OrdersDoubleGrabbed, c.PhantomGrabs, c.UnacknowledgedGrabs, c.StuckOrders}), textOf([]any{tt.grabbed, tt.grabbed, 0, 0, 0, 0, stuck}); got != want {
				t.Errorf("ledger: %s, want %s", got, want)
			}
			if c.Latency == nil || c.LatencySent == nil || c.DurationS == nil || *c.CompletedRPS != float64(requests)/(*c.DurationS) || c.Points != nil || c.Timeline != nil || len(c.Checks) == 0 {
				t.Errorf("the cell lacks latencies or checks, or has points or a timeline: %s", textOf(c))
			}
			if len(w.fleet.Instances) == 2 && (len(c.ServedBy) != 2 || c.ServedBy["8004"] != requests/2) {
				t.Errorf("served by %v", c.ServedBy)
			}
		})
	}
}

// TestInspectionOfAModel inspects model services with various mistakes. Each problem must name the
// setting to change, and the inspection must list each request with the meaning of its response.
func TestInspectionOfAModel(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change    func(inspector, *model)
		key, text string // the problem's setting and description; empty if there is no problem
		answers   string // the meaning of each driver's response
		ledger    string
	}{
		"correct": {nil, "", "", "first driver of order 1: grabbed; second driver, too late: taken; first driver again: taken", "has 1 row for the order"},
		"locked": {func(_ inspector, m *model) { m.of(1).token = 9 }, "busy", `the first driver of a fresh order was answered with HTTP 423 {"outcome":"busy","instance":"8004"}, which means busy: open fresh orders, or correct the rules`,
			"first driver of order 1: busy", ""},
		"used before": {func(_ inspector, m *model) { m.rows = check.Rows([]check.Pair{{Order: 1, Driver: 7}}) }, "first-order", "the ledger has 1 row for orders 1 to 1 before the load, so these were used before: name fresh ones with -first-order, or open some with -open-orders", "", ""},
		"unknown drivers": {func(i inspector, m *model) { m.unknown = i.fleet.ProbeDriver(0) }, "path", "the first driver of a fresh order was answered with HTTP 404 404 page not found: correct the path; if it is right, the order does not exist: correct first-order, or open orders with open-orders. " +
			"If the service does not know driver DRIVER, set probe-drivers to the first of several drivers that it knows", "first driver of order 1: matches no rule", ""},
		"unknown drivers, who are named": {func(i inspector, m *model) { m.unknown = i.fleet.ProbeDriver(0) }, "path", "the first driver of a fresh order was answered with HTTP 404 404 page not found: correct the path; if it is right, the order does not exist: correct first-order, or open orders with open-orders",
			"first driver of order 1: matches no rule", ""},
		"fails": {func(_ inspector, m *model) { m.down = true }, "body", `the first driver of a fresh order was answered with HTTP 503 {"outcome":"error","instance":"8004"}: see the output of the service`, "first driver of order 1: matches no rule", ""},
		"another ledger": {func(i inspector, m *model) {
			m.inserts = func(g order.Grab) order.Grab { g.Driver = 5; return g }
		}, "ledger-query", "driver DRIVER won order 1, but the ledger names driver 5: select the column with the request's driver", "first driver of order 1: grabbed; second driver, too late: taken; first driver again: taken", "has a row for driver 5"},
		"no answer": {func(i inspector, _ *model) {
			i.fleet.Foreign, i.fleet.Instances[1].URL = true, "http://127.0.0.1:1"
		}, "service", `a driver who comes too late gets no response: Post "http://127.0.0.1:1/orders/1/grab?wait=0": dial tcp 127.0.0.1:1: connect: connection refused. The service must answer every driver. ` +
			"If this driver waits for a lock, the winner has not released it, for example because it used another connection of its pool",
			"first driver of order 1: grabbed; second driver, too late: no answer; first driver again: taken", "has 1 row for the order"},
		"no commit": {func(_ inspector, m *model) {
			m.inserts = func(g order.Grab) order.Grab { g.Order = 99; return g }
		}, "ledger-query" + "grabbed", "driver DRIVER won order 1, but the ledger has no row for it after 2s: query the table that stores the winners, or look for a missing COMMIT in the service. If the service writes the row later, set settle to the longest delay" +
			"two drivers of order 1 were both answered with status 200: set grabbed to a rule that only a winner's response matches, as in json:.code==0 or xml:/grab/code==0. If both were really told that they had won, write grabbed: 200, and run again",
			"first driver of order 1: grabbed; second driver, too late: grabbed; first driver again: grabbed", "has no row for the grab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &model{}
			w := m.loaded(t)
			w.cfg.Target.FirstOrder = 1
			if strings.HasSuffix(name, "who are named") {
				w.cfg.Target.ProbeDrivers = 1
			}
			i := w.inspector()
			w.fleet.Settings.OnLost, w.cfg.Target.Database.Query = "", "SELECT"
			i.auditor.cfg.Target.Database.Query = "SELECT"
			if tt.change != nil {
				tt.change(i, m)
			}
			p := i.inspect(t.Context(), lock.Strategy{Name: "model"})
			key, text := "", ""
			for _, problem := range p.Problems {
				key, text = key+problem.Key, text+problem.Text
			}
			want := strings.ReplaceAll(tt.text, "DRIVER", fmt.Sprint(w.fleet.ProbeDriver(0)))
			if key != tt.key || text != want {
				t.Errorf("problem %s: %s; want %s: %s", key, text, tt.key, want)
			}
			answers := catalog.Join(p.Answers, "; ", func(a SeenAnswer) string {
				meaning, _, _ := strings.Cut(a.Meaning, ",")
				return a.Question + ": " + meaning
			})
			if winner := (load.Request{Target: w.fleet.Instances[0].URL, Order: 1, Driver: w.fleet.ProbeDriver(0)}); len(p.Answers) == 3 && m.asked[winner] != 2 {
				t.Errorf("the first driver asks %d times, want 2: %v", m.asked[winner], m.asked)
			}
			if answers != tt.answers || p.Ledger != tt.ledger || p.Strategy != "model" {
				t.Errorf("%s, ledger %q; want %s, %q", answers, p.Ledger, tt.answers, tt.ledger)
			}
		})
	}
}
