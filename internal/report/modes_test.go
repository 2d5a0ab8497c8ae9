package report_test

import (
	"fmt"
	"slices"
	"testing"

	"grablab/internal/check"
	"grablab/internal/grab/lock"
)

// What the registry says that strategies break has a name and a cure; who is
// said to have it exists.
func TestModesAndStrategiesAgree(t *testing.T) {
	for i, m := range check.Modes {
		if m.ID != fmt.Sprintf("F%d", i+1) || m.Name == "" || m.Cure == "" {
			t.Errorf("entry %d: %+v", i, m)
		}
		if m.In != "" && !slices.Contains(lock.Names(), m.In) {
			t.Errorf("%s: there is no strategy %s", m.ID, m.In)
		}
	}
	for _, s := range slices.Concat(lock.Strategies, lock.Seeded) {
		for _, id := range s.Breaks {
			if _, ok := check.FindMode(id); !ok {
				t.Errorf("%s breaks %s, which has no name", s.Name, id)
			}
		}
	}
}
