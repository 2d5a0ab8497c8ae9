package check

import (
	"cmp"
	"slices"
	"time"

	"grablab/internal/catalog"
)

// holdersExclusive checks that no two drivers held an order's lock at the same time. Judge calls it
// through the table checkers.
func holdersExclusive(e Evidence) Verdict {
	switch {
	case e.Foreign && e.Record == nil:
		return unknown("the service's lock is not visible")
	case e.Excludes == catalog.NoExclusion:
		return unknown("the strategy has no lock")
	case e.Record == nil:
		return unknown("the events do not say who held the lock")
	}
	// If events are missing, the end of a hold may be missing too. A hold without a recorded end
	// cannot prove an overlap, so ignore it.
	holds := e.Record.Holds
	if e.Record.MissingEvents > 0 {
		holds = catalog.Filter(holds, func(h Hold) bool { return h.Closed })
	}
	overlaps := Overlaps(holds, e.Excludes)
	switch {
	case len(overlaps) > 0:
		o := overlaps[0]
		return fail("%s began while another hold of the same order lasted: on order %d, driver %d (instance %s) entered %s before driver %d (instance %s) left",
			catalog.Plural(len(overlaps), "hold", "holds"), o.First.Order, o.Second.Driver, o.Second.Instance,
			(o.First.To - o.Second.From).Round(time.Microsecond), o.First.Driver, o.First.Instance)
	case e.Record.MissingEvents > 0:
		return eventsLost(e.Record)
	default:
		return pass("%s, and no two drivers held the lock of the same order at the same time", catalog.Plural(len(holds), "hold", "holds"))
	}
}

// Overlap is a pair of periods, the second of which began before the first had ended.
type Overlap struct{ First, Second Span }

// Overlaps returns an entry for every hold that began while another client held the lock for the
// same order. n simultaneous holders count as n-1 overlaps. With [catalog.PerProcess], only holds
// of the same instance can overlap.
func Overlaps(holds []Hold, excludes catalog.Exclusion) []Overlap {
	if excludes == catalog.NoExclusion {
		return nil
	}
	return overlaps(catalog.Map(holds, func(h Hold) Span { return h.Span }), excludes)
}

// overlaps sorts spans and returns an overlap for each span that begins before an earlier span of
// the same group ends.
func overlaps(spans []Span, excludes catalog.Exclusion) []Overlap {
	slices.SortFunc(spans, func(a, b Span) int {
		// If two spans begin at the same time, the shorter one comes first.
		return cmp.Or(compareGroup(excludes, a, b), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Driver, b.Driver))
	})
	var found []Overlap
	var last Span // the period with the latest end so far in this group
	for _, s := range spans {
		same := compareGroup(excludes, s, last) == 0
		if same && s.From < last.To {
			found = append(found, Overlap{last, s})
		}
		if !same || s.To > last.To {
			last = s
		}
	}
	return found
}

// compareGroup compares the orders of two periods and, for a lock that works only within a process,
// also their instances. It returns 0 if these are equal, so that the two periods must not overlap.
func compareGroup(excludes catalog.Exclusion, a, b Span) int {
	if order := cmp.Compare(a.Order, b.Order); order != 0 || excludes != catalog.PerProcess {
		return order
	}
	return cmp.Compare(a.Instance, b.Instance)
}
