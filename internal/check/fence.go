package check

import (
	"cmp"
	"slices"
)

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
		return pass("%s, and each is higher than the earlier ones", Plural(len(holds), "token", "tokens"))
	}
}

// lowerToken finds a fencing token that is not higher than an earlier token for the same order. It
// ignores concurrent calls, because either of them may have been first.
func lowerToken(holds []Hold) (before, after Hold, found bool) {
	byReturn := slices.SortedFunc(slices.Values(holds), func(a, b Hold) int { return a.compare(b.Span) })
	byCall := slices.SortedFunc(slices.Values(holds), func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.AcquireCalled, b.AcquireCalled))
	})
	var highest Hold // the holder with the order's highest token so far
	next := 0
	for _, h := range byCall {
		for ; next < len(byReturn) && earlier(byReturn[next], h); next++ {
			if r := byReturn[next]; r.Order != highest.Order || r.Fence > highest.Fence {
				highest = r
			}
		}
		if highest.Order == h.Order && h.Fence <= highest.Fence {
			return highest, h, true
		}
	}
	return firstRepeat(byReturn)
}

// earlier reports whether holder a acquired the lock before holder b asked for it. It also returns
// true if a belongs to an earlier order.
func earlier(a, b Hold) bool {
	return a.Order < b.Order || a.Order == b.Order && a.From < b.AcquireCalled
}

// firstRepeat finds two holders with the same fencing token for the same order.
func firstRepeat(holds []Hold) (before, after Hold, found bool) {
	type token struct {
		order int64
		fence uint64
	}
	got := map[token]Hold{}
	for _, h := range holds {
		t := token{h.Order, h.Fence}
		if first, ok := got[t]; ok {
			return first, h, true
		}
		got[t] = h
	}
	return Hold{}, Hold{}, false
}
