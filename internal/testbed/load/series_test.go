package load_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"grablab/internal/testbed/load"
)

// TestSeries checks that a load of any duration has at most 48 slices, and that they count every
// request. Their percentiles must exceed the exact ones by at most 1 %.
func TestSeries(t *testing.T) {
	for _, lasts := range []time.Duration{time.Millisecond, 480 * time.Millisecond, 7 * time.Second, time.Hour} {
		s := load.NewSeries()
		random := rand.New(rand.NewPCG(1, 2))
		const n = 20_000
		type request struct{ at, scheduled, sent time.Duration }
		all := make([]request, n)
		for i := range all {
			sent := time.Duration(math.Exp(random.Float64()*12)) * time.Microsecond
			all[i] = request{time.Duration(random.Int64N(int64(lasts))), sent + time.Duration(random.Int64N(1e6)), sent}
			s.Add(all[i].at, all[i].scheduled, all[i].sent)
		}
		o := s.OverTime()
		if len(o.N) > 48 || float64(len(o.N)-1)*o.SliceMS > float64(lasts.Microseconds())/1000 {
			t.Fatalf("%v: %d slices of %v ms", lasts, len(o.N), o.SliceMS)
		}
		counted := 0
		for i, n := range o.N {
			counted += n
			var scheduled, sent []time.Duration
			for _, r := range all {
				if int(float64(r.at)/1e6/o.SliceMS) == i {
					scheduled, sent = append(scheduled, r.scheduled), append(sent, r.sent)
				}
			}
			if len(sent) != n {
				t.Fatalf("%v: %d requests in slice %d, want %d", lasts, n, i, len(sent))
			}
			for _, c := range []struct {
				got   *float64
				of    []time.Duration
				share float64
			}{{o.P50[i], scheduled, 0.5}, {o.P99[i], scheduled, 0.99}, {o.SentP50[i], sent, 0.5}, {o.SentP99[i], sent, 0.99}} {
				slices.Sort(c.of)
				want := float64(c.of[int(math.Ceil(c.share*float64(n)))-1].Microseconds()) / 1000
				if *c.got < want || *c.got > want*1.01+0.001 {
					t.Errorf("%v: quantile %v of slice %d is %v ms, want %v", lasts, c.share, i, *c.got, want)
				}
			}
		}
		if counted != n {
			t.Errorf("%v: the slices count %d of %d requests", lasts, counted, n)
		}
	}
}

// TestSeriesHasGaps checks that a slice without requests has no latency, and that a series without
// requests has no slices.
func TestSeriesHasGaps(t *testing.T) {
	s := load.NewSeries()
	if o := s.OverTime(); o != nil {
		t.Errorf("an empty series has %+v", o)
	}
	s.Add(-time.Second, time.Second, 0)
	s.Add(25*time.Millisecond, time.Hour, -1)
	o := s.OverTime()
	if !slices.Equal(o.N, []int{1, 0, 1}) || o.P50[1] != nil || *o.SentP50[0] != 0 || *o.P99[2] < 3_600_000 {
		t.Errorf("OverTime: %+v", o)
	}
}
