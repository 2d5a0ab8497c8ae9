package report_test

import (
	"slices"
	"testing"

	"grablab/internal/check"
	"grablab/internal/grab/lock"
)

// Who is said to have a cure exists; and what a seeded mistake breaks has one.
func TestCures(t *testing.T) {
	var ids []string
	for _, m := range check.Modes {
		ids = append(ids, m.ID)
		if !slices.Contains(lock.Names(), m.In) {
			t.Errorf("%s: there is no strategy %q", m.ID, m.In)
		}
	}
	for _, s := range lock.KnownBroken {
		for _, id := range s.Breaks {
			if !slices.Contains(ids, id) {
				t.Errorf("%s breaks %s, which has no cure", s.Name, id)
			}
		}
	}
}
