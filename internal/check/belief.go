package check

import (
	"cmp"
	"slices"
	"time"

	"grablab/internal/grab/lock"
)

// BeliefGap is for how long a holder went on believing that the lock was his:
// the longest time from the return of the next one's acquire, by when he surely
// had lost it, to the moment at which he learned. ok is false where nobody lost
// the lock to another, or where none of those who did ever learned.
func BeliefGap(holds []Hold, among lock.Exclusion) (gap time.Duration, ok bool) {
	if among == lock.Nobody {
		return 0, false
	}
	holds = slices.SortedFunc(slices.Values(holds), func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), compare(among, a, b), cmp.Compare(a.From, b.From))
	})
	for i := range len(holds) - 1 {
		h, next := holds[i], holds[i+1]
		same := h.Order == next.Order && compare(among, h, next) == 0
		if same && h.Knew > next.From {
			gap, ok = max(gap, h.Knew-next.From), true
		}
	}
	return gap, ok
}
