package lock

import (
	"slices"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// TestRegistry checks that every entry has all fields that readers and the test harness need.
func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range slices.Concat(Strategies, KnownBroken) {
		if s.Name == "" || s.Title == "" || s.Family == "" || s.Source == "" || s.New == nil || s.Excludes == "" || len(s.Breaks) == 0 {
			t.Errorf("%s lacks a field: %+v", s.Name, s)
		}
		if (s.Waiter == "") != (s.Excludes == catalog.NoExclusion) {
			t.Errorf("%s excludes %s, but its waiter is %q", s.Name, s.Excludes, s.Waiter)
		}
		if seen[s.Name] {
			t.Errorf("two strategies are named %s", s.Name)
		}
		seen[s.Name] = true
		if !slices.Contains(order.Guards, s.Guard) {
			t.Errorf("%s has the unknown guard %q", s.Name, s.Guard)
		}
		if s.Guard.NeedsFence() && !s.Fences {
			t.Errorf("%s has no tokens for guard %s", s.Name, s.Guard)
		}
		brokenAsIs := s.Excludes == catalog.Global && s.Expected(catalog.NoFault) != catalog.Safe
		if locks := s.Excludes != catalog.NoExclusion && !brokenAsIs; locks != s.ExclusiveUnder(catalog.NoFault) {
			t.Errorf("%s excludes %s and claims %v", s.Name, s.Excludes, s.Claims)
		}
		for f := range s.Claims {
			if !slices.Contains(catalog.RunFaults, f) {
				t.Errorf("%s has a claim for %q, which `run` cannot inject", s.Name, f)
			}
		}
	}
}

func TestGuardedBy(t *testing.T) {
	for _, tt := range []struct {
		strategy    Strategy
		asked, want order.Guard
	}{
		{setnx, "", order.Naive},
		{setnx, order.Guarded, order.Guarded},
		{setnxFenced, "", order.Fenced},
		{mysqlCAS, order.Naive, order.Guarded}, // without its guard, nothing would be left
	} {
		if got := tt.strategy.GuardedBy(tt.asked); got != tt.want {
			t.Errorf("%s with -guard %q: got %s, want %s", tt.strategy.Name, tt.asked, got, tt.want)
		}
	}
}
