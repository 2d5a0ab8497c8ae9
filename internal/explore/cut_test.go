package explore_test

import (
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
)

// TestCutBySchedules checks that a search with a limited number of schedules is deterministic, and that it
// reports that it is incomplete.
func TestCutBySchedules(t *testing.T) {
	cfg := explore.Config{
		Strategies: []string{"setnx-fenced"}, Preemptions: 2, Faults: []catalog.Fault{catalog.Pause}, FaultCount: 1, Schedules: 100,
	}
	first, again := searchFor(t, cfg), searchFor(t, cfg)
	if first != again {
		t.Errorf("first\n%s\nthen\n%s", first, again)
	}
	results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Schedules != 100 || r.Complete || r.Reason == "" || r.Verdict != catalog.Unknown {
		t.Errorf("the search should end after 100 schedules, but returned %+v", r)
	}
}

// TestShortestAndEverything checks that a search for one property reports the failure and ends as soon as
// no shorter one is possible. With Everything, it must continue and find other failures.
func TestShortestAndEverything(t *testing.T) {
	cfg := explore.Config{
		Strategies: []string{"setnx"}, Properties: []string{catalog.OneWinner}, Preemptions: 2,
		Faults: []catalog.Fault{catalog.Pause, catalog.Slow}, FaultCount: 1,
	}
	var told int // the number of schedules executed when the failure was first reported as the shortest
	search := func() explore.Result {
		told = 0
		results, err := explore.Search(t.Context(), bubbleOf(t), cfg, func(r explore.Result) {
			if told == 0 && len(r.Failures) > 0 {
				told = r.Schedules
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	shortest := search()
	if len(shortest.Failures) != 1 || !shortest.Failures[0].Shortest || shortest.Complete || shortest.Reason == "" || told != shortest.Schedules {
		t.Errorf("reported after %d schedules: %+v", told, shortest)
	}
	cfg.Everything = true
	all := search()
	if !all.Complete || all.Schedules <= shortest.Schedules || told == 0 || told >= all.Schedules {
		t.Errorf("with Everything: %d schedules, reported after %d: %s", all.Schedules, told, all.Reason)
	}
	kinds := map[string]int{}
	for _, f := range all.Failures {
		kinds[f.Kind] = len(f.Schedule.Steps)
	}
	if len(kinds) < 2 || len(all.Failures[0].Schedule.Steps) != len(shortest.Failures[0].Schedule.Steps) {
		t.Errorf("the kinds and lengths are %v, want at least two and the shortest length %d", kinds, len(shortest.Failures[0].Schedule.Steps))
	}
}
