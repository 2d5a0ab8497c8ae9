package grab_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/trace"
	"grablab/internal/history"
	"grablab/internal/measure/stat"
	"grablab/internal/order"
)

// newGrabber returns a function that creates an order in memory and grabs it. Each grab takes a lock
// and wins, so it records nine events, which is the maximum.
func newGrabber(tb testing.TB, recorder history.Recorder) func() {
	tb.Helper()
	return newTracedGrabber(tb, recorder, nil)
}

// newTracedGrabber is like newGrabber, but also creates spans.
func newTracedGrabber(tb testing.TB, recorder history.Recorder, tracer *trace.Tracer) func() {
	tb.Helper()
	store := new(order.Mem)
	tokens := 0
	s, err := grab.New(grab.Config{
		Instance: "8004", Orders: store, Strategy: "mutex", History: recorder, Trace: tracer,
		Lock: lock.Env{Node: "8004", TTL: time.Minute, Token: func() string { tokens++; return fmt.Sprintf("%026d", tokens) }},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return func() {
		id, err := store.Create(context.Background(), 1, 1)
		if err != nil {
			tb.Fatal(err)
		}
		if ans := s.Grab(context.Background(), grab.Request{Order: id, Driver: 42}); ans.Outcome != grab.Grabbed {
			tb.Fatalf("Grab: %+v", ans)
		}
	}
}

func newEventFile(tb testing.TB) *history.File {
	tb.Helper()
	f, err := history.Create(filepath.Join(tb.TempDir(), "events.jsonl"), "8004")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := f.Close(); err != nil {
			tb.Error(err)
		}
	})
	return f
}

// BenchmarkRecording measures how much more CPU time a grab takes if its events are recorded. It has no
// limit to pass, because the result depends on the machine. docs/benchmark.md compares the result with
// the time of a whole grab.
//
//	go test ./internal/grab -run '^$' -bench Recording -benchtime 1x
func BenchmarkRecording(b *testing.B) {
	const rounds, grabs = 21, 5000
	perGrab := func(recorder history.Recorder) float64 {
		next := newGrabber(b, recorder)
		runtime.GC()
		before := cpuTime()
		for range grabs {
			next()
		}
		return float64(cpuTime()-before) / grabs
	}
	for b.Loop() {
		var more, bare []float64
		for round := range rounds + 1 { // the first round is a warm-up
			with, without := perGrab(newEventFile(b)), perGrab(history.Discard)
			if round > 0 {
				more, bare = append(more, with-without), append(bare, without)
			}
		}
		cost := stat.Median(more)
		b.ReportMetric(cost.Median/1000, "recording-us/grab")
		b.ReportMetric(stat.Median(bare).Median/1000, "bare-us/grab")
		b.Logf("CPU time of recording one grab: %.2f us, %.2f to %.2f (median of %d rounds with its 95 %% interval)",
			cost.Median/1000, cost.Low/1000, cost.High/1000, rounds)
	}
}

// TestRecordingIsFlat checks that the memory for recording an event does not grow. Without the race
// detector, it allocates none. With it, encoding/json cannot always reuse its buffers.
func TestRecordingIsFlat(t *testing.T) {
	const most = 3
	f := newEventFile(t)
	e := history.Event{Kind: history.OK, Op: history.Acquire, Order: 12345, Driver: 42, Strategy: "mutex", Token: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Fence: 7}
	f.Record(e) // allocates the buffer
	if n := testing.AllocsPerRun(1000, func() { f.Record(e) }); n > most {
		t.Errorf("%v allocations per event, want at most %d", n, most)
	}
}
