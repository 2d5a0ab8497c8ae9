package experiment

import (
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/shard"
	"grablab/internal/testbed/target"
)

// calmCell returns a cell without a fault and without errors, and its measurements.
func calmCell() (Cell, measured) {
	return Cell{
			Strategy: "setnx", Fault: catalog.NoFault, Orders: 10, DoubleGrabs: new(0), OrdersDoubleGrabbed: new(0),
			StuckOrders: new(0), Overlaps: new(0), ContendedOrders: new(10),
		}, measured{accounting: &accounting{
			tried: 10, competed: map[string]bool{"8004": true, "8005": true},
		}}
}

// struckCell returns a cell with a fault that struck at each point without causing a failure.
func struckCell() (Cell, measured) {
	c, m := calmCell()
	c.Fault, c.Orders, m.tried = catalog.Pause, 4, 1
	c.Points = []Point{
		{Point: "after read", Strikes: 2, Struck: 2, Verdict: catalog.Safe},
		{Point: "before claim 1", Strikes: 1, Struck: 1, Verdict: catalog.Safe},
	}
	return c, m
}

// TestJudge checks the verdict and the reason for each single cause, and which cause counts if
// there are several.
func TestJudge(t *testing.T) {
	type change = func(*Cell, *measured)
	double := func(c *Cell, _ *measured) { c.DoubleGrabs, c.OrdersDoubleGrabbed = new(3), new(2) }
	stuck := func(c *Cell, _ *measured) { c.StuckOrders = new(1) }
	leaked := func(c *Cell, m *measured) {
		c.StuckOrders, m.busy = new(2), map[int64]bool{7: true, 8: true}
		m.evidence = check.Evidence{Stuck: []int64{7, 8}, Ledger: check.Rows([]check.Pair{{Order: 7, Driver: 1}, {Order: 8, Driver: 1}})}
	}
	invalid := func(_ *Cell, m *measured) { m.invalid = "events were lost: 3 are missing" }
	missed := func(c *Cell, _ *measured) { c.Points[0].Struck = 1 }
	unclear := func(c *Cell, _ *measured) { c.Points[1].Verdict = catalog.Unknown }
	units := func(left int) change { // each order had two units; left is how many of them were not sold in total
		return func(c *Cell, _ *measured) {
			c.Sale, c.Grabs = &Sale{Stock: 2, Undersold: &left}, new(2*c.Orders-left)
			c.Points[0].Unsold, c.Points[1].Unsold = new(0), &left
		}
	}
	for _, tt := range []struct {
		name    string
		of      func() (Cell, measured)
		changes []change
		want    catalog.Verdict
		reason  string
	}{
		{"calm", calmCell, nil, catalog.Safe, ""},
		{"struck", struckCell, nil, catalog.Safe, ""},
		{"double", calmCell, []change{double}, catalog.Unsafe, "2 of 10 orders were grabbed more than once"},
		{"double at a point", struckCell, []change{double, func(c *Cell, _ *measured) { c.Points[1].Verdict = catalog.Unsafe }}, catalog.Unsafe, "2 of 4 orders were grabbed more than once: before claim 1"},
		{"double, and all else", struckCell, []change{double, stuck, invalid, missed, unclear}, catalog.Unsafe, "2 of 4 orders were grabbed more than once"},
		{"stuck", calmCell, []change{stuck}, catalog.Stuck, "1 of 10 orders can no longer be grabbed"},
		{"stuck, and nothing else is sure", struckCell, []change{stuck, invalid, missed, unclear}, catalog.Stuck, "1 of 4 orders can no longer be grabbed"},
		{"stuck, with winners and leaked locks", calmCell, []change{leaked}, catalog.Stuck, "2 of 10 orders have a winner, but still answer busy, for example because their locks are not released"},
		{"stuck, one with a winner and a leaked lock", calmCell, []change{leaked, func(c *Cell, m *measured) {
			c.StuckOrders, m.evidence.Stuck, m.busy = new(1), []int64{7}, map[int64]bool{7: true}
		}}, catalog.Stuck, "1 of 10 orders has a winner, but still answers busy, for example because its lock is not released"},
		{"stuck at a point, with a winner", struckCell, []change{leaked, func(c *Cell, _ *measured) { c.Points[1].Verdict = catalog.Stuck }}, catalog.Stuck,
			"2 of 4 orders have a winner, but still answer busy, for example because their locks are not released: before claim 1"},
		{"stuck, and one has no winner", calmCell, []change{leaked, func(_ *Cell, m *measured) { m.evidence.Ledger = m.evidence.Ledger[1:] }}, catalog.Stuck, "2 of 10 orders can no longer be grabbed"},
		{"stuck, and one does not answer", calmCell, []change{leaked, func(_ *Cell, m *measured) { delete(m.busy, 8) }}, catalog.Stuck, "2 of 10 orders can no longer be grabbed"},
		{"stuck, with units left", calmCell, []change{leaked, func(c *Cell, m *measured) { c.Sale, m.evidence.Units = &Sale{Stock: 2}, 2 }}, catalog.Stuck, "2 of 10 orders can no longer be grabbed"},
		{"invalid", calmCell, []change{invalid}, catalog.Unknown, "events were lost: 3 are missing"},
		{"invalid, and one point is unknown", struckCell, []change{invalid, unclear}, catalog.Unknown, "events were lost: 3 are missing. Points without a verdict: before claim 1"},
		{"invalid, and no point is known", struckCell, []change{invalid, unclear, func(c *Cell, _ *measured) { c.Points = c.Points[1:] }}, catalog.Unknown, "events were lost: 3 are missing"},
		{"double-grabs not counted", calmCell, []change{func(c *Cell, _ *measured) { c.DoubleGrabs = nil }}, catalog.Unknown, "double-grabs could not be counted: neither the ledger nor the responses say who has won"},
		{"stuck orders not counted", calmCell, []change{func(c *Cell, _ *measured) { c.StuckOrders = nil }}, catalog.Unknown, "stuck orders could not be counted"},
		{"a point was missed once", struckCell, []change{missed}, catalog.Unknown, "the fault could not be tested: after read"},
		{"a point was never struck", struckCell, []change{func(c *Cell, _ *measured) { c.Points[1].Struck = 0 }}, catalog.Unknown, "the fault could not be tested: before claim 1"},
		{"a moment came too late", struckCell, []change{func(c *Cell, _ *measured) {
			c.Points[1].Point, c.Points[1].Struck, c.Fault = "moment 1 of 1 (38.0 of 76.0 ms)", 0, catalog.Crash
		}}, catalog.Unknown,
			"the fault could not be tested. The grab had ended before the process was killed: start the process again, and repeat the run. Points without a verdict: moment 1 of 1 (38.0 of 76.0 ms)"},
		{"no driver competed at a point", struckCell, []change{unclear}, catalog.Unknown, "no contender got far enough to show a failure (past the lock, or refused by it after the lease had ended): before claim 1"},
		{"no driver competed at a point of a service", struckCell, []change{unclear, func(_ *Cell, m *measured) { m.advice = ". Set lease" }}, catalog.Unknown,
			"no contender got far enough to show a failure (past the lock, or refused by it after the lease had ended): before claim 1. Set lease"},
		{"one instance served", calmCell, []change{func(_ *Cell, m *measured) { delete(m.competed, "8004") }}, catalog.Unknown, "only one instance answered, so this run cannot show whether the lock works between processes"},
		{"no contention", calmCell, []change{func(c *Cell, _ *measured) { c.ContendedOrders = new(0) }}, catalog.Unknown, "no two drivers competed for the same order: raise -rate or -drivers"},
		{"no order was grabbed", calmCell, []change{func(c *Cell, _ *measured) { c.OrdersGrabbed = new(0) }}, catalog.Unknown, "no order was grabbed at all"},
		{"sold out", calmCell, []change{func(c *Cell, _ *measured) { c.Sale, c.Grabs = &Sale{Stock: 5, Undersold: new(0)}, new(50) }}, catalog.Safe, ""},
		{"oversold", calmCell, []change{func(c *Cell, _ *measured) {
			c.Sale, c.Grabs, c.DoubleGrabs, c.OrdersDoubleGrabbed = &Sale{Stock: 5, Undersold: new(3)}, new(52), new(2), new(1)
		}}, catalog.Unsafe, "1 of 10 orders was sold more than 5 times"},
		{"undersold, but the load did not end", calmCell, []change{invalid, func(c *Cell, _ *measured) { c.Sale, c.Grabs = &Sale{Stock: 5, Undersold: new(3)}, new(47) }}, catalog.Unknown, "events were lost: 3 are missing"},
		{"undersold", calmCell, []change{func(c *Cell, _ *measured) { c.Sale, c.Grabs = &Sale{Stock: 5, Undersold: new(3)}, new(47) }}, catalog.Stuck, "3 units were left, and drivers were refused after the last sale"},
		{"too many to one driver", calmCell, []change{func(c *Cell, _ *measured) { c.Sale, c.Grabs = &Sale{Stock: 5, OverLimit: new(1)}, new(50) }}, catalog.Unsafe, "1 unit was sold to drivers who already had the maximum"},
		{"not sold out", calmCell, []change{func(c *Cell, _ *measured) { c.Sale, c.Grabs = &Sale{Stock: 5, Undersold: new(0)}, new(49) }}, catalog.Unknown, "an order was not sold out, so no two drivers competed for its last unit"},
		{"sold out under a fault", struckCell, []change{units(0)}, catalog.Safe, ""},
		{"oversold at a point", struckCell, []change{units(0), double, func(c *Cell, _ *measured) { c.Points[1].Verdict = catalog.Unsafe }}, catalog.Unsafe, "2 of 4 orders were sold more than 2 times: before claim 1"},
		{"a unit left at a point, which a fresh driver gets", struckCell, []change{units(1), unclear}, catalog.Unknown, "an order was not sold out, so no two drivers competed for its last unit: before claim 1"},
		{"a unit left at a point, which no driver gets", struckCell, []change{units(1), stuck, func(c *Cell, _ *measured) { c.Points[1].Verdict = catalog.Stuck }}, catalog.Stuck, "1 of 4 orders can no longer be grabbed: before claim 1"},
		{"a unit left where the fault could not be tested", struckCell, []change{units(1), unclear, missed}, catalog.Unknown, "the fault could not be tested: after read"},
		{"too few competed at a point for the units", struckCell, []change{units(0), unclear}, catalog.Unknown, "fewer than 2 contenders got far enough to show a failure (past the lock, or refused by it after the lease had ended): before claim 1"},
		{"an order was not tried", calmCell, []change{func(_ *Cell, m *measured) { m.tried = 9 }}, catalog.Unknown, "1 of 10 orders was never tried, because no driver got the lock: lower -rate, or let drivers wait longer for the lock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, m := tt.of()
			for _, change := range tt.changes {
				change(&c, &m)
			}
			if got, reason := judge(c, m); got != tt.want || reason != tt.reason {
				t.Errorf("judge: %s (%s), want %s (%s)", got, reason, tt.want, tt.reason)
			}
		})
	}
}

// TestReasonNamesAnOrder checks that the reason names a failed order by its ID in the service.
func TestReasonNamesAnOrder(t *testing.T) {
	shape, _, err := target.Spec{Path: "/tickets/{order_uuid}/grab"}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shape.IDs.Add([]string{"t-a", "t-b"}); err != nil {
		t.Fatal(err)
	}
	c, m := struckCell()
	m.shape, m.evidence.Foreign = shape, true
	m.evidence.Ledger = check.Rows([]check.Pair{{Order: 1, Driver: 1}, {Order: 2, Driver: 1}, {Order: 2, Driver: 2}})
	c.Points[1].Verdict, c.DoubleGrabs, c.OrdersDoubleGrabbed = catalog.Unsafe, new(1), new(1)
	if _, reason := judge(c, m); reason != "1 of 4 orders was grabbed more than once, for example order t-b: before claim 1" {
		t.Error(reason)
	}
	c, m.evidence.Ledger = Cell{Orders: 4, StuckOrders: new(1)}, nil
	m.evidence.Stuck = []int64{1}
	if _, reason := judge(c, m); reason != "1 of 4 orders can no longer be grabbed, for example order t-a" {
		t.Error(reason)
	}
	m.busy = map[int64]bool{1: true} // its lock may live longer than the user knows
	if _, reason := judge(c, m); reason != "1 of 4 orders can no longer be grabbed, for example order t-a; if the lock expires by itself, but later, set -lease to its lifetime" {
		t.Error(reason)
	}
	m.busy, m.winnerless = nil, []int64{1} // the service answers "taken" while the lock is held
	if _, reason := judge(c, m); !strings.HasSuffix(reason, "; if the lock expires by itself, but later, set -lease to its lifetime") {
		t.Error(reason)
	}
}

// TestHintOfALongerLease checks for every combination of observations whether the reason advises to set -lease. The advice
// needs an order of the user's service that was refused in one of three ways, and no statement that the lock never expires.
func TestHintOfALongerLease(t *testing.T) {
	for n := range 1 << 7 {
		flag := func(i int) bool { return n>>i&1 == 1 }
		busy, stuckBefore, winnerless, foreign, noExpiry, counted, second := flag(0), flag(1), flag(2), flag(3), flag(4), flag(5), flag(6)
		m := measured{noExpiry: noExpiry, evidence: check.Evidence{Foreign: foreign, Stuck: []int64{1}}}
		refused := int64(1)
		if second { // only the second of the stuck orders was refused
			m.evidence.Stuck, refused = []int64{1, 2}, 2
		}
		if counted {
			m.accounting = newAccounting(1, nil, target.Own)
			if busy {
				m.busy = map[int64]bool{refused: true}
			}
			if stuckBefore {
				m.stuck = map[int64]bool{refused: true}
			}
			if winnerless {
				m.winnerless = []int64{7, refused}
			}
		}
		want := counted && foreign && !noExpiry && (busy || stuckBefore || winnerless)
		if got := m.mayExpire(); (got != "") != want {
			t.Errorf("busy %v, stuck before %v, without winner %v, foreign %v, no expiry %v, counted %v, second order %v: %q", busy, stuckBefore, winnerless, foreign, noExpiry, counted, second, got)
		}
	}
}

// TestUnknownQuotesAnswers checks that the reason of an unknown verdict quotes a response that
// matches no rule, unless it already does. Under a fault, it adds that the fault may be the reason.
func TestUnknownQuotesAnswers(t *testing.T) {
	const reason = "an order that no fault hit was not grabbed"
	const contenders = "no contender got far enough to show a failure (past the lock, or refused by it after the lease had ended): before claim 1"
	for _, tt := range []struct {
		fault   catalog.Fault
		invalid string
		errors  map[string]int
		want    string
	}{
		{catalog.Pause, reason, map[string]int{"http 500": 7, "reset": 9}, reason + ". Some requests failed: http 500 7 (deadlock found). The fault may be the reason. If a driver may try again after this response, say so with -busy"},
		{catalog.NoFault, reason, map[string]int{"http 500": 7}, reason + ". Some requests failed: http 500 7 (deadlock found). If a driver may try again after this response, say so with -busy"},
		{catalog.NoFault, reason, map[string]int{"http 500": 7, "http 503": 1}, reason + ". Some responses match no rule: http 500 7 (deadlock found), http 503 1" + ifLost},
		{catalog.Pause, reason, map[string]int{"reset": 9}, reason},
		{catalog.Pause, "", map[string]int{"http 503": 7, "reset": 9}, contenders + ". Some responses match no rule: http 503 7. The fault may be the reason" + ifLost},
		{catalog.Pause, reason + ": http 500 7", map[string]int{"http 500": 7}, reason + ": http 500 7"},
	} {
		c, m := struckCell()
		c.Fault = tt.fault
		c.Points = []Point{{Point: "before claim 1", Strikes: 1, Struck: 1, Verdict: catalog.Unknown}}
		m.invalid, m.shape, m.errors, m.samples = tt.invalid, target.Plain, tt.errors, map[string]string{"http 500": "deadlock found"}
		if c.conclude(m); c.Verdict != catalog.Unknown || c.Reason != tt.want {
			t.Errorf("%s (%s), want unknown (%s)", c.Verdict, c.Reason, tt.want)
		}
	}
}

// TestJudgeLock checks the verdict on the lock itself. Two holders at once always decide it.
// Otherwise, it is known only if the cell was tested completely.
func TestJudgeLock(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Cell, *measured)
		want   *string
	}{
		{"apart", func(*Cell, *measured) {}, new(Yes)},
		{"two inside", func(c *Cell, _ *measured) { c.Overlaps = new(1) }, new(No)},
		{"two inside, and not all is known", func(c *Cell, m *measured) { c.Overlaps, m.invalid, c.Points[0].Struck = new(1), "x", 0 }, new(No)},
		{"no lock", func(c *Cell, _ *measured) { c.Overlaps = nil }, nil},
		{"not all is known", func(_ *Cell, m *measured) { m.invalid = "x" }, nil},
		{"a point was missed", func(c *Cell, _ *measured) { c.Points[0].Struck = 1 }, nil},
		{"no driver competed at a point", func(c *Cell, _ *measured) { c.Points[0].Verdict = catalog.Unknown }, nil},
		{"one instance answered", func(_ *Cell, m *measured) { m.competed = map[string]bool{"a": true} }, nil},
		{"no order was contended", func(c *Cell, _ *measured) { c.ContendedOrders = new(0) }, nil},
	} {
		c, m := struckCell()
		tt.change(&c, &m)
		got := judgeLock(c, m)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: judgeLock: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestAsExpected checks that only exactly the expected verdict is as expected. A better verdict is
// not.
func TestAsExpected(t *testing.T) {
	for _, tt := range []struct {
		verdict, expected catalog.Verdict
		exclusive, claim  *string
		want              bool
	}{
		{catalog.Safe, catalog.Safe, new(Yes), new(Yes), true},
		{catalog.Unsafe, catalog.Unsafe, new(No), new(No), true},
		{catalog.Safe, catalog.Unsafe, new(No), new(No), false},
		{catalog.Unsafe, catalog.Safe, new(No), new(No), false},
		{catalog.Unknown, catalog.Safe, new(Yes), new(Yes), false},
		{catalog.Unknown, catalog.Unsafe, new(No), new(No), false},
		{catalog.Safe, catalog.Safe, new(Yes), new(No), false},
		{catalog.Safe, catalog.Safe, new(No), new(Yes), false},
		{catalog.Safe, catalog.Safe, nil, new(Yes), false},
		{catalog.Safe, catalog.Safe, nil, nil, true},
	} {
		c := Cell{Verdict: tt.verdict, Expected: &tt.expected, Exclusive: tt.exclusive, ExpectedExclusive: tt.claim}
		if c.AsExpected() != tt.want {
			t.Errorf("%s, expected %s: AsExpected returned %v", c.Said(), c.Claimed(), !tt.want)
		}
	}
	if !(Cell{Verdict: catalog.Unsafe}).AsExpected() {
		t.Error("without an expected verdict, AsExpected returned false")
	}
}

func TestContradiction(t *testing.T) {
	good := Cell{
		Strategy: "setnx", Fault: catalog.NoFault, Verdict: catalog.Unsafe, Orders: 10, Requests: 200,
		Outcomes: map[grab.Outcome]int{grab.Grabbed: 12, grab.Taken: 188},
		Grabs:    new(12), OrdersGrabbed: new(10), DoubleGrabs: new(2), OrdersDoubleGrabbed: new(1), StuckOrders: new(0),
		PhantomGrabs: new(0), UnacknowledgedGrabs: new(0), ContendedOrders: new(10),
		Points: []Point{{Point: "after read", Strikes: 2, Struck: 2}},
	}
	if err := (&Run{Cells: []Cell{good}}).Contradiction(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Cell){
		"its verdict is safe, but it has 2 double_grabs and 0 stuck_orders": func(c *Cell) { c.Verdict = catalog.Safe },
		"its verdict is safe, but it has 0 double_grabs and 1 stuck_orders": func(c *Cell) { c.Verdict, c.DoubleGrabs, c.StuckOrders = catalog.Safe, nil, new(1) },
		`there is no verdict "fine"`:                                        func(c *Cell) { c.Verdict = "fine" },
	} {
		c := good
		change(&c)
		if err := (&Run{Cells: []Cell{c}}).Contradiction(); err == nil || err.Error() != "cell setnx/none: "+want {
			t.Errorf("Contradiction: got %v, want %s", err, want)
		}
	}
}

func TestMeasured(t *testing.T) {
	unknown, counted := Cell{Verdict: catalog.Unknown}, Cell{Verdict: catalog.Unknown, DoubleGrabs: new(0)}
	for _, tt := range []struct {
		cells []Cell
		want  bool
	}{
		{nil, true}, {[]Cell{unknown}, false}, {[]Cell{unknown, unknown}, false}, {[]Cell{unknown, counted}, true},
		{[]Cell{unknown, {Verdict: catalog.Stuck}}, true}, {[]Cell{{Verdict: catalog.NA}}, true},
		{[]Cell{{Verdict: catalog.Unknown, Shard: new(shard.Record)}}, true}, {[]Cell{counted, unknown}, true}, // a merge judges the shard
	} {
		if got := (&Run{Cells: tt.cells}).Measured(); got != tt.want {
			t.Errorf("%+v: Measured returned %v, want %v", tt.cells, got, tt.want)
		}
	}
}

// TestNothingIsExpectedIfALossIsIgnored checks that no verdict is expected if a lost lease is
// ignored, because the registry's expectations do not apply to this setting.
func TestNothingIsExpectedIfALossIsIgnored(t *testing.T) {
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	if v, exclusive := (Config{OnLost: grab.Ignore}).expected(setnx, catalog.Pause); v != nil || exclusive != nil {
		t.Error("a verdict is expected although a lost lease is ignored")
	}
}

// TestNothingIsExpectedOfOneProcess tests a lock within a process with only one instance. No verdict
// must be expected, because the registry's expectation is about several instances.
func TestNothingIsExpectedOfOneProcess(t *testing.T) {
	for instances, claimed := range map[int]bool{1: false, 2: true} {
		cfg := Config{Instances: instances, TTL: time.Second, OnLost: grab.Abort}
		s, err := lock.Find("mutex")
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := cfg.expected(s, catalog.NoFault); (v != nil) != claimed {
			t.Errorf("%d instances: expected is %v", instances, v)
		}
	}
}
