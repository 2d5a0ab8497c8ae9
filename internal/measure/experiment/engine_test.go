package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// TestPreparedAgain injects a fault that must be prepared again before each injection. Each
// preparation must be closed exactly once, before the next preparation, even if a step fails.
func TestPreparedAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ fails, steps, reason string }{
		{"", "prepare 1, strike 1, close 1, prepare 2, strike 2, close 2", ""},
		{"close 1", "prepare 1, strike 1, close 1", "close 1 failed"},
		{"prepare 2", "prepare 1, strike 1, close 1, prepare 2", "prepare 2 failed"},
		{"close 2", "prepare 1, strike 1, close 1, prepare 2, strike 2, close 2", "the fault could not be ended: close 2 failed"},
	} {
		t.Run("fails "+tt.fails, func(t *testing.T) {
			t.Parallel()
			f, err := fault.Find(catalog.Pause)
			if err != nil {
				t.Fatal(err)
			}
			f.Once = true
			tryLeases(t, 800*time.Millisecond, func(ttl time.Duration) (wrong []string) {
				m := &model{ttl: ttl, wait: 2 * ttl, guarded: true}
				n, steps := 0, []string{}
				step := func(name string, n int) error {
					steps = append(steps, fmt.Sprintf("%s %d", name, n))
					if last := steps[len(steps)-1]; last == tt.fails {
						return errors.New(last + " failed")
					}
					return nil
				}
				c := m.injectService(t, f, func(context.Context, fault.Target) (fault.Prepared, error) {
					n++
					this := n
					if err := step("prepare", this); err != nil {
						return fault.Prepared{}, err
					}
					return fault.Prepared{
						Strikes: []fault.Strike{{Do: func(context.Context, time.Duration) (stack.Heal, error) { return nil, step("strike", this) }}},
						Close:   func(context.Context) error { return step("close", this) },
					}, nil
				})
				if got := strings.Join(steps, ", "); got != tt.steps || !strings.Contains(c.Reason, tt.reason) || (c.Verdict == catalog.Safe) != (tt.fails == "") {
					wrong = append(wrong, fmt.Sprintf("%s: %s (%s); want %s (…%s…)", got, c.Verdict, c.Reason, tt.steps, tt.reason))
				}
				return wrong
			})
		})
	}
}

// TestReasonOfMissingRows hides the rows of some winners while a fault is injected. Several reasons
// then apply. The verdict must give the reason that promised grabs have no row, because its text also
// advises the user to check the ledger query.
func TestReasonOfMissingRows(t *testing.T) {
	t.Parallel()
	f, err := fault.Find(catalog.Pause)
	if err != nil {
		t.Fatal(err)
	}
	m, strikes := &model{ttl: 800 * time.Millisecond, wait: 1600 * time.Millisecond, guarded: true}, 0
	c := m.injectService(t, f, func(context.Context, fault.Target) (fault.Prepared, error) {
		return fault.Prepared{Strikes: []fault.Strike{{Do: func(context.Context, time.Duration) (stack.Heal, error) {
			if strikes++; strikes == 2 {
				m.locked(func() { m.hidden = m.rows[len(m.rows)-1].Order })
			}
			return nil, nil
		}}}}, nil
	})
	if c.Verdict != catalog.Unknown || !strings.Contains(c.Reason, "grabs were promised that the ledger does not have: does -ledger-query read all of them?") {
		t.Errorf("the verdict is %s (%s), want unknown because of promised grabs without a row", c.Verdict, c.Reason)
	}
}

// TestFreshDrivers makes the first requests for an order without a fault fail, which simulates
// connections that a fault has cut. If the service must reconnect, fresh drivers must be sent one
// by one until one wins, up to a maximum.
func TestFreshDrivers(t *testing.T) {
	t.Parallel()
	m := &model{ttl: 800 * time.Millisecond, wait: 1600 * time.Millisecond}
	in := m.injection(t, fault.Fault{Name: catalog.Pause, ContendFor: 1.5})
	first, _ := m.Create(t.Context(), 1000, 1)
	if _, err := in.sending(func(ctx context.Context) error {
		for _, reconnects := range []bool{false, true} {
			in.traits.reconnects = reconnects
			for fail := range injectionDrivers + freshDrivers + 2 {
				c := in.following(fault.Point{})
				m.locked(func() { m.dead[c.order] = fail })
				if err := newStrike(in, c).withoutFault(ctx); err != nil {
					return err
				}
				most, asked := injectionDrivers, 0
				if reconnects {
					most += freshDrivers
				}
				m.locked(func() {
					for r, n := range m.asked {
						if r.Order == c.order {
							asked += n
						}
					}
				})
				rows, _ := m.Ledger(ctx, c.order, 1)
				if want := min(max(injectionDrivers, fail+1), most); asked != want || len(rows) != min(1, max(0, most-fail)) {
					t.Errorf("reconnects %v, %d requests failed: %d requests were sent, want %d; rows %v", reconnects, fail, asked, want, rows)
				}
			}
		}
		return nil
	})(t.Context(), first); err != nil {
		t.Fatal(err)
	}
}

// TestServiceThatDoesNotRecover tests a service that fails all grabs after a fault has ended, for example because
// Redis has lost its scripts. The test must end soon, and the reason must quote the service's response.
func TestServiceThatDoesNotRecover(t *testing.T) {
	long(t)
	t.Parallel()
	f, err := fault.Find(catalog.RedisRestart)
	if err != nil {
		t.Fatal(err)
	}
	m, strikes := &model{ttl: 800 * time.Millisecond, wait: 1600 * time.Millisecond}, 0
	c := m.injectService(t, f, func(context.Context, fault.Target) (fault.Prepared, error) {
		return fault.Prepared{Strikes: []fault.Strike{{Do: func(context.Context, time.Duration) (stack.Heal, error) {
			strikes++
			m.locked(func() { m.broken = true })
			return nil, nil
		}}}}, nil
	})
	if want := "the service did not recover from the fault: "; c.Verdict != catalog.Unknown || !strings.Contains(c.Reason, want) || !strings.Contains(c.Reason, "503") || strikes != 1 {
		t.Errorf("the verdict after %d injections is %s (%s), want unknown after 1, because of %q", strikes, c.Verdict, c.Reason, want)
	}
}

// failingLedger is a ledger that can be read only while err is nil.
type failingLedger struct {
	*model
	err error
}

func (l *failingLedger) Ledger(ctx context.Context, first int64, count int) ([]order.Grab, error) {
	if l.err != nil {
		return nil, l.err
	}
	return l.model.Ledger(ctx, first, count)
}

// TestFirstReasonCounts checks which reason is given if there are several reasons not to trust a load.
// The error that ended the load comes before an unreadable ledger. Contradictory responses of the
// service come before both, unless the run was interrupted or the ledger could not be read.
func TestFirstReasonCounts(t *testing.T) {
	for bits := range 16 {
		interrupted, broken, unread, doubted := bits&1 > 0, bits&2 > 0, bits&4 > 0, bits&8 > 0
		t.Run(fmt.Sprintf("interrupted %v, broken %v, unread %v, doubted %v", interrupted, broken, unread, doubted), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			m := &model{ttl: 100 * time.Millisecond, wait: 0}
			cfg := Config{TTL: m.ttl, Seed: 7, Out: t.TempDir(), Settle: 50 * time.Millisecond, Stock: 1}
			cfg.Target.Database.Query = "SELECT"
			ledger := &failingLedger{model: m}
			w := &worker{cfg: cfg, fleet: m.start(t), orders: ledger, progress: &workerProgress{progress: newProgress(cfg)}, journal: &journal{dir: cfg.Out}}
			c := Cell{Orders: 2}
			got := w.measure(ctx, lock.Strategy{Name: "model"}, &c, &workload{send: func(context.Context, int64) (*accounting, error) {
				a := newAccounting(1, nil, target.Own)
				var err error
				if doubted {
					a.unreadable = "nobody knows"
				}
				if unread {
					ledger.err = errors.New("no table")
				}
				if broken {
					err = errors.New("broken")
				}
				if interrupted {
					cancel(errors.New("stopped"))
					err = cmp.Or(err, context.Cause(ctx))
				}
				return a, err
			}})
			want := ""
			switch {
			case doubted && !interrupted && !unread: // without a ledger, there are no figures to doubt
				want = "nobody knows"
			case broken:
				want = "interrupted: broken"
			case interrupted:
				want = "interrupted: stopped"
			case unread:
				want = "the ledger could not be read: no table"
			}
			if !strings.HasPrefix(got.invalid, want) || (got.invalid == "") != (want == "") {
				t.Errorf("the first reason is %q, want %q", got.invalid, want)
			}
		})
	}
}

// TestSettingsUnderFaults combines every fault with the settings that the user can choose. A driver
// must be able to wait for the end of an earlier lease. A client's timeout must be longer than an
// injection, but if the fault makes a request hang, not much longer than the other drivers need.
func TestSettingsUnderFaults(t *testing.T) {
	for _, f := range fault.Faults {
		for bits := range 8 {
			for _, timeout := range []time.Duration{time.Second, time.Minute, time.Hour} {
				for _, wait := range []time.Duration{0, 500 * time.Millisecond, 30 * time.Second} {
					cfg := Config{TTL: 7 * time.Second, Wait: wait, Work: time.Minute, Asked: Asked{TTL: bits&1 > 0, Wait: bits&2 > 0, Timeout: bits&4 > 0}}
					cfg.Timeout = timeout
					w := &worker{cfg: cfg}
					got := w.withSettingsFor(f).cfg
					want := Config{TTL: cmp.Or(f.TTL, time.Second), Wait: wait, Work: injectionWork}
					if cfg.Asked.TTL {
						want.TTL = cfg.TTL
					}
					if !cfg.Asked.Wait {
						want.Wait = 2 * want.TTL
					}
					name := fmt.Sprintf("%s, asked %+v, timeout %v, wait %v", f.Name, cfg.Asked, timeout, wait)
					if got.TTL != want.TTL || got.Wait != want.Wait || got.Work != want.Work || got.Drivers != injectionDrivers || w.cfg.TTL != cfg.TTL {
						t.Errorf("%s: TTL %v, wait %v, work %v, %d drivers", name, got.TTL, got.Wait, got.Work, got.Drivers)
					}
					held := time.Duration(f.ContendFor * float64(got.TTL)) // how long a driver is stopped before it waits for the lock
					least, most := max(timeout, held+2*got.TTL+got.Wait), max(timeout, 4*got.TTL+got.Wait)
					if f.Course == fault.Never && !cfg.Asked.Timeout {
						least = max(got.Wait, 2*got.TTL) + time.Second
						most = least
					}
					if got.Timeout < least || got.Timeout > most {
						t.Errorf("%s: the client waits %v, want %v to %v", name, got.Timeout, least, most)
					}
				}
			}
		}
	}
}

// TestEndOfTest checks when a budget ends a test, and the result after that. The budget that ends
// earlier counts. A failure that was already found must stay. Only the budget for the whole run
// leaves the test to a resumed run.
func TestEndOfTest(t *testing.T) {
	now := time.Now()
	for _, budget := range []time.Duration{time.Minute, time.Hour} {
		for _, total := range []time.Duration{0, time.Hour} {
			for _, left := range []time.Duration{-time.Second, time.Second, time.Minute - 1, time.Minute + 1, 2 * time.Hour} {
				cfg := Config{Budget: budget, BudgetTotal: total, deadline: now.Add(left)}
				end, why := cfg.endOfTest(now)
				want, wantWhy := now.Add(budget), errBudget
				if total > 0 && left < budget {
					want, wantWhy = now.Add(left), errBudgetTotal
				}
				if !end.Equal(want) || why != wantWhy {
					t.Errorf("%v per test, %v in total, of which %v are left: ends after %v, %v", budget, total, left, end.Sub(now), why)
				}
			}
		}
	}
	cfg := Config{Budget: time.Minute, BudgetTotal: time.Hour}
	for _, cause := range []error{nil, errBudget, errBudgetTotal, context.Canceled} {
		for _, v := range []catalog.Verdict{catalog.Safe, catalog.Unsafe, catalog.Stuck, catalog.Unknown, catalog.NA} {
			c := Cell{Verdict: v, Reason: "r"}
			cfg.noteEnd(&c, cause)
			reason := "r"
			switch {
			case v == catalog.Unknown && cause == errBudget:
				reason = "the test took longer than its budget of 1m0s: raise -budget; r"
			case v == catalog.Unknown && cause == errBudgetTotal:
				reason = "ended early, because -budget-total 1h0m0s ran out"
			}
			if c.Verdict != v || c.Reason != reason || c.Interrupted != (cause == errBudgetTotal) {
				t.Errorf("%s, ended by %v: %s (%s), interrupted %v", v, cause, c.Verdict, c.Reason, c.Interrupted)
			}
		}
	}
	m := measured{invalid: "interrupted: " + errBudget.Error()} // the load ends with the cause of the context
	c := Cell{Points: []Point{{Verdict: catalog.Safe}, {Point: "after acquire 1", Verdict: catalog.Unknown}}}
	c.Verdict, c.Reason = judge(c, m)
	cfg.noteEnd(&c, errBudget)
	if want := "the test took longer than its budget of 1m0s: raise -budget. Points without a verdict: after acquire 1"; c.Reason != want {
		t.Errorf("the budget ended the load: %s, want %s", c.Reason, want)
	}
	c = Cell{Verdict: catalog.Unknown, Reason: "stuck orders could not be counted: " + errBudget.Error()}
	cfg.noteEnd(&c, errBudget)
	if want := "the test took longer than its budget of 1m0s: raise -budget; stuck orders could not be counted"; c.Reason != want {
		t.Errorf("the budget ended the probes: %s, want %s", c.Reason, want)
	}
}

// TestSalesByDefinition counts random responses for orders with several units. It compares the
// figures of the sale with figures computed from the complete list of requests. A driver who is told
// to retry, or whom the service never served, does not count as refused.
func TestSalesByDefinition(t *testing.T) {
	shape := *target.Own
	r := rand.New(rand.NewPCG(15, 2))
	for n := range 500 {
		const orders, drivers = 3, 6
		a := newAccounting(drivers, nil, &shape)
		a.units = 2 + r.IntN(2)
		type asked struct {
			id         int64
			came, told time.Duration
			driverReply
		}
		var all []asked
		for id := range int64(orders) {
			for range drivers {
				came := time.Duration(r.IntN(1000)) * time.Millisecond
				reply := everyReply[r.IntN([]int{3, len(everyReply)}[n%2])]
				all = append(all, asked{id, came, came + time.Duration(1+r.IntN(1000))*time.Millisecond, reply})
			}
		}
		for i, k := range r.Perm(len(all)) { // the order in which responses are counted must not matter
			x := all[k]
			url := load.Request{Target: "http://a", Order: x.id, Driver: int64(i)}.URL([]byte("/"))
			result := &vegeta.Result{URL: url, Code: x.code, Timestamp: a.began.Add(x.came), Latency: x.told - x.came}
			if x.failure != "" {
				result.Error = `Post "http://a": ` + x.failure + ": it failed"
			}
			if err := a.add(result, a.began); err != nil {
				t.Fatal(err)
			}
		}
		a.finish()
		sold, inOrder, soldOut := 0, 0, 0
		var soldOutBy time.Duration
		var refused []int64
		for id := range int64(orders) {
			of := catalog.Filter(all, func(x asked) bool { return x.id == id })
			var sales []time.Duration
			lastLost := time.Duration(-1)
			for _, x := range of {
				switch {
				case x.outcome == grab.Grabbed:
					sales = append(sales, x.told)
				case x.outcome != grab.Busy && x.kind != load.Refused && x.kind != load.Interrupted:
					lastLost = max(lastLost, x.told)
				}
			}
			slices.Sort(sales)
			sold += len(sales)
			if len(sales) >= a.units {
				soldOut++
				soldOutBy = max(soldOutBy, sales[a.units-1])
			}
			if len(sales) == 0 && lastLost >= 0 || len(sales) > 0 && lastLost > sales[len(sales)-1] {
				refused = append(refused, id)
			}
			slices.SortStableFunc(of, func(x, y asked) int { return cmp.Compare(x.came, y.came) })
			came := catalog.Map(of, func(x asked) time.Duration { return x.came })
			if len(slices.Compact(came)) == drivers { // if two came at the same time, the result depends on chance
				for _, x := range of[:a.units] {
					if x.code == 200 {
						inOrder++
					}
				}
			} else {
				inOrder = -1000
			}
		}
		slices.Sort(a.refusedLast)
		if len(a.sales) != sold || a.soldOut != soldOut || !slices.Equal(a.refusedLast, refused) || inOrder >= 0 && a.inOrder != inOrder ||
			soldOut > 0 && a.soldOutBy.Sub(a.began) != soldOutBy {
			t.Fatalf("case %d, %d units: sold %d, in order %d, %d sold out after %v, refused %v; want %d, %d, %d, %v, %v\n%v",
				n, a.units, len(a.sales), a.inOrder, a.soldOut, a.soldOutBy.Sub(a.began), a.refusedLast, sold, inOrder, soldOut, soldOutBy, refused, all)
		}
		s := new(Sale)
		s.sold(a, orders)
		if (s.SoldOutMS != nil) != (soldOut == orders) || (s.InOrder != nil) != (sold > 0) {
			t.Errorf("case %d: %+v", n, s)
		}
	}
}

// TestRunsByDefinition runs random cells of random durations in virtual time, with several workers
// and a budget for the run. Cells without a fault must come first, one by one. No cell may start
// after the end of the budget. Only the first worker may run cells that need the slow servers. With
// a budget, cells that should fail must start first. Each cell must have one result, in the order
// of the table.
func TestRunsByDefinition(t *testing.T) {
	t.Parallel()
	names := []string{"setnx", "redlock", "mysql-cas", "zookeeper", "etcd-fenced", "none"}
	faults := []catalog.Fault{catalog.NoFault, catalog.Pause, catalog.Cancel, catalog.Hang, catalog.Partition}
	for seed := range uint64(repetitions(60, 200)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 15))
			cfg := Config{Scenario: "rush", OnLost: grab.Abort, TTL: time.Second, Instances: 2, Seed: seed, Out: t.TempDir(), Workers: 1 + r.IntN(3), Repeat: 1 + r.IntN(2), BudgetTotal: time.Duration(r.IntN(3)) * time.Minute}
			cfg.Stack.Kind = stack.Local
			cfg.Faults = faults[:1+r.IntN(len(faults))]
			for _, i := range r.Perm(len(names))[:1+r.IntN(len(names))] {
				s, err := lock.Find(names[i])
				if err != nil {
					t.Fatal(err)
				}
				cfg.Strategies = append(cfg.Strategies, s)
			}
			type began struct {
				*cellSpec
				at     time.Duration
				worker int
			}
			var log []began
			saved := 0
			start := time.Now()
			run := newRunner(cfg, func(got *Run) error {
				saved++
				return got.Contradiction()
			})
			run.layOut(nil)
			for _, s := range run.specs {
				run.needs |= s.strategy.Needs
			}
			for i := range run.workers {
				run.workers[i] = &worker{cfg: cfg, progress: &workerProgress{progress: run.progress}}
			}
			run.runCell = func(w *worker, _ context.Context, s *cellSpec) Cell {
				run.mu.Lock()
				log = append(log, began{s, time.Since(start), slices.Index(run.workers, w)})
				took := time.Duration(1+r.IntN(20)) * time.Second
				run.mu.Unlock()
				time.Sleep(took)
				return blankCell(s)
			}
			if err := run.runAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			fails := func(s *cellSpec) bool {
				v := s.strategy.Expected(s.Fault)
				return v == catalog.Unsafe || v == catalog.Stuck
			}
			times := map[CellName]int{}
			for i, b := range log {
				times[b.CellName]++
				if cfg.BudgetTotal > 0 && b.at >= cfg.BudgetTotal {
					t.Errorf("seed %d: %s begins after %v, but the budget is %v", seed, b.CellName, b.at, cfg.BudgetTotal)
				}
				if b.worker > 0 && b.strategy.Needs&coordinators != 0 {
					t.Errorf("seed %d: worker %d runs %s", seed, b.worker, b.CellName)
				}
				if i == 0 {
					continue
				}
				before := log[i-1]
				if b.Fault == catalog.NoFault && (before.Fault != catalog.NoFault || before.at == b.at) {
					t.Errorf("seed %d: %s runs together with or after %s", seed, b.CellName, before.CellName)
				}
				if cfg.BudgetTotal > 0 && cfg.Workers == 1 && before.Fault != catalog.NoFault {
					if fails(b.cellSpec) && !fails(before.cellSpec) || fails(b.cellSpec) == fails(before.cellSpec) && catalog.KindsThatFail(b.Fault) > catalog.KindsThatFail(before.Fault) {
						t.Errorf("seed %d: %s comes after %s, which is less likely to fail", seed, b.CellName, before.CellName)
					}
				}
			}
			complete := true
			for i, c := range run.run.Cells {
				s := run.specs[i]
				want := 1
				if s.Fault == catalog.NoFault {
					want = cfg.Repeat
				}
				if excused := cfg.excuse(s) != nil; excused {
					want = 0
				} else if times[s.CellName] == 0 && (c.Verdict != catalog.Unknown || !c.Interrupted || !strings.Contains(c.Reason, "not run, because -budget-total")) {
					t.Errorf("seed %d: %s was not run, but is %s (%s)", seed, s.CellName, c.Verdict, c.Reason)
				}
				complete = complete && times[s.CellName] == want
				if c.Name() != s.CellName || times[s.CellName] > want || cfg.BudgetTotal == 0 && times[s.CellName] != want {
					t.Errorf("seed %d: result %d is of %s, want %s; it ran %d times", seed, i, c.Name(), s.CellName, times[s.CellName])
				}
			}
			if len(run.run.Cells) != len(run.specs) || run.run.Complete != complete || saved < len(log) {
				t.Errorf("seed %d: %d of %d results, complete %v, want %v; saved %d times", seed, len(run.run.Cells), len(run.specs), run.run.Complete, complete, saved)
			}
		})
	}
}

// TestVerdictsOfAModelAreTrue injects faults into 16 kinds of model services, and in make prove into all 32. At any
// speed of the machine, a service that wrote two winners of an order must not be called safe. A service that never
// wrote two winners must not be called unsafe. The double-grabs of each service must be counted correctly.
func TestVerdictsOfAModelAreTrue(t *testing.T) {
	t.Parallel()
	faults := []catalog.Fault{catalog.Pause, catalog.RedisDown, catalog.RedisRestart, catalog.Partition}
	for traits := range 1 << 5 {
		if !proving && bits.OnesCount(uint(traits))%2 == 0 { // the 16 services that run have every combination of any four flags
			continue
		}
		f, err := fault.Find(faults[(traits+traits>>2)%len(faults)])
		if err != nil {
			t.Fatal(err)
		}
		m := &model{ttl: 600 * time.Millisecond, wait: 1200 * time.Millisecond, guarded: traits&1 > 0, open: traits&2 > 0, keeps: traits&4 > 0, impatient: traits&8 > 0, unread: traits&16 > 0}
		t.Run(fmt.Sprintf("%s, guarded %v, open %v, keeps %v, impatient %v, unread %v", f.Name, m.guarded, m.open, m.keeps, m.impatient, m.unread), func(t *testing.T) {
			t.Parallel()
			c := m.injectService(t, f, nil)
			double := 0
			m.locked(func() {
				wrote := m.wrote
				if !m.unread { // an impatient service may still write after its ledger was read
					wrote = m.wrote[:m.read]
				}
				rows := slices.DeleteFunc(slices.Clone(wrote), func(g order.Grab) bool { // ignore orders that only probes asked for
					return !slices.ContainsFunc(wrote, func(o order.Grab) bool { return o.Order == g.Order && o.Driver < history.ProbeDriver })
				})
				double = check.CountGrabs(rows, 1).DoubleGrabs
			})
			if c.Verdict == catalog.Safe && double > 0 || c.Verdict == catalog.Unsafe && double == 0 {
				t.Errorf("%s (%s), but the service wrote %d winners too many", c.Verdict, c.Reason, double)
			}
			if c.CountedFrom == fromLedger && c.DoubleGrabs != nil && !m.keeps && *c.DoubleGrabs != double {
				t.Errorf("%d double-grabs were counted, but the service wrote %d winners too many", *c.DoubleGrabs, double)
			}
			t.Logf("%s (%s), %d winners too many", c.Verdict, c.Reason, double)
		})
	}
}

// TestExpectationsOfACell checks which verdicts are expected of an empty cell, for each kind of
// instances. Expectations of the user replace those of the registry. No verdict is expected if the
// program cannot see the lock, or if the fault cannot hit the service.
func TestExpectationsOfACell(t *testing.T) {
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	for bits := range 1 << 3 {
		service, replaced, foreign := bits&1 != 0, bits&2 != 0, bits&4 != 0
		for _, skipped := range []catalog.Verdict{"", catalog.NA, catalog.Unknown} {
			cfg := Config{Scenario: "rush", OnLost: grab.Abort, TTL: time.Second, Instances: 2}
			s, want := setnx, new(setnx.Expected(catalog.Pause))
			exclusive := !service && !replaced && !foreign
			if service {
				cfg.Target.URLs = []string{"http://h:1"}
			}
			if foreign {
				s.New, want = nil, nil
			}
			if replaced {
				want = new(catalog.Stuck)
				cfg.Expect = []target.Expectation{{Strategy: "setnx", Fault: catalog.NoFault, Verdict: catalog.Safe}, {Strategy: "none", Fault: catalog.Pause, Verdict: catalog.Safe}, {Strategy: "setnx", Fault: catalog.Pause, Verdict: *want}}
			}
			c := cfg.newCell(s, catalog.Pause)
			if skipped != "" {
				c.skip(skipped, "because")
			}
			if skipped == catalog.NA {
				want, exclusive = nil, false
			}
			if c.Verdict != skipped || (c.Reason != "") != (skipped != "") || (c.Expected == nil) != (want == nil) || want != nil && *c.Expected != *want || (c.ExpectedExclusive != nil) != exclusive || (c.Guard == "") != foreign {
				t.Errorf("service %v, expectations %v, foreign lock %v, skipped %q: %s", service, replaced, foreign, skipped, textOf(c))
			}
		}
	}
}

// TestControlOfASearch checks that a search for the highest rate adds the strategy without a lock. It
// must add this strategy only once, and not at all if the user has named the tests.
func TestControlOfASearch(t *testing.T) {
	for bits := range 1 << 3 {
		search, has, named := bits&1 != 0, bits&2 != 0, bits&4 != 0
		cfg, strategies := Config{Scenario: "rush"}, []lock.Strategy{{Name: "setnx"}}
		if search {
			cfg.Scenario = "peak"
		}
		if has {
			strategies = append(strategies, lock.Strategy{Name: lockless})
		}
		if named {
			cfg.Only = []CellName{{"setnx", catalog.NoFault}}
		}
		want := len(strategies)
		if search && !has && !named {
			want++
		}
		if got := cfg.withControl(strategies); len(got) != want || want > len(strategies) != (got[0].Name == lockless) {
			t.Errorf("search %v, has the control %v, names tests %v: %d strategies", search, has, named, len(got))
		}
	}
}
