package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencies is a distribution of fixed size: microseconds up to an hour, to
// three digits.
type latencies struct{ h *hdrhistogram.Histogram }

func newLatencies() latencies {
	return latencies{hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

func (l latencies) add(d time.Duration) {
	// The range covers every timeout that a run accepts.
	_ = l.h.RecordValue(min(max(d.Microseconds(), 0), time.Hour.Microseconds()))
}

// figures are nil when nothing was added.
func (l latencies) figures() *Latency {
	if l.h.TotalCount() == 0 {
		return nil
	}
	at := func(p float64) float64 { return float64(l.h.ValueAtQuantile(p)) / 1000 }
	return &Latency{
		Min: float64(l.h.Min()) / 1000, Mean: l.h.Mean() / 1000, Max: float64(l.h.Max()) / 1000,
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
	}
}

// held says whether the load was held: counted from the schedule and from the
// moment of sending, the 99th percentiles part by no more than a tenth.
func held(scheduled, sent *Latency) bool {
	return scheduled.P99 <= 1.1*sent.P99
}
