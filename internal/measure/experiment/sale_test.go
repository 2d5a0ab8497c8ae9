package experiment

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// saleAt makes 20 drivers buy an order of 5 units from a stub service, one after the other, and
// returns the accounting. The function answer returns the response to the nth driver.
func saleAt(t *testing.T, answer func(n int) (status int, body string)) *accounting {
	t.Helper()
	var mu sync.Mutex
	n := 0
	s := stub(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		n++
		status, body := answer(n)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	p := load.NewPlan([]string{s.URL}, 1, 1, 20, 1)
	a := newAccounting(20, map[string]string{s.URL: "stub"}, target.Own)
	a.units = 5
	size := Load{Orders: 1, Drivers: 20, Rate: 1000, Timeout: 5 * time.Second, MaxWorkers: 1}
	if err := load.Attack(t.Context(), p, size, func(r *vegeta.Result, due time.Time) {
		if err := a.add(r, due); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	a.finish()
	return a
}

func TestAccountsOfASale(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answer  func(n int) (int, string)
		refused bool // whether drivers were refused after the last sale
		soldOut bool
		inOrder int
	}{
		{"first come, first served", func(n int) (int, string) { return map[bool]int{true: 200, false: 409}[n <= 5], "" }, true, true, 5},
		{"last come, first served", func(n int) (int, string) { return map[bool]int{true: 200, false: 409}[n > 15], "" }, false, true, 0},
		{"one is left, and all others are refused", func(n int) (int, string) { return map[bool]int{true: 200, false: 409}[n <= 4], "" }, true, false, 4},
		{"one is left, and all others may ask again", func(n int) (int, string) { return map[bool]int{true: 200, false: 423}[n <= 4], "" }, false, false, 4},
		{"one is left, and all others have theirs", func(n int) (int, string) {
			if n <= 4 {
				return 200, ""
			}
			return 409, `{"reason":"per_driver"}`
		}, false, false, 4},
		{"one is left, and the last fails", func(n int) (int, string) { return map[bool]int{true: 423, false: 503}[n < 20], "" }, true, false, 0},
		{"one too many", func(n int) (int, string) { return map[bool]int{true: 200, false: 409}[n <= 6], "" }, true, true, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := saleAt(t, tt.answer)
			if got := len(a.refusedLast) == 1; got != tt.refused || (a.soldOut == 1) != tt.soldOut || a.inOrder != tt.inOrder {
				t.Errorf("refused after the last sale: %v, sold out: %d, in order: %d; want %v, %v, %d", got, a.soldOut, a.inOrder, tt.refused, tt.soldOut, tt.inOrder)
			}
			if a.soldOutBy.After(a.lastEnd) || a.soldOut == 1 && a.soldOutBy.Before(a.began) {
				t.Errorf("sold out by %v, which is not between %v and %v", a.soldOutBy, a.began, a.lastEnd)
			}
		})
	}
}

// TestAnswersAfterTheLastSale gives a driver each kind of response, before and after the last sale.
// Only a response after the last sale can show that the service wrongly refused a driver while
// units were left. A driver that may retry, or got no response, does not count as refused.
func TestAnswersAfterTheLastSale(t *testing.T) {
	for _, tt := range []struct {
		meaning target.Meaning
		limited bool
		refused bool
	}{
		{target.Meaning{Outcome: grab.Taken}, false, true},
		{target.Meaning{Outcome: grab.Taken}, true, false},
		{target.Meaning{Outcome: grab.Busy}, false, false},
		{target.Meaning{Outcome: grab.Failed, Kind: load.Refused}, false, false},
		{target.Meaning{Outcome: grab.Failed, Kind: load.Interrupted, Unsure: true}, false, false},
		{target.Meaning{Outcome: grab.Failed, Kind: load.Reset, Unsure: true}, false, true},
		{target.Meaning{Outcome: grab.Failed, Kind: "http 503"}, false, true},
		{target.Meaning{Outcome: grab.Timeout, Kind: load.Timeout, Unsure: true}, false, true},
	} {
		for _, after := range []time.Duration{-time.Second, 0, time.Second} {
			a := newAccounting(3, nil, target.Own)
			a.units = 3
			f, sold := a.stateOf(1), a.began.Add(time.Minute)
			f.addSale(target.Meaning{Outcome: grab.Grabbed}, a.began, sold.Add(-2*time.Second), false)
			f.addSale(tt.meaning, a.began, sold.Add(after), tt.limited)
			f.addSale(target.Meaning{Outcome: grab.Grabbed}, a.began, sold, false)
			a.closeSale(f)
			if want, got := tt.refused && after > 0, len(a.refusedLast) > 0; got != want {
				t.Errorf("%+v, limited %v, %v after the last sale: refused %v", tt.meaning, tt.limited, after, got)
			}
		}
	}
}

// TestOneUnitOnly checks that a strategy that works only with orders of one unit is not run with
// several units.
func TestOneUnitOnly(t *testing.T) {
	unique, err := lock.Find("mysql-unique")
	if err != nil {
		t.Fatal(err)
	}
	for stock, want := range map[int]catalog.Verdict{1: "", 2: catalog.NA} {
		var got catalog.Verdict
		if c := (Config{Stock: stock}).excuse(&cellSpec{CellName: CellName{"mysql-unique", catalog.NoFault}, strategy: unique}); c != nil {
			got = c.Verdict
		}
		if got != want {
			t.Errorf("%d units: %q, want %q", stock, got, want)
		}
	}
}

// TestSale sells orders of several units from two instances. Without a lock, or with a lock that
// works only within an instance, they oversell and lose updates. With a shared lock or a
// conditional update, they sell exactly the stock.
func TestSale(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{stack.Embedded, stack.Local} {
		t.Run(kind, func(t *testing.T) {
			if kind == stack.Embedded && !proving {
				t.Skip("GRABLAB_PROVE is not 1: it takes long")
			}
			cfg := small(t, kind, "none", "mutex", "setnx", "mysql-cas")
			cfg.Orders, cfg.Drivers, cfg.Rate, cfg.Stock, cfg.Wait = 2, 100, 0, 20, 10*time.Second
			run, err := execute(t, t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if run.Config.Stock != 20 || run.Config.PerDriver != 0 {
				t.Errorf("the run's settings are %d units, %d for each driver; want 20 and 0", run.Config.Stock, run.Config.PerDriver)
			}
			for _, c := range run.Cells {
				if !c.AsExpected() || c.Sale == nil || c.Sale.LostUpdates == nil || c.Sale.Undersold == nil || c.Sale.SoldOutMS == nil || c.Sale.InOrder == nil || c.Sale.OverTime == nil {
					t.Errorf("sale of %s: %s (%s), %+v", c.Strategy, c.Verdict, c.Reason, c.Sale)
					continue
				}
				if c.Environment == nil || *c.Environment != run.Environment {
					t.Errorf("%s: the cell has the environment %+v, but the run has %+v", c.Strategy, c.Environment, run.Environment)
				}
				too := c.Verdict == catalog.Unsafe
				if *c.Grabs != 40+*c.DoubleGrabs || (*c.DoubleGrabs > 0) != too || (*c.Sale.LostUpdates > 0) != too || *c.Sale.Undersold != 0 || *c.Sale.OverLimit != 0 {
					t.Errorf("%s: %d sold, %d too many, %d updates lost, %d left, %d over the limit", c.Strategy, *c.Grabs, *c.DoubleGrabs, *c.Sale.LostUpdates, *c.Sale.Undersold, *c.Sale.OverLimit)
				}
				told := 0
				for _, n := range c.Sale.OverTime.Sold {
					told += n
				}
				if last := float64(len(c.Sale.OverTime.Sold)) * c.Sale.OverTime.SliceMS; told != c.Outcomes[grab.Grabbed] || last <= *c.Sale.SoldOutMS {
					t.Errorf("%s: the curve has %d sales in %g ms; want %d, beyond %g ms", c.Strategy, told, last, c.Outcomes[grab.Grabbed], *c.Sale.SoldOutMS)
				}
				if ms := *c.Sale.SoldOutMS; ms <= 0 || ms > 1000**c.DurationS {
					t.Errorf("%s: sold out after %g ms, but the load lasted %g s", c.Strategy, ms, *c.DurationS)
				}
				// A probe that wins a unit of a sold-out order counts as a double-grab. Each order
				// has one probe.
				if byProbes := *c.Grabs - c.Outcomes[grab.Grabbed]; byProbes < 0 || byProbes > 0 && !too || byProbes > cfg.Orders {
					t.Errorf("%s: the probes got %d units: outcomes %v, %d rows", c.Strategy, byProbes, c.Outcomes, *c.Grabs)
				}
				for _, k := range c.Checks {
					if k.Result == check.Fail && !too {
						t.Errorf("%s: %s fails: %s", c.Strategy, k.Property, k.Why)
					}
				}
			}
		})
	}
}

// TestSoldOverTime checks the curve of sales: the number of units sold in each time slice. The
// length of a slice depends on the time of the last sale.
func TestSoldOverTime(t *testing.T) {
	if o := soldOverTime(nil); o != nil {
		t.Errorf("without sales: %+v, want nil", o)
	}
	for _, tt := range []struct {
		ms    []int
		slice float64
		want  map[int]int // units by slice; slices without units are omitted
		n     int
	}{
		{[]int{0}, 1, map[int]int{0: 1}, 1},
		{[]int{47, 3, 3}, 1, map[int]int{3: 2, 47: 1}, 48},
		{[]int{48, 1}, 2, map[int]int{0: 1, 24: 1}, 25},
		{[]int{1000, 31, 32, -1}, 32, map[int]int{0: 2, 1: 1, 31: 1}, 32},
	} {
		var sales []time.Duration
		for _, ms := range tt.ms {
			sales = append(sales, time.Duration(ms)*time.Millisecond)
		}
		o := soldOverTime(sales)
		if o.SliceMS != tt.slice || len(o.Sold) != tt.n {
			t.Errorf("%v: %d slices of %g ms, want %d of %g", tt.ms, len(o.Sold), o.SliceMS, tt.n, tt.slice)
			continue
		}
		for i, n := range o.Sold {
			if n != tt.want[i] {
				t.Errorf("%v: %d in slice %d, want %d", tt.ms, n, i, tt.want[i])
			}
		}
	}
}

// emptyStore returns a store without orders. It closes the store when the test ends.
func emptyStore(t *testing.T) *order.SQL {
	t.Helper()
	store, err := order.Connect(t.Context(), "sqlite:"+t.TempDir()+"/orders.db", order.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestReadSale checks the figures of a sale that come from the ledger and the orders' counters, for
// orders of 3 units. A unit counts as undersold only if drivers were refused after the last sale.
// An oversold order must not compensate for another order with units left.
func TestReadSale(t *testing.T) {
	store := emptyStore(t)
	for _, tt := range []struct {
		name            string
		guard           order.Guard
		drivers         [][]int64 // drivers that write to each order, after all have read that 3 units are left
		refused         []int     // orders that refused drivers after their last sale
		perDriver       int
		left, over, too int // expected number of undersold units, units over the limit, and lost updates
	}{
		{"sold out", order.Decrement, [][]int64{{1, 2, 3}}, []int{0}, 0, 0, 0, 0},
		{"some are left", order.Decrement, [][]int64{{1}, {1, 2}}, nil, 0, 0, 0, 0},
		{"some are left, and drivers were refused", order.Decrement, [][]int64{{1}, {1, 2}, {1, 2, 3}}, []int{0, 2}, 0, 2, 0, 0},
		{"too many of one, and one is left of the other", order.Decrement, [][]int64{{1, 2, 3, 4, 5}, {1, 2}}, []int{0, 1}, 0, 1, 0, 0},
		{"all to one driver", order.Decrement, [][]int64{{1, 1, 1}, {1, 2, 1}}, nil, 1, 0, 3, 0},
		{"two to a driver", order.Decrement, [][]int64{{1, 1, 1}, {1, 2, 1}}, nil, 2, 0, 1, 0},
		{"three to a driver", order.Decrement, [][]int64{{1, 1, 1}, {1, 2, 1}}, nil, 3, 0, 0, 0},
		{"updates are lost", order.Naive, [][]int64{{1, 2, 3}, {1}, {1, 2}}, []int{2}, 0, 1, 0, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const units = 3
			first, err := store.Create(t.Context(), len(tt.drivers), units)
			if err != nil {
				t.Fatal(err)
			}
			for i, drivers := range tt.drivers {
				for n, driver := range drivers {
					c := order.Claim{Order: first + int64(i), Driver: driver, Token: fmt.Sprint(first, i, n), Stock: units}
					if err := store.Claim(t.Context(), c, tt.guard); err != nil {
						t.Fatal(err)
					}
				}
			}
			ledger, err := store.Ledger(t.Context(), first, len(tt.drivers))
			if err != nil {
				t.Fatal(err)
			}
			a := newAccounting(1, nil, target.Own)
			a.units = units
			for _, i := range tt.refused {
				a.refusedLast = append(a.refusedLast, first+int64(i))
			}
			c := Cell{Orders: len(tt.drivers), Sale: &Sale{Stock: units}}
			au := &auditor{store: store, cfg: Config{Stock: units, PerDriver: tt.perDriver}}
			au.readSale(t.Context(), &c, a, first, ledger)
			if *c.Sale.Undersold != tt.left || *c.Sale.OverLimit != tt.over || *c.Sale.LostUpdates != tt.too {
				t.Errorf("%d left, %d over the limit, %d updates lost; want %d, %d, %d",
					*c.Sale.Undersold, *c.Sale.OverLimit, *c.Sale.LostUpdates, tt.left, tt.over, tt.too)
			}
		})
	}
}

// TestWithoutWinner checks which orders are stuck: those whose probe was refused although the
// ledger has fewer rows than units. For a user's service, a driver that was told that it had won,
// but has no row, counts as a row.
func TestWithoutWinner(t *testing.T) {
	rows := []order.Grab{{Order: 1, Driver: 1}, {Order: 1, Driver: 2}, {Order: 2, Driver: 1}}
	p := probes{refused: []check.Pair{{Order: 4}, {Order: 3}, {Order: 2}, {Order: 1}}}
	for _, tt := range []struct {
		foreign bool
		told    []check.Pair
		want    []int64
	}{
		{false, nil, []int64{2, 3, 4}},
		{true, nil, []int64{2, 3, 4}},
		{true, []check.Pair{{Order: 2, Driver: 1}, {Order: 3, Driver: 2}}, []int64{2, 3, 4}},
		{true, []check.Pair{{Order: 2, Driver: 2}}, []int64{3, 4}},
		{false, []check.Pair{{Order: 2, Driver: 2}}, []int64{2, 3, 4}},
	} {
		got := p.withoutWinner(rows, &accounting{told: tt.told}, check.Evidence{Units: 2, Foreign: tt.foreign})
		if !slices.Equal(got, tt.want) {
			t.Errorf("foreign %v, told %v: %v, want %v", tt.foreign, tt.told, got, tt.want)
		}
	}
}

// TestLimitOfAnotherService refuses a driver after the last sale. The response contains the reason that
// our own instances give if a driver has all the units that it may have. Another service may use this
// field for a different purpose, so the refusal must count.
func TestLimitOfAnotherService(t *testing.T) {
	foreign := *target.Own
	for _, shape := range []*target.Shape{target.Own, &foreign} {
		for _, reason := range []string{grab.PerDriver, "sold_out"} {
			a := newAccounting(2, nil, shape)
			a.units = 2
			for driver, code := range []uint16{200, 409} {
				r := load.Request{Target: "http://a", Order: 1, Driver: int64(driver)}
				at := a.began.Add(time.Duration(driver) * time.Second)
				if err := a.add(&vegeta.Result{Code: code, Timestamp: at, URL: r.URL([]byte("/orders/1/grab")), Body: fmt.Appendf(nil, `{"reason":%q}`, reason)}, at); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := len(a.refusedLast) > 0, shape == &foreign || reason != grab.PerDriver; got != want {
				t.Errorf("our own instances %v, %s: refused after the last sale %v", shape == target.Own, reason, got)
			}
		}
	}
}

// TestLostUpdatesOfEachOrder counts the lost updates of two orders. The counter of the second order may
// have decreased more often than its rows show. This must not compensate for a lost update of the first
// order.
func TestLostUpdatesOfEachOrder(t *testing.T) {
	store := emptyStore(t)
	first, err := store.Create(t.Context(), 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	for n, guard := range []order.Guard{order.Naive, order.Naive, order.Decrement, order.Decrement} {
		if err := store.Claim(t.Context(), order.Claim{Order: first + int64(n/2), Driver: int64(n), Token: fmt.Sprint(n), Stock: 3}, guard); err != nil {
			t.Fatal(err)
		}
	}
	for rows := range 4 {
		lost := (&auditor{store: store}).lostUpdates(t.Context(), first, 2, map[int64]int{first: 2, first + 1: rows})
		if lost == nil || *lost != 1+max(0, rows-2) {
			t.Errorf("%d rows of the second order: %v lost updates", rows, lost)
		}
	}
}
