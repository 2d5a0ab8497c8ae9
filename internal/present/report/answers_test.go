package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/target"
)

// TestColumnsWithoutALedger checks which columns a table has if all figures come from the answers. A column that needs a ledger
// is left out, and the other ones name the answers as their source. One cell with a ledger is enough to keep all columns, and
// so is a cell that could not be counted. A cell that was not run decides nothing.
func TestColumnsWithoutALedger(t *testing.T) {
	needsLedger := []string{"grabs", "sold", "lost updates"}
	answers := experiment.Cell{Verdict: catalog.Safe, CountedFrom: "answers", DoubleGrabs: new(0)}
	ledger := experiment.Cell{Verdict: catalog.Safe, CountedFrom: "ledger", DoubleGrabs: new(0)}
	failed := experiment.Cell{Verdict: catalog.Unknown, CountedFrom: "answers"}
	uncounted := experiment.Cell{Verdict: catalog.Unknown}
	notRun := experiment.Cell{Verdict: catalog.NA}
	for _, tt := range []struct {
		cells []experiment.Cell
		alone bool
	}{
		{[]experiment.Cell{answers}, true}, {[]experiment.Cell{answers, answers}, true}, {[]experiment.Cell{notRun, answers}, true}, {[]experiment.Cell{answers, notRun}, true},
		{[]experiment.Cell{answers, failed}, true}, {[]experiment.Cell{failed, answers}, true},
		{[]experiment.Cell{ledger}, false}, {[]experiment.Cell{answers, ledger}, false}, {[]experiment.Cell{ledger, answers}, false}, {[]experiment.Cell{answers, uncounted}, false},
		{[]experiment.Cell{failed}, false}, {[]experiment.Cell{notRun}, false}, {nil, false},
	} {
		for _, columns := range [][]cellColumn{loadColumns, saleColumns, detailColumns} {
			var want []string
			for _, c := range columns {
				group := c.Group
				if tt.alone && group == "ledger" {
					if group = "answers"; slices.Contains(needsLedger, c.Name) {
						continue
					}
				}
				want = append(want, group+" "+c.Name)
			}
			var got []string
			for _, c := range renameForAnswers(tt.cells, columns) {
				got = append(got, c.Group+" "+c.Name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v: the columns are %q, want %q", tt.cells, got, want)
			}
		}
	}
}

// TestAnswersAlone checks that a table states the source of its figures and the rules for the answers, and
// that it marks lower bounds. It must never show 0 for an unknown figure.
func TestAnswersAlone(t *testing.T) {
	cell := experiment.Cell{
		Strategy: experiment.Foreign, Fault: catalog.NoFault, Verdict: catalog.Unsafe, Reason: "r", CountedFrom: "answers", Orders: 3, Requests: 9,
		DoubleGrabs: new(2), OrdersDoubleGrabbed: new(1), OrdersGrabbed: new(3), LowerBound: true,
	}
	ledger := cell
	ledger.Strategy, ledger.CountedFrom, ledger.Grabs, ledger.LowerBound = "rlock", "ledger", new(5), false
	lastWriter := cell
	lastWriter.Strategy, lastWriter.PhantomGrabs, lastWriter.LowerBound = "none", new(2), false
	struck := func(c experiment.Cell) experiment.Cell {
		c.Fault, c.Points = catalog.Pause, []experiment.Point{{Point: "after read", Strikes: 1, Struck: 1, Verdict: catalog.Unsafe, DoubleGrabs: new(1)}}
		return c
	}
	rules := &target.Rules{Grabbed: "json:.code==0", Taken: "409", Busy: ""}
	for _, tc := range []struct {
		name  string
		cells []experiment.Cell
		has   []string
		not   []string
	}{
		{"answers", []experiment.Cell{cell}, []string{"- answers -", "≥2", "≥: at least this many", "taken 409, another driver", "busy by none", "5.0/s, the drivers of an order close together", "there was no ledger to read"}, []string{"ledger -", "0.00"}},
		{"both", []experiment.Cell{ledger, cell, lastWriter}, []string{"- ledger -", "rlock", "foreign: double-grabs are counted from the answers, because there was no", "none: double-grabs are counted from the answers, because the ledger names fewer"}, []string{"0.00"}},
		{"answers under a fault", []experiment.Cell{struck(cell)}, []string{"foreign: double-grabs are counted from the answers, because there was no ledger to read"}, nil},
		{"both under a fault", []experiment.Cell{struck(ledger), struck(lastWriter)}, []string{"none: double-grabs are counted from the answers, because the ledger names fewer"}, []string{"no ledger to read"}},
		{"ledger under a fault", []experiment.Cell{struck(ledger)}, nil, []string{"counted from the answers"}},
		{"ledger", []experiment.Cell{ledger}, []string{"- ledger -"}, []string{"counted from the answers", "≥"}},
	} {
		run := &experiment.Run{Config: experiment.RunConfig{Scenario: "rush", Orders: 3, Drivers: 3, Rate: 5, Together: true, Instances: 2, Rules: rules}, Cells: tc.cells}
		var b bytes.Buffer
		if err := Text(&b, run); err != nil {
			t.Fatal(err)
		}
		for _, want := range tc.has {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: %q is not in\n%s", tc.name, want, &b)
			}
		}
		for _, wrong := range tc.not {
			if strings.Contains(b.String(), wrong) {
				t.Errorf("%s: %q is in\n%s", tc.name, wrong, &b)
			}
		}
	}
}
