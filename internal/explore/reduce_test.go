package explore_test

import (
	"fmt"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
)

// TestReductions checks that a search has the same findings with and without the reductions, which only
// make it faster.
func TestReductions(t *testing.T) {
	for _, tt := range []struct {
		strategy    string
		preemptions int
		faults      []catalog.Fault
		wait        time.Duration
		merge       bool // merge states, because the search would not end otherwise
	}{
		{"none", 1, nil, 0, false},
		{"setnx", 2, []catalog.Fault{catalog.Slow}, 0, false},
		{"setnx-del", 1, []catalog.Fault{catalog.Slow}, 0, false},
		{"setnx-expire", 1, []catalog.Fault{catalog.Crash}, 0, false},
		{"setnx-fenced", 1, []catalog.Fault{catalog.Pause}, 0, false},
		{"setnx-blind-retry", 1, []catalog.Fault{catalog.ReplyLost}, 0, false},
		{"watchdog-late-subscribe", 1, nil, 10 * time.Second, false},
		{"mysql-forupdate", 1, []catalog.Fault{catalog.Pause}, 0, false},
		{"watchdog", 1, []catalog.Fault{catalog.Pause}, 0, true},
		{"etcd", 1, []catalog.Fault{catalog.ReplyLost}, 0, false},
		{"zookeeper", 0, []catalog.Fault{catalog.ReplyLost}, 0, false},
		{"watchdog", 1, []catalog.Fault{catalog.NodeClock}, 0, true},
		{"handoff", 1, []catalog.Fault{catalog.RedisRestart}, 0, true},
		{"redlock-miswired", 0, []catalog.Fault{catalog.RedisRestart}, 0, true},
		{"redlock", 0, []catalog.Fault{catalog.NodeClock}, 0, true},
		{"redlock", 0, []catalog.Fault{catalog.Latency}, 0, true},
	} {
		t.Run(fmt.Sprint(tt.strategy, tt.faults), func(t *testing.T) {
			if raced && tt.merge {
				t.Skip("this search is too slow with the race detector")
			}
			cfg := explore.Config{
				Strategies: []string{tt.strategy}, Preemptions: tt.preemptions,
				Faults: tt.faults, FaultCount: min(len(tt.faults), 1), Wait: tt.wait,
			}
			want, with := findings(t, cfg)
			cfg.NoMerge, cfg.NoReduce = !tt.merge, true
			got, without := findings(t, cfg)
			if got != want {
				t.Errorf("without the reductions: %s\nwith them: %s", got, want)
			}
			if tt.merge && with.States != without.States {
				t.Errorf("without the reductions: %d states, with them: %d", without.States, with.States)
			}
			t.Logf("%d schedules instead of %d", with.Schedules, without.Schedules)
		})
	}
}

// findings returns the verdict and each broken property with its number of steps.
func findings(t *testing.T, cfg explore.Config) (found string, r explore.Result) {
	t.Helper()
	results, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	r = results[0]
	if !r.Complete {
		t.Fatalf("not complete: %s", r.Reason)
	}
	return foundBy(r), r
}

// foundBy describes the verdict, and each broken property with its failure mode and number of steps.
func foundBy(r explore.Result) string {
	found := string(r.Verdict)
	for _, f := range r.Failures {
		found += fmt.Sprintf(" %s(%s) in %d steps", f.Property, f.Mode, len(f.Schedule.Steps))
	}
	return found
}
