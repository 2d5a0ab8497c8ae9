package history_test

import (
	"strings"
	"testing"

	"grablab/internal/history"
)

// TestDecodeStops ends the loop over Decode after each event or error. Decode must then yield
// nothing more, which would panic.
func TestDecodeStops(t *testing.T) {
	const lines = `{"seq":1,"instance":"a","kind":"ok","op":"grab"}
torn
{"seq":3,"instance":"a","kind":"ok","op":"grab"}
{"seq":9,"instance":"a","kind":"ok","op":"cell"}
`
	for most := 1; most <= 4; most++ { // Decode yields three events and an unreadable line
		n := 0
		for range history.Decode(strings.NewReader(lines)) {
			if n++; n == most {
				break
			}
		}
		if n != most {
			t.Errorf("%d events and errors, want %d", n, most)
		}
	}
	n := 0
	for range history.Decode(strings.NewReader(lines)) {
		n++
	}
	if n != 4 {
		t.Errorf("%d events and errors, want 4", n)
	}
}
