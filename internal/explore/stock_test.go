package explore_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
)

// TestStock searches with two units and three drivers. It checks that the search finds the known failure
// of each strategy, with a schedule as short as the stored one. A failure is an oversell, or a unit that no
// driver can get.
func TestStock(t *testing.T) {
	expiring := []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Crash}
	for _, tt := range []struct {
		strategy string
		faults   []catalog.Fault
		property string // the property that breaks; empty if the strategy has no failure
		mode     string
		quick    bool // whether make test runs this search too
	}{
		{"none", nil, catalog.OneWinner, "F1", true},
		{"mutex", nil, catalog.OneWinner, "F2", false},
		{"setnx", []catalog.Fault{catalog.Slow}, catalog.OneWinner, "F11", false},
		{"setnx-fence-write", []catalog.Fault{catalog.Slow}, catalog.OneWinner, "F34", false},
		{"setnx-fenced", expiring, "", "", false},
		{"mysql-forupdate", expiring, "", "", false},
		{"mysql-cas", expiring, "", "", true},
		{"redis-stock", []catalog.Fault{catalog.RedisRestart}, catalog.OneWinner, "F43", false},
		{"redis-stock", []catalog.Fault{catalog.Crash}, catalog.StuckOrder, "F42", true},
		{"redis-stock", []catalog.Fault{catalog.Cancel}, catalog.StuckOrder, "F42", false},
		{"redis-stock-returned", []catalog.Fault{catalog.RedisRestart}, catalog.OneWinner, "F43", false},
		{"redis-stock-returned", []catalog.Fault{catalog.Crash}, catalog.StuckOrder, "F42", false},
		{"redis-stock-returned", []catalog.Fault{catalog.Cancel, catalog.ReplyLost}, "", "", false},
	} {
		t.Run(fmt.Sprint(tt.strategy, tt.faults), func(t *testing.T) {
			if !tt.quick && os.Getenv("GRABLAB_PROVE") != "1" {
				t.Skip("this search runs only with GRABLAB_PROVE=1")
			}
			results, err := explore.Search(t.Context(), bubbleOf(t), explore.Config{
				Strategies: []string{tt.strategy}, Actors: 3, Stock: 2, Preemptions: 2, Faults: tt.faults, FaultCount: 1,
				Properties: []string{catalog.OneWinner, catalog.StuckOrder},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := results[0]
			switch {
			case !r.Complete:
				t.Errorf("the search is not complete: %s", r.Reason)
			case tt.property == "" && r.Verdict != catalog.Safe:
				t.Errorf("verdict %s, want safe: %+v", r.Verdict, r.Failures)
			case tt.property == "":
			case len(r.Failures) != 1 || r.Failures[0].Property != tt.property || r.Failures[0].Mode != tt.mode || r.Failures[0].Schedule.Stock != 2:
				t.Errorf("%s: %+v, want one failure of %s by %s", r.Verdict, r.Failures, tt.property, tt.mode)
			default:
				id := "stock-" + tt.strategy
				if strings.HasPrefix(tt.strategy, "redis-stock") {
					id += "-" + string(tt.faults[0])
				}
				golden(t, id, r.Failures[0])
			}
		})
	}
}

// TestStockOversellAlone checks that a search for only one-winner finds an oversell in as few steps as a
// search for several properties. Only the former skips schedules that cannot lead to a shorter oversell.
func TestStockOversellAlone(t *testing.T) {
	for strategy, faults := range map[string][]catalog.Fault{"none": nil, "mutex": nil, "setnx": {catalog.Slow}} {
		t.Run(strategy, func(t *testing.T) {
			if strategy == "setnx" && os.Getenv("GRABLAB_PROVE") != "1" {
				t.Skip("this search takes long, so it runs only with GRABLAB_PROVE=1")
			}
			var steps []int
			for _, properties := range [][]string{{catalog.OneWinner}, {catalog.OneWinner, catalog.StuckOrder}} {
				results, err := explore.Search(t.Context(), bubbleOf(t), explore.Config{
					Strategies: []string{strategy}, Actors: 3, Stock: 2, Preemptions: 2, Faults: faults, FaultCount: 1, Properties: properties,
				}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if r := results[0]; len(r.Failures) != 1 {
					t.Fatalf("%v: %s, %d failures, want one", properties, r.Verdict, len(r.Failures))
				}
				steps = append(steps, len(results[0].Failures[0].Schedule.Steps))
			}
			if steps[0] != steps[1] {
				t.Errorf("the search for only one-winner finds an oversell in %d steps, and the other search in %d", steps[0], steps[1])
			}
		})
	}
}
