package load

import (
	"math"
	"math/bits"
	"time"
)

// OverTime holds latencies over the course of a load, in time slices of equal length. A request
// belongs to the slice in which it was due. A slice without requests has no latency.
type OverTime struct {
	SliceMS float64    `json:"slice_ms"`
	N       []int      `json:"n"` // number of requests
	P50     []*float64 `json:"p50"`
	P99     []*float64 `json:"p99"`
	SentP50 []*float64 `json:"sent_p50"` // counted from sending
	SentP99 []*float64 `json:"sent_p99"`
}

// mostSlices is the maximum number of slices in a series. When a longer series needs more, all
// slices become twice as long.
const mostSlices = 48

// Series collects latencies over time in a fixed amount of memory. Its relative error is at most
// 1/16.
type Series struct {
	slice  time.Duration
	slices []slice
}

// slice counts the latencies of the requests in one slice of time, both from the schedule and from
// sending.
type slice struct {
	n               int
	scheduled, sent [512]uint32
}

// NewSeries returns an empty Series.
func NewSeries() *Series { return &Series{slice: 10 * time.Millisecond} }

// Add adds the latencies of a request that was due at the given time after the start.
func (s *Series) Add(at, scheduled, sent time.Duration) {
	at = max(at, 0)
	for at/s.slice >= mostSlices {
		s.halve()
	}
	i := int(at / s.slice)
	for len(s.slices) <= i {
		s.slices = append(s.slices, slice{})
	}
	here := &s.slices[i]
	here.n++
	here.scheduled[bucket(scheduled)]++
	here.sent[bucket(sent)]++
}

// halve merges each pair of neighbouring slices, so that half as many remain.
func (s *Series) halve() {
	s.slice *= 2
	for i := range s.slices {
		if i%2 == 0 {
			s.slices[i/2] = s.slices[i]
			continue
		}
		to := &s.slices[i/2]
		to.n += s.slices[i].n
		for b := range to.scheduled {
			to.scheduled[b] += s.slices[i].scheduled[b]
			to.sent[b] += s.slices[i].sent[b]
		}
	}
	s.slices = s.slices[:(len(s.slices)+1)/2]
}

// bucket returns the bucket for a latency. There are sixteen buckets for each power of two
// of a microsecond.
func bucket(d time.Duration) int {
	us := uint64(min(max(d.Microseconds(), 0), math.MaxUint32))
	if us < 16 {
		return int(us)
	}
	e := bits.Len64(us) - 1
	return (e-3)*16 + int(us>>(e-4)&15)
}

// upperBound returns the longest latency in a bucket, in milliseconds.
func upperBound(bucket int) float64 {
	if bucket < 16 {
		return float64(bucket) / 1000
	}
	e := bucket/16 + 3
	return float64(uint64(bucket%16+17)<<(e-4)-1) / 1000
}

// OverTime returns the latencies over time, or nil if the series is empty.
func (s *Series) OverTime() *OverTime {
	if len(s.slices) == 0 {
		return nil
	}
	o := &OverTime{SliceMS: float64(s.slice.Microseconds()) / 1000}
	for i := range s.slices {
		here := &s.slices[i]
		o.N = append(o.N, here.n)
		o.P50, o.P99 = append(o.P50, here.at(&here.scheduled, 0.5)), append(o.P99, here.at(&here.scheduled, 0.99))
		o.SentP50, o.SentP99 = append(o.SentP50, here.at(&here.sent, 0.5)), append(o.SentP99, here.at(&here.sent, 0.99))
	}
	return o
}

// at returns the latency that the given share of requests does not exceed. It returns nil if the
// slice has no requests.
func (s *slice) at(counts *[512]uint32, share float64) *float64 {
	if s.n == 0 {
		return nil
	}
	left := int(math.Ceil(share * float64(s.n)))
	for b, n := range counts {
		if left -= int(n); left <= 0 {
			return new(upperBound(b))
		}
	}
	return nil
}
