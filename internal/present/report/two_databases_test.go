package report

import (
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/measure/experiment"
)

// TestTwoDatabasesMayExplain checks when the report suggests that two instances use two databases. It must do
// so only if every order has two winners and no ledger contains both.
func TestTwoDatabasesMayExplain(t *testing.T) {
	for _, tt := range []struct {
		counted string
		doubled int
		served  map[string]int
		offered bool
	}{
		{"answers", 10, map[string]int{"a": 50, "b": 50}, true},
		{"ledger", 10, map[string]int{"a": 50, "b": 50}, false},
		{"answers", 9, map[string]int{"a": 50, "b": 50}, false},
		{"answers", 10, map[string]int{"a": 30, "b": 30, "c": 40}, false},
	} {
		c := experiment.Cell{
			Strategy: experiment.Foreign, Fault: catalog.NoFault, Verdict: catalog.Unsafe, CountedFrom: tt.counted,
			Orders: 10, Requests: 100, OrdersGrabbed: new(10), OrdersDoubleGrabbed: &tt.doubled, DoubleGrabs: &tt.doubled, ServedBy: tt.served,
		}
		if got := cause(c, experiment.RunConfig{}); strings.Contains(got, "two databases") != tt.offered {
			t.Errorf("%+v: cause: %q", tt, got)
		}
	}
}
