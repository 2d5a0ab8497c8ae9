package catalog_test

import (
	"testing"

	"grablab/internal/catalog"
)

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{
		"setnxx": "setnx", "sentx": "setnx", "watchdgo": "watchdog", "redlok": "redlock", "ab": "", "nnoe": "none", "foo": "", "": "", "x": "",
	} {
		if got := catalog.Nearest(word, []string{"n", "none", "setnx", "watchdog", "redlock"}); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestHint(t *testing.T) {
	known := []string{"none", "setnx"}
	if got, want := catalog.Hint("setxn", known, "; there are two"), "; did you mean setnx?"; got != want {
		t.Errorf("Hint: %q, want %q", got, want)
	}
	if got, want := catalog.Hint("zookeeper", known, "; there are two"), "; there are two"; got != want {
		t.Errorf("Hint: %q, want %q", got, want)
	}
}
