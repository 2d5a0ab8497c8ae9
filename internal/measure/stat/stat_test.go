package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestMedian(t *testing.T) {
	seq := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64(n - i) // in descending order, because Median must sort
		}
		return v
	}
	for _, tc := range []struct {
		values []float64
		want   Interval
	}{
		{[]float64{3}, Interval{3, 3, 3}},
		{seq(4), Interval{2.5, 1, 4}},
		{seq(5), Interval{3, 1, 5}},
		// These are the ranks from published tables of the sign test.
		{seq(10), Interval{5.5, 2, 9}},
		{seq(21), Interval{11, 6, 16}},
		{seq(100), Interval{50.5, 40, 61}},
	} {
		if got := Median(tc.values); got != tc.want {
			t.Errorf("Median of %d values = %v, want %v", len(tc.values), got, tc.want)
		}
	}
	if got := Median(nil); !math.IsNaN(got.Median) {
		t.Errorf("Median of nothing = %v", got)
	}
}

// TestEnough checks that Enough is the smallest number of values whose range contains the median with a
// probability of at least 95 %. The range misses the median if all values are on the same side of it.
func TestEnough(t *testing.T) {
	for n := 1; n <= 20; n++ {
		if has := 1-2*math.Pow(0.5, float64(n)) >= 0.95; has != (n >= Enough) {
			t.Errorf("%d values have a 95 %% interval: %v, but Enough is %d", n, has, Enough)
		}
	}
}

// TestIntervalContainsTheMedian checks on random samples that the interval contains the true median in at least
// 95 % of all cases.
func TestIntervalContainsTheMedian(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const runs, n = 4000, 21
	hits := 0
	for range runs {
		v := make([]float64, n)
		for i := range v {
			v[i] = r.ExpFloat64()
		}
		if m := Median(v); m.Low <= math.Ln2 && math.Ln2 <= m.High {
			hits++
		}
	}
	if share := float64(hits) / runs; share < 0.95 {
		t.Errorf("the interval contains the median in only %.3f of all cases", share)
	}
}

// TestRatioIsWithinTheRound checks that the ratio stays exact on a machine that is ten times slower
// in some rounds.
func TestRatioIsWithinTheRound(t *testing.T) {
	a, b := []float64{2, 2, 20, 20, 2, 20}, []float64{1, 1, 10, 10, 1, 10}
	if got := Ratio(a, b); got != (Interval{2, 2, 2}) {
		t.Errorf("Ratio = %v", got)
	}
}
