package check

import (
	"cmp"
	"slices"

	"grablab/internal/catalog"
)

// fenceMonotone checks that the fencing tokens of each order only increase. Judge calls it through
// the table checkers.
func fenceMonotone(e Evidence) Verdict {
	if e.Record == nil {
		return unknown("the fencing tokens were not recorded")
	}
	holds := slices.DeleteFunc(slices.Clone(e.Record.Holds), func(h Hold) bool { return h.Fence == 0 })
	if before, after, ok := lowerToken(holds); ok {
		return fail("the fencing tokens of order %d decreased: driver %d (instance %s) got %d, and later driver %d (instance %s) got %d",
			before.Order, before.Driver, before.Instance, before.Fence, after.Driver, after.Instance, after.Fence)
	}
	switch {
	case e.Record.MissingEvents > 0:
		return eventsLost(e.Record)
	case len(holds) == 0:
		return unknown("this lock has no fencing tokens, or no driver got it")
	default:
		return pass("%s, and each is higher than the earlier ones", catalog.Plural(len(holds), "token", "tokens"))
	}
}

// lowerToken finds a fencing token that is not higher than an earlier token for the same order. Of two
// concurrent calls, either may have been first, so their tokens only have to differ.
func lowerToken(holds []Hold) (before, after Hold, found bool) {
	slices.SortFunc(holds, func(a, b Hold) int { // each order's highest token comes first
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(b.Fence, a.Fence), cmp.Compare(a.From, b.From))
	})
	var earliest Hold // the order's first holder among those with a higher token
	for i, h := range holds {
		switch {
		case i == 0 || holds[i-1].Order != h.Order:
			earliest = h
		case holds[i-1].Fence == h.Fence:
			return holds[i-1], h, true
		case earliest.From < h.AcquireCalled:
			return earliest, h, true
		case h.From < earliest.From:
			earliest = h
		}
	}
	return Hold{}, Hold{}, false
}
