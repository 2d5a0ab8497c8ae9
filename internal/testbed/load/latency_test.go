package load

import (
	"math"
	"testing"
	"time"
)

// TestQuantiles checks the quantiles, mean, minimum and maximum of known latencies, to three digits.
func TestQuantiles(t *testing.T) {
	for _, tt := range []struct {
		samples int // of 1, 2, … ms
		want    Latency
	}{
		{1, Latency{Min: 1, Mean: 1, P50: 1, P90: 1, P99: 1, P999: 1, Max: 1}},
		{2, Latency{Min: 1, Mean: 1.5, P50: 1, P90: 2, P99: 2, P999: 2, Max: 2}},
		{3, Latency{Min: 1, Mean: 2, P50: 2, P90: 3, P99: 3, P999: 3, Max: 3}},
		{1000, Latency{Min: 1, Mean: 500.5, P50: 500, P90: 900, P99: 990, P999: 999, Max: 1000}},
	} {
		h := NewHistogram()
		for i := range tt.samples {
			h.Add(time.Duration(tt.samples-i) * time.Millisecond) // in descending order, because the order does not matter
		}
		got := *h.Latency()
		for _, f := range []struct {
			name      string
			got, want float64
		}{
			{"min", got.Min, tt.want.Min}, {"mean", got.Mean, tt.want.Mean}, {"p50", got.P50, tt.want.P50}, {"p90", got.P90, tt.want.P90},
			{"p99", got.P99, tt.want.P99}, {"p99.9", got.P999, tt.want.P999}, {"max", got.Max, tt.want.Max},
		} {
			if math.Abs(f.got-f.want) > 0.001*f.want {
				t.Errorf("%s of %d samples is %v, want %v", f.name, tt.samples, f.got, f.want)
			}
		}
	}
	if got := NewHistogram().Latency(); got != nil {
		t.Errorf("an empty histogram has the latency %+v", got)
	}
}

// TestHeld checks when a load counts as sustained. The p99 measured from the schedule must exceed the
// p99 measured from sending by at most 10 %.
func TestHeld(t *testing.T) {
	for _, tt := range []struct {
		scheduled, sent float64
		want            bool
	}{{10, 10, true}, {11, 10, true}, {11.1, 10, false}, {100, 10, false}, {9, 10, true}} {
		if got := Held(&Latency{P99: tt.scheduled}, &Latency{P99: tt.sent}); got != tt.want {
			t.Errorf("%v ms from the schedule, %v ms from sending: %v", tt.scheduled, tt.sent, got)
		}
	}
}
