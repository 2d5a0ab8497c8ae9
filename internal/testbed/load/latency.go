package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is a distribution in milliseconds.
type Latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Histogram collects latencies in a fixed size: microseconds up to an hour, to
// three digits.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram returns an empty one.
func NewHistogram() Histogram {
	return Histogram{hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

// Add adds one latency. The range covers every timeout that a run accepts.
func (l Histogram) Add(d time.Duration) {
	_ = l.h.RecordValue(min(max(d.Microseconds(), 0), time.Hour.Microseconds()))
}

// Latency is nil when nothing was added.
func (l Histogram) Latency() *Latency {
	if l.h.TotalCount() == 0 {
		return nil
	}
	at := func(p float64) float64 { return float64(l.h.ValueAtQuantile(p)) / 1000 }
	return &Latency{
		Min: float64(l.h.Min()) / 1000, Mean: l.h.Mean() / 1000, Max: float64(l.h.Max()) / 1000,
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
	}
}

// Held says whether the load was held: counted from the schedule and from the
// moment of sending, the 99th percentiles part by no more than a tenth.
func Held(scheduled, sent *Latency) bool { return scheduled.P99 <= 1.1*sent.P99 }

// At is below which so many of the latencies lie.
func (l Histogram) At(n float64) time.Duration {
	if l.h.TotalCount() == 0 {
		return 0
	}
	return time.Duration(l.h.ValueAtQuantile(100*n/float64(l.h.TotalCount()))) * time.Microsecond
}
