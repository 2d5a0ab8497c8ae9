package catalog

import (
	"slices"
	"testing"
)

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"":                    {""},
		"ab":                  {"ab"},
		"ab cd ef":            {"ab cd", "ef"},
		"  ab\n cd  ":         {"ab cd"},
		"abcdefghijkl m":      {"abcde", "fghij", "kl m"},
		"x abcdefg":           {"x", "abcde", "fg"},
		"äöü ßß é":            {"äöü", "ßß é"},
		"ab 1234567890 cd ef": {"ab", "12345", "67890", "cd ef"},
	} {
		if got := Wrap(text, 5); !slices.Equal(got, want) {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
