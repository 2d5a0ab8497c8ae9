package replay

import (
	"maps"
	"slices"
	"testing"

	"grablab/internal/catalog"
)

// TestProofs checks that a replay can check exactly the properties for which the catalog says so.
func TestProofs(t *testing.T) {
	want := catalog.PropertiesBy(catalog.Replay)
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(proofs)); !slices.Equal(got, want) {
		t.Errorf("properties with a proof: got %v, want %v", got, want)
	}
}
