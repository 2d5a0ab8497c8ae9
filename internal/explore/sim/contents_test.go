package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// TestContentsTellStatesApart stores different keys, values and expiries on Redis servers. Two servers have the same
// contents only if they store the same, because the explorer and the oracle see only the contents.
func TestContentsTellStatesApart(t *testing.T) {
	states := map[string]func(*miniredis.Miniredis){
		"nothing":       func(*miniredis.Miniredis) {},
		"string":        func(m *miniredis.Miniredis) { m.Set("k", "v") },
		"empty":         func(m *miniredis.Miniredis) { m.Set("k", "") },
		"another key":   func(m *miniredis.Miniredis) { m.Set("l", "v") },
		"another value": func(m *miniredis.Miniredis) { m.Set("k", "w") },
		"two keys":      func(m *miniredis.Miniredis) { m.Set("k", "v"); m.Set("l", "v") },
		"expires":       func(m *miniredis.Miniredis) { m.Set("k", "v"); m.SetTTL("k", time.Second) },
		"expires later": func(m *miniredis.Miniredis) { m.Set("k", "v"); m.SetTTL("k", 2*time.Second) },
		"hash":          func(m *miniredis.Miniredis) { m.HSet("k", "f", "v") },
		"another field": func(m *miniredis.Miniredis) { m.HSet("k", "g", "v") },
		"two fields":    func(m *miniredis.Miniredis) { m.HSet("k", "f", "v", "g", "w") },
		"other fields":  func(m *miniredis.Miniredis) { m.HSet("k", "f", "w", "g", "v") },
		"list":          func(m *miniredis.Miniredis) { m.Push("k", "f", "g") },
		"another order": func(m *miniredis.Miniredis) { m.Push("k", "g", "f") },
		"set":           func(m *miniredis.Miniredis) { m.SetAdd("s", "a", "b") },
		"larger set":    func(m *miniredis.Miniredis) { m.SetAdd("s", "a", "b", "c") },
		"scores":        func(m *miniredis.Miniredis) { m.ZAdd("z", 1, "a"); m.ZAdd("z", 2, "b") },
		"other scores":  func(m *miniredis.Miniredis) { m.ZAdd("z", 1, "a"); m.ZAdd("z", 2.5, "b") },
	}
	at := epoch.Add(time.Minute)
	seen := map[string]string{}
	for name, store := range states {
		contents := func() string {
			m := miniredis.NewMiniRedis()
			store(m)
			text := contentsOf(m, at)
			if lines := strings.Count(text, "\n"); lines != len(m.Keys()) || text != "" && !strings.HasSuffix(text, "\n") {
				t.Errorf("%s: %q has %d lines, want one for each of the %d keys", name, text, lines, len(m.Keys()))
			}
			return text
		}
		text := contents()
		if other, ok := seen[text]; ok {
			t.Errorf("%s and %s have the same contents: %q", name, other, text)
		}
		if seen[text] = name; contents() != text {
			t.Errorf("%s: the contents differ the second time", name)
		}
		if expires := strings.Contains(text, " until "); expires != strings.HasPrefix(name, "expires") {
			t.Errorf("%s: %q names an expiry: %v", name, text, expires)
		}
	}
}
