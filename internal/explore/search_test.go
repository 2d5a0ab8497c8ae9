package explore_test

import (
	"testing"
	"testing/synctest"

	"grablab/internal/explore"
)

func bubbleOf(t *testing.T) explore.Bubble {
	return func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
}

func TestTry(t *testing.T) {
	for _, name := range []string{"none", "mutex", "setnx", "watchdog", "mysql-cas", "mysql-forupdate", "handoff", "redlock"} {
		for _, k := range []int{0, 1} {
			cfg := explore.Config{Strategies: []string{name}, Preemptions: 2, FaultCount: k, Faults: []string{explore.Expiry, explore.Pause, explore.Crash}, Seconds: 20}
			rs, err := explore.Search(t.Context(), bubbleOf(t), cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				t.Log(r.Strategy, k, r.Verdict, r.Expected, r.Complete, r.Reason, r.Schedules, r.States, r.Elapsed, float64(r.Schedules)/r.Elapsed.Seconds())
				for _, f := range r.Failures {
					t.Log("   ", f.Property, f.Mode, f.Why, len(f.Schedule.Steps), f.Schedule.Steps)
				}
			}
		}
	}
}
