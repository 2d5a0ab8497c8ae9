package report

import (
	"bytes"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/target"
)

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
