package experiment

import (
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
)

// checkTold says whether the cell was held against every property, and whether
// it has a timeline exactly where it failed, with the events of its order.
func checkTold(t *testing.T, c Cell) {
	t.Helper()
	if n := len(catalog.PropertiesBy(catalog.Run)); len(c.Checks) != n {
		t.Errorf("%d checks, want one for each of the %d properties", len(c.Checks), n)
	}
	if c.Verdict == catalog.Safe {
		if c.Timeline != nil {
			t.Errorf("a safe cell has a timeline: %+v", c.Timeline)
		}
		for _, k := range c.Checks {
			if k.Result == check.Fail {
				t.Errorf("%s fails: %s", k.Property, k.Why)
			}
		}
		return
	}
	if c.Timeline == nil {
		t.Fatalf("a cell that is %s has no timeline", c.Verdict)
	}
	if s, _ := lock.Find(c.Strategy); !slices.Contains(s.Breaks, c.Timeline.Mode) {
		t.Errorf("%s breaks by %s, and its timeline is of %q", c.Strategy, s.Breaks, c.Timeline.Mode)
	}
	last := c.Timeline.Steps[len(c.Timeline.Steps)-1]
	if last.Believed != "has won the order" || !strings.Contains(last.True, " times: by driver ") {
		t.Errorf("the timeline ends with %+v", last)
	}
	if len(c.Timeline.Rows) < 2 {
		t.Errorf("the order has %d rows in the ledger", len(c.Timeline.Rows))
	}
	for _, e := range c.Timeline.Events {
		if e.Order != c.Timeline.Order {
			t.Errorf("an event of order %d in the timeline of order %d", e.Order, c.Timeline.Order)
		}
	}
	for _, op := range []string{history.Grab, history.Acquire, history.Read, history.Claim} {
		called := func(e history.Event) bool { return e.Op == op && (e.Kind == history.Invoke || op == history.Read) }
		if !slices.ContainsFunc(c.Timeline.Events, called) {
			t.Errorf("no %s among the %d events of the timeline", op, len(c.Timeline.Events))
		}
	}
}

// The timeline is about what the verdict is about, or else the lock.
func TestWorst(t *testing.T) {
	double := check.Evidence{Ledger: check.Rows([]check.Pair{{Order: 4, Driver: 1}, {Order: 5, Driver: 1}, {Order: 5, Driver: 2}}), Stuck: []int64{9, 8}}
	overlap := check.Evidence{Record: &check.Record{Holds: []check.Hold{
		{Span: check.Span{Order: 7, Driver: 1, From: 1, To: 9}}, {Span: check.Span{Order: 7, Driver: 2, From: 5, To: 10}},
	}}}
	sold := check.Evidence{Units: 2, Ledger: check.Rows([]check.Pair{{Order: 5, Driver: 1}, {Order: 5, Driver: 2}, {Order: 6, Driver: 1}, {Order: 6, Driver: 2}, {Order: 6, Driver: 3}})}
	stuck := overlap
	stuck.Stuck = []int64{9, 8}
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		cell Cell
		e    check.Evidence
		of   []failed
		want failed
	}{
		{"nothing", Cell{DoubleGrabs: new(0), Overlaps: new(0), StuckOrders: new(0)}, check.Evidence{}, nil, failed{}},
		{"a unit too many under a fault", Cell{Fault: catalog.Pause, Sale: &Sale{Stock: 2}, DoubleGrabs: new(1)}, sold, []failed{{6, catalog.OneWinner}}, failed{6, catalog.OneWinner}},
		{"a unit too many of many drivers at once", Cell{Fault: catalog.NoFault, Sale: &Sale{Stock: 2}, DoubleGrabs: new(1)}, sold, nil, failed{}},
		{"nothing was counted", Cell{}, check.Evidence{}, nil, failed{}},
		{"a double-grab before all", Cell{DoubleGrabs: new(1), Overlaps: new(1), StuckOrders: new(2)}, double, nil, failed{5, catalog.OneWinner}},
		{"a stuck order before an overlap", Cell{DoubleGrabs: new(0), Overlaps: new(1), ExpectedExclusive: new(Yes)}, stuck, nil, failed{8, catalog.StuckOrder}},
		{"the first point", Cell{DoubleGrabs: new(0)}, stuck, []failed{{3, catalog.HoldersExclusive}, {9, catalog.StuckOrder}, {8, catalog.StuckOrder}}, failed{9, catalog.StuckOrder}},
		{"an overlap that was not to be", Cell{DoubleGrabs: new(0), Overlaps: new(1), ExpectedExclusive: new(Yes)}, overlap, nil, failed{7, catalog.HoldersExclusive}},
		{"an overlap that was to be expected", Cell{DoubleGrabs: new(0), Overlaps: new(1), ExpectedExclusive: new(No)}, overlap, nil, failed{}},
	} {
		if got := worstOf(&tt.cell, setnx, tt.e, tt.of); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// An order has failed where it has more rows than units, whatever their number.
func TestFailureOf(t *testing.T) {
	setnx, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	e := check.Evidence{Units: 2, Stuck: []int64{2}, Ledger: check.Rows([]check.Pair{
		{Order: 1, Driver: 1}, {Order: 1, Driver: 2}, {Order: 2, Driver: 1}, {Order: 3, Driver: 1}, {Order: 3, Driver: 2}, {Order: 3, Driver: 3},
	})}
	for _, tt := range []struct {
		order        int64
		double, left int
		property     string
	}{{1, 0, 0, ""}, {2, 0, 1, catalog.StuckOrder}, {3, 1, 0, catalog.OneWinner}, {4, 0, 2, ""}} {
		f := failureOf(tt.order, setnx, e)
		if f.property != tt.property || doubleGrabs(e, tt.order) != tt.double || unsoldOf(e, tt.order) != tt.left {
			t.Errorf("order %d: %q, %d too many, %d left", tt.order, f.property, doubleGrabs(e, tt.order), unsoldOf(e, tt.order))
		}
	}
	e.Units = 0
	if n := doubleGrabs(e, 1); n != 1 {
		t.Errorf("of one unit: %d too many, want 1", n)
	}
	if n := unsoldOf(e, 4); n != 1 {
		t.Errorf("of one unit that nobody has: %d left", n)
	}
}
