package experiment

import (
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fault"
)

// Contenders of a lock that tries only once must come again until the lease has passed.
// Otherwise all of them are told busy, and the cell looks safe although no one raced.
func TestContendersOutlastTheLease(t *testing.T) {
	t.Parallel()
	at, err := fault.ParsePoint("before claim 1")
	if err != nil {
		t.Fatal(err)
	}
	cfg := small(t, "local", "setnx")
	cfg.At, cfg.Wait, cfg.Asked.Wait = &at, 0, true
	cfg.Faults = []catalog.Fault{catalog.Pause, catalog.PartitionDB}
	run, err := execute(t, t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range run.Cells {
		if c.Verdict == catalog.Safe {
			t.Errorf("%s is safe: %s", c.Fault, c.Reason)
		}
		if c.Fault == catalog.Pause && c.Verdict != catalog.Unsafe {
			t.Errorf("%s: %s (%s), want unsafe", c.Fault, c.Verdict, c.Reason)
		}
	}
}
