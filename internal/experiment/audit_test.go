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
