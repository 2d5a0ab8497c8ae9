// Package stat computes confidence intervals from a few noisy measurements. It uses medians and
// ranks, because these work for any distribution.
package stat

import (
	"math"
	"slices"
)

// Interval is a median with its 95 % confidence interval.
type Interval struct{ Median, Low, High float64 }

// Enough is the smallest number of values from which a 95 % interval can be computed.
const Enough = 6

// Median returns the median with a 95 % confidence interval from the sign test (Hahn and Meeker,
// Statistical Intervals, 5.2). If there are fewer than Enough values, the interval is their range. If
// there are no values, the result is NaN.
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

// tail returns how many of n sorted values are below the confidence interval, which is also how
// many are above it. It is the largest k for which the chance of at most k heads in n coin tosses
// is at most 2.5 %.
func tail(n int) int {
	p := math.Pow(0.5, float64(n)) // probability of i heads in n tosses, beginning with i = 0
	sum := 0.0
	for i := 0; ; i++ {
		if sum += p; sum > 0.025 {
			return max(i-1, 0)
		}
		p *= float64(n-i) / float64(i+1)
	}
}

// Ratio returns the median of a[i]/b[i] with its confidence interval. If a[i] and b[i] were
// measured in the same round, a change in the speed of the machine cancels out.
func Ratio(a, b []float64) Interval {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return Median(ratios)
}
