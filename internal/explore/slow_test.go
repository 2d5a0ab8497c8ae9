package explore_test

import (
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
)

// TestSlowRenews checks a lock with renewals. Slow work must not break it, because the renewals go on, but
// a pause must, because it stops them. A lock without renewals must not survive slow work.
func TestSlowRenews(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		fault    catalog.Fault
		want     catalog.Verdict
	}{
		{"watchdog", catalog.Slow, catalog.Safe},
		{"watchdog", catalog.Pause, catalog.Unsafe},
		{"setnx", catalog.Slow, catalog.Unsafe},
		{"setnx-check", catalog.Slow, catalog.Unsafe}, // the delay comes after the check, which does not renew the lease
	} {
		t.Run(tt.strategy+"/"+string(tt.fault), func(t *testing.T) {
			results, err := explore.Search(t.Context(), bubbleOf(t), explore.Config{
				Strategies: []string{tt.strategy}, Properties: []string{catalog.OneWinner},
				Preemptions: 1, Faults: []catalog.Fault{tt.fault}, FaultCount: 1,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if v := results[0].Verdict; v != tt.want {
				t.Errorf("verdict %s, want %s: %+v", v, tt.want, results[0].Failures)
			}
		})
	}
}
