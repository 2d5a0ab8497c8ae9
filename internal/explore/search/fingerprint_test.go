package search

import (
	"fmt"
	"testing"
)

// TestFingerprintsDiffer checks that states have different fingerprints if they differ only in one bit or
// in the order of their parts. Otherwise, the search would merge them and skip schedules.
func TestFingerprintsDiffer(t *testing.T) {
	of := map[Fingerprint]string{}
	differs := func(f Fingerprint, state string, args ...any) {
		t.Helper()
		state = fmt.Sprintf(state, args...)
		if other, ok := of[f]; ok {
			t.Errorf("%s has the fingerprint of %s", state, other)
		}
		of[f] = state
	}
	start := EmptyFingerprint
	differs(start, "no part")
	differs(start.Flag(false), "false")
	differs(start.Flag(true), "true")
	for bit := range 64 {
		n := int64(1) << bit
		if n > 1 {
			differs(start.Number(n), "%d", n)
		}
		differs(start.Number(n).Number(0), "%d, 0", n)
		differs(start.Number(0).Number(n), "0, %d", n)
		differs(start.Number(-1).Number(^n), "-1, %d", ^n)
	}
	for _, texts := range [][]string{{""}, {"", ""}, {"a"}, {"b"}, {"a", ""}, {"", "a"}, {"a", "b"}, {"b", "a"}, {"ab"}, {"a\x00"}, {"\x00a"}} {
		f := start
		for _, text := range texts {
			f = f.Text(text)
		}
		differs(f, "%q", texts)
	}
}
