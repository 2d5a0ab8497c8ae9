package nearest_test

import (
	"testing"

	"grablab/internal/nearest"
)

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{
		"setnxx": "setnx", "sentx": "setnx", "watchdgo": "watchdog", "redlok": "redlock", "nnoe": "none", "foo": "", "": "",
	} {
		if got := nearest.Word(word, []string{"none", "setnx", "watchdog", "redlock"}); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
