package history_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"grablab/internal/history"
)

// TestEveryFieldIsWritten writes events with one field set, and with several fields set. Reading
// the JSON must return the same event.
func TestEveryFieldIsWritten(t *testing.T) {
	var all history.Event
	each := func(e *history.Event, field int) {
		switch f := reflect.ValueOf(e).Elem().Field(field); {
		case f.CanInt():
			f.SetInt(int64(-1 - field))
		case f.CanUint():
			f.SetUint(uint64(1 + field))
		default:
			f.SetString(strings.Repeat("é", 1+field))
		}
	}
	for field := range reflect.TypeFor[history.Event]().NumField() {
		var one history.Event
		each(&one, field)
		each(&all, field)
		for _, e := range []history.Event{one, all} {
			var got history.Event
			if text := e.AppendJSON(nil); json.Unmarshal(text, &got) != nil || got != e {
				t.Errorf("%s: read %+v, want %+v", text, got, e)
			}
		}
	}
}

// TestDecodeStops ends the loop over Decode after each event or error. Decode must then yield
// nothing more, which would panic.
func TestDecodeStops(t *testing.T) {
	const lines = `{"seq":1,"instance":"a","kind":"ok","op":"grab"}
torn
{"seq":3,"instance":"a","kind":"ok","op":"grab"}
{"seq":9,"instance":"a","kind":"ok","op":"cell"}
`
	for most := 1; most <= 5; most++ { // Decode yields three events, an unreadable line and a gap
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
	if n != 5 {
		t.Errorf("%d events and errors, want 5, because another cell may reuse the name of an instance", n)
	}
}

// TestLinesAreValidText writes texts with each byte, alone and between others. Every line must be valid JSON and UTF-8,
// because programs in other languages read it too.
func TestLinesAreValidText(t *testing.T) {
	for c := range 256 {
		for _, text := range []string{string([]byte{byte(c)}), "a" + string([]byte{byte(c)}) + "é"} {
			if line := (history.Event{Kind: history.OK, Note: text}).AppendJSON(nil); !json.Valid(line) || !utf8.Valid(line) {
				t.Errorf("%q: %q", text, line)
			}
		}
	}
}
