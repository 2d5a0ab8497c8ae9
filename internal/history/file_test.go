//go:build unix

package history_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"grablab/internal/history"

	"golang.org/x/sys/unix"
)

// If childEnv is set, the test binary records events to the file named in childEnv, and then kills its
// own process. If amidEnv is set too, it does so while it is still recording.
const (
	childEnv = "HISTORY_TEST_FILE"
	amidEnv  = "HISTORY_TEST_AMID"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		dieRecording(path, os.Getenv(amidEnv) != "")
	}
	os.Exit(m.Run())
}

const killedAfter = 2500 // number of events before the process kills itself

var note = strings.Repeat("n", 1000)

// dieRecording records events from several goroutines and kills its own process after killedAfter
// events. If amid is true, it does so at a random time while it is recording.
func dieRecording(path string, amid bool) {
	f, err := history.Create(path, "8004")
	if err != nil {
		panic(err)
	}
	die := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	if amid {
		time.AfterFunc(rand.N(3*time.Millisecond), die)
	}
	var done sync.WaitGroup
	for g := range 10 {
		done.Go(func() {
			for i := 0; amid || i < killedAfter/10; i++ {
				f.Record(history.Event{Kind: history.Invoke, Op: history.Grab, Order: int64(i), Driver: int64(g), Note: note})
			}
		})
	}
	done.Wait()
	die()
	select {}
}

func runToKill(t *testing.T, path string, env ...string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(append(os.Environ(), childEnv+"="+path), env...)
	if out, err := child.CombinedOutput(); child.ProcessState == nil || child.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child: %v\n%s", err, out)
	}
}

// TestFileIsKilledAmidALine kills processes while they write events. Each may leave its last line
// incomplete, which Decode must report, but no earlier event may be lost.
func TestFileIsKilledAmidALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	const kills = 20
	for range kills {
		runToKill(t, path, amidEnv+"=1")
	}
	events, lost := decode(t, path)
	if len(events) == 0 || len(lost) > kills {
		t.Errorf("%d events, %d lost", len(events), len(lost))
	}
	for i, e := range events {
		if i > 0 && e.Incarnation == events[i-1].Incarnation && e.Seq != events[i-1].Seq+1 {
			t.Errorf("event %d follows event %d", e.Seq, events[i-1].Seq)
		}
	}
}

func TestFileSurvivesKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	for range 2 {
		runToKill(t, path)
	}
	events, lost := decode(t, path)
	if len(events) != 2*killedAfter || len(lost) != 0 {
		t.Fatalf("%d events, lost %v; want %d and none", len(events), lost, 2*killedAfter)
	}
	for i, e := range events {
		if e.Seq != uint64(i%killedAfter+1) || e.Incarnation != i/killedAfter+1 || e.Instance != "8004" {
			t.Fatalf("event %d is %+v", i, e)
		}
		if i > 0 && e.T < events[i-1].T {
			t.Fatalf("event %d came at %v, the one before it at %v", i, e.T, events[i-1].T)
		}
	}
}

// decode returns the events of a file, and the errors that report lost events.
func decode(t *testing.T, path string) (events []history.Event, lost []error) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range history.Decode(bytes.NewReader(data)) {
		switch {
		case err == nil:
			events = append(events, e)
		case errors.Is(err, history.ErrEventsLost):
			lost = append(lost, err)
		default:
			t.Fatal(err)
		}
	}
	return events, lost
}

// TestFileMendsATornLine ends a file with an incomplete line of every possible length. Decode must
// report this line, and the next event must begin a new line.
func TestFileMendsATornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	record(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(whole)-1; cut++ { // a line that lacks only its newline is complete
		before := append(bytes.Clone(whole), whole[:cut]...)
		// Make a new file, because overwriting the old one would flush it to the disk, which is
		// slow.
		if err := errors.Join(os.Remove(path), os.WriteFile(path, before, 0o644)); err != nil {
			t.Fatal(err)
		}
		if events, lost := decode(t, path); len(lost) != 1 || events[0].Seq != 1 {
			t.Errorf("torn at %d of %d: before the next event, events %+v, lost %v", cut, len(whole), events, lost)
		}
		if end := endOf(t, path); end != int64(len(whole)) {
			t.Errorf("torn at %d of %d: the whole lines end at %d", cut, len(whole), end)
		}
		record(t, path)
		events, lost := decode(t, path)
		if got := events[len(events)-1]; len(lost) != 1 || got.Incarnation != 2 || got.Seq != 1 {
			t.Errorf("torn at %d of %d: last event %+v, lost %v", cut, len(whole), got, lost)
		}
	}
}

func TestEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	for _, tt := range []struct {
		text string
		want int64
	}{
		{"", 0}, {"a", 0}, {"a\n", 2}, {"a\nb", 2}, {"a\nb\n", 4},
		{strings.Repeat("x", 200_000) + "\n", 200_001},
		{strings.Repeat("x", 200_000) + "\ny", 200_001},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := endOf(t, path); got != tt.want {
			t.Errorf("%.10q, %d bytes: the complete lines end at %d, want %d", tt.text, len(tt.text), got, tt.want)
		}
	}
}

// TestEndOfAnUnreadableFile checks that End returns an error for a file whose end cannot be read. With a wrong
// position, a resumed run would delete its events.
func TestEndOfAnUnreadableFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	for _, text := range []string{"a\n", "a\nb"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if end, err := history.End(f); err == nil {
			t.Errorf("%q, open for writing only: End returns %d and no error", text, end)
		}
		f.Close()
		if end, err := history.End(f); err == nil {
			t.Errorf("%q, closed: End returns %d and no error", text, end)
		}
	}
}

func endOf(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	end, err := history.End(f)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func create(t *testing.T, path string) *history.File {
	t.Helper()
	f, err := history.Create(path, "8004")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// record writes one event to the file as a new incarnation of its instance.
func record(t *testing.T, path string) {
	t.Helper()
	f := create(t, path)
	f.Record(history.Event{Kind: history.OK, Op: history.Claim, Order: 7, Driver: 42, Token: "T"})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFileGrows checks that a file contains exactly the recorded events, whatever the length of the
// lines.
func TestFileGrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	const incarnations, events = 3, 2000
	for range incarnations {
		f := create(t, path)
		for i := range events {
			f.Record(history.Event{Kind: history.OK, Op: history.Grab, Order: int64(i), Note: note[:i%len(note)]})
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.IndexByte(data, 0) >= 0 || bytes.Count(data, []byte{'\n'}) != incarnations*events {
		t.Error("the file contains NUL bytes, or its number of lines is not the number of events")
	}
	got, lost := decode(t, path)
	if len(got) != incarnations*events || len(lost) != 0 {
		t.Fatalf("%d events, lost %v; want %d and none", len(got), lost, incarnations*events)
	}
	for i, e := range got {
		if e.Incarnation != i/events+1 || e.Order != int64(i%events) || len(e.Note) != i%events%len(note) {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
}

func TestFileTellsThatEventsAreLost(t *testing.T) {
	f, err := history.Create("/dev/full", "8004")
	if err != nil {
		t.Skip("no /dev/full here:", err)
	}
	for range 3 {
		f.Record(history.Event{Kind: history.OK, Op: history.Grab})
	}
	if err := f.Close(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "cannot write event 1,") {
		t.Errorf("Close returned %v, want %v and the first lost event", err, syscall.ENOSPC)
	}
}

// TestFileMeetsALimit limits the file size for some time. Only the events that exceed the limit may
// be lost, and Decode and Close must report the loss.
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
	const events, more = 2000, 1000 // each event has more than 1,000 bytes
	recordMany := func(n int) {
		for range n {
			f.Record(history.Event{Kind: history.OK, Op: history.Grab, Note: note})
		}
	}
	set(unix.Rlimit{Cur: 1 << 20, Max: before.Max})
	recordMany(events)
	set(before)
	recordMany(more)
	if err := f.Close(); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("Close returned %v, want %v", err, syscall.EFBIG)
	}
	got, lost := decode(t, path)
	later := 0 // number of events that were recorded after the limit was lifted; all must be there
	for _, e := range got {
		if e.Seq > events {
			later++
		}
	}
	if later != more {
		t.Errorf("after the limit was lifted, %d of %d events were recorded", later, more)
	}
	// Decode must report the incomplete line at the limit. The lost events leave a gap in the numbers.
	if len(lost) != 1 || len(got) <= more || len(got) >= events+more || got[len(got)-1].Seq != events+more {
		t.Errorf("%d of %d events, lost %v; want one incomplete line", len(got), events+more, lost)
	}
}

func TestCreateFails(t *testing.T) {
	if _, err := history.Create(filepath.Join(t.TempDir(), "missing", "events.jsonl"), "8004"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, os.ErrNotExist)
	}
}

// TestFileClock checks that events are timed by the host's CLOCK_MONOTONIC: an event's time must
// lie between two readings of this clock.
func TestFileClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	before := hostClock(t)
	record(t, path)
	after := hostClock(t)
	events, _ := decode(t, path)
	if at := events[0].T; at < before || at > after {
		t.Errorf("event at %v, recorded between %v and %v", at, before, after)
	}
}

func hostClock(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func TestDecodeUnreadableLines(t *testing.T) {
	line := func(instance string, incarnation, seq int) string {
		return fmt.Sprintf(`{"seq":%d,"instance":%q,"incarnation":%d,"kind":"ok","op":"grab"}`, seq, instance, incarnation)
	}
	tests := []struct {
		name         string
		lines        []string
		events, lost int
	}{
		{"nothing", nil, 0, 0},
		{"two instances, one restarted", []string{line("a", 1, 1), line("b", 1, 1), line("a", 1, 2), "", line("a", 2, 1), line("b", 1, 2)}, 5, 0},
		{"a gap", []string{line("a", 1, 1), line("a", 1, 3)}, 2, 0},
		{"torn at the end", []string{line("a", 1, 1), line("a", 1, 2)[:20]}, 1, 1},
		{"torn before another", []string{line("a", 1, 1), line("a", 1, 2)[:20] + line("b", 1, 1)}, 1, 1},
		{"no event", []string{`{}`, `[]`, `7`}, 0, 3},
		{"a line too long", []string{`{"seq":1,"kind":"ok","note":"` + strings.Repeat("x", 1<<20) + `"}`, line("a", 1, 1)}, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var events, lost int
			for _, err := range history.Decode(strings.NewReader(strings.Join(tt.lines, "\n"))) {
				if err == nil {
					events++
				} else if errors.Is(err, history.ErrEventsLost) {
					lost++
				} else {
					t.Fatal(err)
				}
			}
			if events != tt.events || lost != tt.lost {
				t.Errorf("%d events, %d losses; want %d, %d", events, lost, tt.events, tt.lost)
			}
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

func TestDecodePassesErrors(t *testing.T) {
	var got []error
	for _, err := range history.Decode(brokenReader{}) {
		got = append(got, err)
	}
	if len(got) != 1 || !errors.Is(got[0], errors.ErrUnsupported) || errors.Is(got[0], history.ErrEventsLost) {
		t.Errorf("got errors %v, want only the reader's error", got)
	}
}

// TestFileShortensNotes records notes of up to three times the maximum length, with a character cut in
// the middle. Decode must find every event.
func TestFileShortensNotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	f := create(t, path)
	notes := []string{"", "dial tcp: \"refused\"\n\\\u2028<é>\x00\xff", strings.Repeat("é", 511) + "x", "x" + strings.Repeat("é", 1500), strings.Repeat("\x00", 3000)}
	for _, n := range notes {
		f.Record(history.Event{Kind: history.Fail, Op: history.Grab, Note: n})
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	events, lost := decode(t, path)
	if len(events) != len(notes) || len(lost) != 0 {
		t.Fatalf("%d events, lost %v; want %d and none", len(events), lost, len(notes))
	}
	for i, n := range notes {
		if want := strings.ToValidUTF8(n[:min(len(n), 1<<10)], "\ufffd"); events[i].Note != want {
			t.Errorf("%.20q: read %q, want %q", n, events[i].Note, want)
		}
	}
}

// FuzzDecode checks that Decode reads any file to its end. Each line that is not blank must yield
// an event or a loss.
func FuzzDecode(f *testing.F) {
	const line = `{"seq":1,"t_ns":0,"instance":"8004","kind":"ok","op":"grab","order":0,"driver":0}`
	f.Add([]byte(line + "\n"))
	f.Add([]byte("{}\n\n{\x00"))
	f.Add([]byte("\x00\"seq\"\n\x00\x00" + line + "\n\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var events, lost int
		for e, err := range history.Decode(bytes.NewReader(data)) {
			switch {
			case err == nil && e.Seq > 0:
				events++
			case errors.Is(err, history.ErrEventsLost):
				lost++
			default:
				t.Fatalf("Decode yielded an unexpected pair: event %+v, error %v", e, err)
			}
		}
		lines := 0
		for line := range bytes.Lines(data) {
			if len(bytes.TrimSpace(line)) > 0 {
				lines++
			}
		}
		if events+lost != lines {
			t.Errorf("%d lines gave %d events and %d losses", lines, events, lost)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	f, err := history.Create(filepath.Join(b.TempDir(), "events.jsonl"), "8004")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	e := history.Event{
		Kind: history.OK, Op: history.Acquire, Order: 12345, Driver: 42,
		Strategy: "watchdog-fenced", Token: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Fence: 1234,
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.Record(e)
		}
	})
	b.Run("together", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				f.Record(e)
			}
		})
	})
}
