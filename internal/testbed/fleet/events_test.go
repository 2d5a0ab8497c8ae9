package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"grablab/internal/check"
	"grablab/internal/history"
)

// TestIncompleteEventsStayIncomplete reads the event files of three instances in every combination of
// states. ReadEvents must report each bad file, and must still return all readable events.
func TestIncompleteEventsStayIncomplete(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	event := func(instance string, seq int) string {
		return fmt.Sprintf(`{"seq":%d,"t_ns":%d,"instance":%q,"kind":"ok","op":"acquire"}`+"\n", seq, seq, instance)
	}
	states := []string{"complete", "missing", "unreadable", "empty"}
	for i := range 3 {
		in := fmt.Sprint("i", i)
		for state, lines := range map[string]string{
			"complete":   event(in, 1) + event(in, 2),
			"unreadable": event(in, 1) + "no JSON\n" + event(in, 2),
			"empty":      "",
		} {
			if err := os.WriteFile(path(in+state), []byte(lines), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	events := map[string]int{"complete": 2, "unreadable": 2}
	for _, a := range states {
		for _, b := range states {
			for _, c := range states {
				f, bad, want := newFleet(""), 0, 0
				f.Ours = true
				combination := []string{a, b, c}
				for i, state := range combination {
					f.Instances = append(f.Instances, &Instance{events: path(fmt.Sprint("i", i, state))})
					want += events[state]
					if !slices.Contains([]string{"complete", "empty"}, state) {
						bad++
					}
				}
				read := 0
				err := f.ReadEvents(func(history.Event) { read++ })
				reported := 0
				if err != nil {
					reported = strings.Count(err.Error(), "\n") + 1
				}
				if reported != bad || read != want {
					t.Fatalf("%q: read %d events, want %d; %d files are bad: %v", combination, read, want, bad, err)
				}
				if slices.Contains(combination, "missing") != errors.Is(err, os.ErrNotExist) {
					t.Errorf("files %q: error %v", combination, err)
				}
			}
		}
	}
}

// TestEventsLostBetweenReads loses events between two reads of a file. The second record must count them,
// whether the first read has found events or not.
func TestEventsLostBetweenReads(t *testing.T) {
	for first := range 4 { // the number of events in the first read
		for lost := range 3 {
			path := filepath.Join(t.TempDir(), "events.jsonl")
			var text strings.Builder
			add := func(seq int) {
				fmt.Fprintf(&text, `{"seq":%d,"t_ns":%d,"instance":"a","kind":"ok","op":"read"}`+"\n", seq, seq)
			}
			var events Events
			read := func(scan check.Scan) int {
				if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := events.Read(path, scan.Add); err != nil {
					t.Fatal(err)
				}
				return scan.Record().MissingEvents
			}
			for n := range first {
				add(n + 1)
			}
			if missing := read(check.Scan{}); missing != 0 {
				t.Errorf("%d events are missing in the first read", missing)
			}
			since := events.Seen()
			add(first + lost + 1)
			add(first + lost + 2)
			if missing := read(check.Scan{Since: since}); missing != lost && first > 0 {
				t.Errorf("%d events are missing after the first %d, want %d", missing, first, lost)
			}
			if seen := events.Seen()["a"]; seen != uint64(first+lost+2) {
				t.Errorf("the last event that was seen is %d, want %d", seen, first+lost+2)
			}
		}
	}
}
