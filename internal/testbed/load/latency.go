package load

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is a latency distribution in milliseconds.
type Latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Histogram collects latencies from one microsecond to one hour, with three significant digits and
// in constant memory.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram returns an empty Histogram.
func NewHistogram() Histogram { return newHistogram(3) }

func newHistogram(digits int) Histogram {
	return Histogram{hdrhistogram.New(1, time.Hour.Microseconds(), digits)}
}

// Add records a latency. It clamps a latency that is out of range.
func (l Histogram) Add(d time.Duration) {
	_ = l.h.RecordValue(min(max(d.Microseconds(), 0), time.Hour.Microseconds()))
}

// Latency returns the distribution of the recorded latencies, or nil if there are none.
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

// Held reports whether requests were sent on time. scheduled counts latencies from the planned send
// time, and sent from the actual one. Requests were late if the P99 of scheduled is more than 10 %
// above the P99 of sent.
func Held(scheduled, sent *Latency) bool { return scheduled.P99 <= 1.1*sent.P99 }

// At returns the nth shortest latency, or 0 if there is none.
func (l Histogram) At(n float64) time.Duration {
	if l.h.TotalCount() == 0 {
		return 0
	}
	return time.Duration(l.h.ValueAtQuantile(100*n/float64(l.h.TotalCount()))) * time.Microsecond
}

// quantile returns a latency quantile in milliseconds, or nil if nothing was recorded.
func (l Histogram) quantile(share float64) *float64 {
	if l.h.TotalCount() == 0 {
		return nil
	}
	return new(float64(l.At(math.Ceil(share*float64(l.h.TotalCount()))).Microseconds()) / 1000)
}
