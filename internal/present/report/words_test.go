package report

import (
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/load"
)

// TestOtherFailures checks which violated properties the notes of a cell name. They must skip properties that the table
// already shows, and those that cannot hold because an order was given to two drivers.
func TestOtherFailures(t *testing.T) {
	always := []string{catalog.OneWinner, catalog.HoldersExclusive, catalog.StuckOrder, catalog.AnswersAgree}
	afterDoubleGrab := []string{catalog.Linearizable, catalog.WritesExclusive}
	for _, property := range catalog.Properties {
		for _, doubleGrabs := range []*int{nil, new(0), new(1), new(2)} {
			for _, result := range []check.Result{check.Pass, check.Fail, check.Unknown} {
				c := experiment.Cell{DoubleGrabs: doubleGrabs, Checks: []check.Verdict{{Property: property.Name, Result: result, Why: "it broke"}}}
				hidden := slices.Contains(always, property.Name) || slices.Contains(afterDoubleGrab, property.Name) && orZero(doubleGrabs) > 0
				want := ""
				if result == check.Fail && !hidden {
					want = property.Name + ": it broke"
				}
				if got := strings.Join(otherFailures(c), "|"); got != want {
					t.Errorf("%s %s, %d double grabs: %q, want %q", property.Name, result, orZero(doubleGrabs), got, want)
				}
			}
		}
	}
}

// TestMarksOfBrokenSteps checks that the table of a schedule marks each step that breaks the property, and no later step.
func TestMarksOfBrokenSteps(t *testing.T) {
	actors := []schedule.Actor{{Name: "A", Instance: 1}}
	for n := range 1 << 5 {
		var moments []explore.Moment
		for i := range 5 {
			moments = append(moments, explore.Moment{Step: schedule.Step{Actor: "A"}, Broken: n>>i&1 == 1})
		}
		for i, row := range stepTable(actors, moments).Rows {
			want := ""
			if moments[i].Broken && (i == 0 || !moments[i-1].Broken) {
				want = lostMark
			}
			if row[0].Text != want {
				t.Errorf("broken after the steps %05b: step %d has the mark %q, want %q", n, i+1, row[0].Text, want)
			}
		}
	}
}

// TestFailuresByKind checks that each reason of a failed request has a phrase of its own, and that the most frequent one comes
// first.
func TestFailuresByKind(t *testing.T) {
	kinds := []string{
		"dependency", grab.LeaseLost, "stale", "unknown", "deadline", grab.Cancelled,
		load.Refused, load.Reset, load.Timeout, load.Other, load.Interrupted,
	}
	said := map[string]string{"failed": "the default"}
	for i, kind := range kinds {
		for n, want := range map[int]string{1: "1 grab ", 2: "2 grabs "} {
			texts := failures(map[string]int{kind: n})
			if len(texts) != 1 || !strings.HasPrefix(texts[0], want) || !strings.HasSuffix(texts[0], " ("+kind+")") {
				t.Fatalf("%d of %s: %q", n, kind, texts)
			}
			phrase := strings.TrimSuffix(strings.TrimPrefix(texts[0], want), " ("+kind+")")
			if other := said[phrase]; other != "" && other != kind {
				t.Errorf("%s has the same phrase as %s: %q", kind, other, phrase)
			}
			said[phrase] = kind
		}
		counts := map[string]int{}
		for j, other := range kinds {
			counts[other] = 5 + j%2
		}
		counts[kind] = 4 + 5*(i%2) // the most or the least frequent one
		order := failures(counts)
		at := slices.IndexFunc(order, func(text string) bool { return strings.HasSuffix(text, " ("+kind+")") })
		if want := []int{len(kinds) - 1, 0}[i%2]; at != want || len(order) != len(kinds) {
			t.Errorf("%d of %s come at %d of %d, want %d: %q", counts[kind], kind, at, len(order), want, order)
		}
	}
	if got := failures(map[string]int{"http 500": 3}); !slices.Equal(got, []string{"3 grabs failed (http 500)"}) {
		t.Errorf("an unknown kind: %q", got)
	}
}

// TestFindings checks the texts about repeated rows, compensation and the time that the ledger was watched.
func TestFindings(t *testing.T) {
	for _, tt := range []struct {
		verdict                   catalog.Verdict
		repeatedRows, compensated *int
		settled                   *float64
		want                      string
	}{
		{catalog.Safe, nil, nil, nil, ""},
		{catalog.Safe, new(1), nil, nil, "1 row of the ledger repeats an order and its driver, and no order has a second driver"},
		{catalog.Stuck, new(3), nil, nil, "3 rows of the ledger repeat an order and its driver, and no order has a second driver"},
		{catalog.Unsafe, new(3), nil, nil, ""},
		{catalog.Safe, nil, new(1), nil, "1 order had more than one winner, for at most 250 ms, until the service took the rest back"},
		{catalog.Safe, nil, new(2), new(1500.0), "2 orders had more than one winner, for at most 250 ms, until the service took the rest back|the ledger was watched for 1.5 s after the last driver had asked"},
	} {
		c := experiment.Cell{
			Strategy: "setnx", Fault: catalog.NoFault, Verdict: tt.verdict, DoubleGrabs: new(0), RepeatedRows: tt.repeatedRows,
			CompensatedOrders: tt.compensated, LongestCompensationMS: new(249.6), SettleMS: tt.settled,
		}
		if got := strings.Join(findings(c, experiment.RunConfig{Instances: 2}), "|"); got != tt.want {
			t.Errorf("findings for %+v: %q, want %q", tt, got, tt.want)
		}
	}
}

// TestMissingFigures checks that every column shows a cell without figures as unknown, or as not applicable if it
// was not run. No column may show 0 for a figure that was not measured, except for counts that are part of every
// cell.
func TestMissingFigures(t *testing.T) {
	counts := []string{"runs"}
	for _, verdict := range []catalog.Verdict{catalog.Safe, catalog.Unsafe, catalog.Unknown, catalog.NA, ""} {
		c := experiment.Cell{Verdict: verdict}
		for name, columns := range map[string][]cellColumn{"load": loadColumns, "sale": saleColumns, "cost": costColumns, "peak": peakColumns, "figures": figureColumns} {
			for _, col := range columns {
				shown := col.value(c)
				if strings.ContainsAny(shown, "0123456789") && !slices.Contains(counts, col.Name) {
					t.Errorf("%s, %s %s: a %q cell without figures has %q", name, col.Group, col.Name, verdict, shown)
				}
				if verdict == catalog.NA && strings.Contains(shown, "?") && col.Name != "limited by" { // which shows ? if nothing limited the rate
					t.Errorf("%s, %s %s: a cell that was not run has %q, as if the figure were unknown", name, col.Group, col.Name, shown)
				}
			}
		}
	}
}
