package history_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"grablab/internal/history"

	"golang.org/x/sys/unix"
)

// chunk is what a File reserves at a time.
const chunk = 1 << 20

// recordMany records so many events that they go into further chunks.
func recordMany(f *history.File, chunks int) (events int) {
	events = chunks * chunk / len(note)
	for range events {
		f.Record(history.Event{Kind: history.OK, Op: history.Grab, Note: note})
	}
	return events
}

// What a File has mapped somebody cuts away: the event that meets it is lost,
// the process lives on, and so does the File.
func TestFileIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	f := create(t, path)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.Record(history.Event{Kind: history.OK, Op: history.Grab})
	}
	if err := f.Close(); err == nil || !strings.Contains(err.Error(), "event 1 is lost") {
		t.Errorf("close: %v, want event 1 lost", err)
	}
	events, lost := decode(t, path)
	if len(events) != 2 || events[0].Seq != 2 || events[1].Seq != 3 || len(lost) != 0 {
		t.Errorf("events %+v, lost %v; want the two after it", events, lost)
	}
}

// Within the page that is written to, nothing faults: that is seen at the end.
func TestFileIsCutUnseen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	f := create(t, path)
	for range 2 {
		f.Record(history.Event{Kind: history.OK, Op: history.Grab})
		if err := os.Truncate(path, 10); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err == nil || !strings.Contains(err.Error(), "somebody has cut") {
		t.Errorf("close: %v, want the cut", err)
	}
}

// Where a file may grow no further, the events from there on are lost, until it
// may again.
func TestFileMeetsALimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	f := create(t, path)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(limit unix.Rlimit) {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	defer set(before)
	set(unix.Rlimit{Cur: chunk * 3 / 2, Max: before.Max})
	n := recordMany(f, 2)
	set(before)
	more := recordMany(f, 2)
	if err := f.Close(); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("close: %v, want too large", err)
	}
	events, lost := decode(t, path)
	if len(lost) != 1 || len(events) <= more || len(events) >= n+more || events[len(events)-1].Seq != uint64(n+more) {
		t.Errorf("%d of %d and %d events, lost %v; want one gap in the first", len(events), n, more, lost)
	}
}
