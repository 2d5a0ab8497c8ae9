package load

import (
	"time"
)

// OverTime contains latencies in equal time slices. A request belongs to the slice in which it was
// due.
type OverTime struct {
	SliceMS float64    `json:"slice_ms"`
	N       []int      `json:"n"` // requests per slice
	P50     []*float64 `json:"p50"`
	P99     []*float64 `json:"p99"`
	SentP50 []*float64 `json:"sent_p50"` // measured from the actual send time
	SentP99 []*float64 `json:"sent_p99"`
}

// maxSlices limits the number of slices. If there are more, neighbouring slices are merged in
// pairs.
const maxSlices = 48

// Series collects latencies over time in constant memory, with two significant digits.
type Series struct {
	slice  time.Duration
	slices []slice
}

// slice contains the latencies in one time slice. scheduled counts from the planned send time, and
// sent from the actual one.
type slice struct{ scheduled, sent Histogram }

// NewSeries returns an empty Series.
func NewSeries() *Series { return &Series{slice: 10 * time.Millisecond} }

// Add records a request that was due at this time after the start, with its latencies from the
// planned and the actual send time.
func (s *Series) Add(at, scheduled, sent time.Duration) {
	at = max(at, 0)
	for at/s.slice >= maxSlices {
		s.halve()
	}
	i := int(at / s.slice)
	for len(s.slices) <= i {
		s.slices = append(s.slices, slice{newHistogram(2), newHistogram(2)})
	}
	s.slices[i].scheduled.Add(scheduled)
	s.slices[i].sent.Add(sent)
}

// halve merges each pair of neighboring slices.
func (s *Series) halve() {
	s.slice *= 2
	for i, from := range s.slices {
		to := &s.slices[i/2]
		if i%2 == 0 {
			*to = from
			continue
		}
		to.scheduled.h.Merge(from.scheduled.h)
		to.sent.h.Merge(from.sent.h)
	}
	s.slices = s.slices[:(len(s.slices)+1)/2]
}

// OverTime returns the latencies over time, or nil if there were no requests.
func (s *Series) OverTime() *OverTime {
	if len(s.slices) == 0 {
		return nil
	}
	o := &OverTime{SliceMS: float64(s.slice.Microseconds()) / 1000}
	for _, here := range s.slices {
		o.N = append(o.N, int(here.sent.h.TotalCount()))
		o.P50, o.P99 = append(o.P50, here.scheduled.quantile(0.5)), append(o.P99, here.scheduled.quantile(0.99))
		o.SentP50, o.SentP99 = append(o.SentP50, here.sent.quantile(0.5)), append(o.SentP99, here.sent.quantile(0.99))
	}
	return o
}
