package replay

import (
	"maps"
	"slices"
	"testing"

	"grablab/internal/catalog"
)

// The catalogue says which properties a replay can check.
func TestProofs(t *testing.T) {
	want := catalog.PropertiesBy(catalog.Replay)
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(proofs)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
