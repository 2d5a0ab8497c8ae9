package load_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"grablab/internal/testbed/load"
)

// TestSeriesKeepsEveryRequest adds random requests and checks the series after each one. Even after
// slices were merged, every request must count exactly once. A slice's percentiles must lie between
// its smallest and its largest latency.
func TestSeriesKeepsEveryRequest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 21))
	for range 200 {
		s := load.NewSeries()
		lasts := 10 * time.Millisecond << random.IntN(20)
		type request struct{ at, scheduled, sent time.Duration }
		var all []request
		for n := range 1 + random.IntN(40) {
			r := request{at: time.Duration(random.Int64N(int64(lasts)))}
			r.sent = time.Duration(random.Int64N(int64(time.Second))).Truncate(time.Microsecond)
			r.scheduled = r.sent + time.Duration(random.Int64N(int64(time.Second))).Truncate(time.Microsecond)
			all = append(all, r)
			s.Add(r.at, r.scheduled, r.sent)
			o := s.OverTime()
			width := 10.0 // of the smallest slices that hold all requests
			for 48*width <= float64(slices.MaxFunc(all, func(a, b request) int { return cmp.Compare(a.at, b.at) }).at)/1e6 {
				width *= 2
			}
			if o.SliceMS != width {
				t.Fatalf("%v after %d requests: slices of %v ms, want %v ms", lasts, n+1, o.SliceMS, width)
			}
			counted := 0
			for i, inSlice := range o.N {
				counted += inSlice
				var scheduled, sent []time.Duration
				for _, r := range all {
					if int(r.at/time.Duration(o.SliceMS*float64(time.Millisecond))) == i {
						scheduled, sent = append(scheduled, r.scheduled), append(sent, r.sent)
					}
				}
				if len(sent) != inSlice {
					t.Fatalf("%v after %d requests: %d requests in slice %d, want %d", lasts, n+1, inSlice, i, len(sent))
				}
				within(t, o.P50[i], o.P99[i], scheduled)
				within(t, o.SentP50[i], o.SentP99[i], sent)
			}
			if counted != n+1 || len(o.P50) != len(o.N) || len(o.P99) != len(o.N) || len(o.SentP50) != len(o.N) || len(o.SentP99) != len(o.N) {
				t.Fatalf("%v: %d requests in %d slices, want %d", lasts, counted, len(o.N), n+1)
			}
		}
	}
}

// within checks the percentiles of a slice against its latencies. A histogram rounds up by at most 1 %.
func within(t *testing.T, p50, p99 *float64, latencies []time.Duration) {
	t.Helper()
	if len(latencies) == 0 {
		if p50 != nil || p99 != nil {
			t.Fatalf("a slice without requests has the percentiles %v and %v", p50, p99)
		}
		return
	}
	least, most := latencies[0], latencies[0]
	for _, l := range latencies {
		least, most = min(least, l), max(most, l)
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	if *p50 < ms(least) || *p50 > *p99 || *p99 > ms(most)*1.01+0.001 {
		t.Fatalf("percentiles %v and %v of latencies from %v to %v", *p50, *p99, least, most)
	}
}
