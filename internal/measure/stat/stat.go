// Package stat says how much a handful of noisy measurements is worth. It
// knows medians and ranks alone: nothing is assumed of how they are spread.
package stat

import (
	"fmt"
	"math"
	"slices"
)

// Interval is a median with its 95 % confidence interval.
type Interval struct{ Median, Low, High float64 }

// Enough is how many values it takes for an interval of 95 %.
const Enough = 6

// Median of the values, with the interval between those order statistics that
// hold the true median with at least 95 % (the sign test's; Hahn and Meeker,
// Statistical Intervals, 5.2). Fewer than Enough values cannot promise that much:
// their whole range is returned. No value at all gives NaN.
func Median(values []float64) Interval {
	n := len(values)
	if n == 0 {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	v := slices.Sorted(slices.Values(values))
	median := v[n/2]
	if n%2 == 0 {
		median = (v[n/2-1] + v[n/2]) / 2
	}
	k := tail(n)
	return Interval{median, v[k], v[n-1-k]}
}

// tail is how many of n values may be left out on either side: the largest k
// for which a fair coin thrown n times shows k heads or fewer with at most 2.5 %.
func tail(n int) int {
	p := math.Pow(0.5, float64(n)) // of exactly i heads
	sum := 0.0
	for i := 0; ; i++ {
		if sum += p; sum > 0.025 {
			return max(i-1, 0)
		}
		p *= float64(n-i) / float64(i+1)
	}
}

// Ratio is the median of a[i]/b[i]: what was measured in one round is compared
// within it, so that a machine whose speed drifts does not count.
func Ratio(a, b []float64) Interval {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return Median(ratios)
}

// Misses says whether the whole interval lies above the bound.
func (i Interval) Misses(atMost float64) bool { return i.Low > atMost }

// String is "1.046 [1.010, 1.093]".
func (i Interval) String() string {
	return fmt.Sprintf("%.3f [%.3f, %.3f]", i.Median, i.Low, i.High)
}
