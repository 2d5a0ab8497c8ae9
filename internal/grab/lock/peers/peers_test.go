package peers

import (
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// TestRegistry checks that every entry has all fields that readers and the test harness need.
func TestRegistry(t *testing.T) {
	for _, s := range slices.Concat(Strategies, WithOptions) {
		if s.Name == "" || s.Title == "" || s.Family == "" || s.Needs == 0 || s.Module == "" || s.Lease == "" || s.Waiter == "" || s.New == nil || len(s.Breaks) == 0 {
			t.Errorf("%s lacks a field: %+v", s.Name, s)
		}
		if !strings.HasPrefix(s.Source, "https://") {
			t.Errorf("%s: %q is not the address of the library's documentation", s.Name, s.Source)
		}
		if s.Guard != order.Naive || s.Excludes != catalog.Global || !s.ExclusiveUnder(catalog.NoFault) {
			t.Errorf("%s: guard %s, excludes %s, claims %v", s.Name, s.Guard, s.Excludes, s.Claims)
		}
	}
}

// TestFound checks that lock.Find returns the strategy of each library, and that lock.Names does not
// list it.
func TestFound(t *testing.T) {
	for _, s := range Strategies {
		if found, err := lock.Find(s.Name); err != nil || found.Title != s.Title {
			t.Errorf("Find(%s): %v", s.Name, err)
		}
		if slices.Contains(lock.Names(), s.Name) {
			t.Errorf("lock.Names lists %s", s.Name)
		}
	}
}
