package peers

import (
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// Every entry says what a reader and the harness need of it.
func TestRegistry(t *testing.T) {
	for _, s := range slices.Concat(Strategies, WithOptions) {
		if s.Name == "" || s.Title == "" || s.Family == "" || s.Needs == 0 || s.Module == "" || s.Lease == "" || s.Waiter == "" || s.New == nil || len(s.Breaks) == 0 {
			t.Errorf("%s leaves something out: %+v", s.Name, s)
		}
		if !strings.HasPrefix(s.Source, "https://") {
			t.Errorf("%s: %q is no address of the library's own documentation", s.Name, s.Source)
		}
		if s.Guard != order.Naive || s.Excludes != catalog.Global || !s.ExclusiveUnder(catalog.NoFault) {
			t.Errorf("%s: guard %s, excludes %s, claims %v", s.Name, s.Guard, s.Excludes, s.Claims)
		}
		if _, err := s.New(lock.Env{TTL: 1e9}); err == nil {
			t.Errorf("%s was built without any server", s.Name)
		}
	}
}

// The libraries are found by name, and are among none of our own.
func TestFound(t *testing.T) {
	for _, s := range Strategies {
		if found, err := lock.Find(s.Name); err != nil || found.Title != s.Title {
			t.Errorf("%s: %v", s.Name, err)
		}
		if slices.Contains(lock.Names(), s.Name) {
			t.Errorf("%s is among our own", s.Name)
		}
	}
}
