package check

import (
	"cmp"
	"slices"
	"time"

	"grablab/internal/catalog"
)

// BeliefGap returns the longest time for which a client still believed that it held the lock after
// another client had acquired it. If that never happened, ok is false.
func BeliefGap(holds []Hold, excludes catalog.Exclusion) (gap time.Duration, ok bool) {
	if excludes == catalog.NoExclusion {
		return 0, false
	}
	holds = slices.SortedFunc(slices.Values(holds), func(a, b Hold) int {
		return cmp.Or(compareGroup(excludes, a.Span, b.Span), a.compare(b.Span))
	})
	for i := range len(holds) - 1 {
		h, next := holds[i], holds[i+1]
		if compareGroup(excludes, h.Span, next.Span) == 0 && h.LossKnownAt > next.From {
			gap, ok = max(gap, h.LossKnownAt-next.From), true
		}
	}
	return gap, ok
}
