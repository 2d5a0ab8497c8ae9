package check

import (
	"cmp"
	"slices"
	"time"

	"grablab/internal/catalog"
)

func holdersExclusive(e Evidence) Verdict {
	switch {
	case e.Excludes == catalog.NoExclusion:
		return unknown("there is no lock that could be held")
	case e.Record == nil:
		return unknown("it was not recorded who held the lock")
	}
	// Without all events an open end may be one whose release was lost: such a
	// hold proves no overlap. Two that were both seen to end still do.
	holds := e.Record.Holds
	if e.Record.MissingEvents > 0 {
		holds = slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return !h.Closed })
	}
	overlaps := Overlaps(holds, e.Excludes)
	switch {
	case len(overlaps) > 0:
		o := overlaps[0]
		return fail("%s began while another of its order lasted: on order %d driver %d (instance %s) entered %s before driver %d (instance %s) left",
			Plural(len(overlaps), "hold", "holds"), o.First.Order, o.Second.Driver, o.Second.Instance,
			(o.First.To - o.Second.From).Round(time.Microsecond), o.First.Driver, o.First.Instance)
	case e.Record.MissingEvents > 0:
		return eventsLost(e.Record)
	default:
		return pass("%s, none at the same time as another of its order", Plural(len(holds), "hold", "holds"))
	}
}

// Overlap is a span that began while an earlier one of the same order lasted.
type Overlap struct{ First, Second Span }

// Overlaps returns one entry for every hold that began while another of its
// order lasted: n holders at once are n-1 overlaps, as n ledger rows of one
// order are n-1 double-grabs. How far the lock excludes says which holds are
// compared: within [catalog.PerProcess] only those of one instance, without a lock
// none. They are sorted by order, then by time.
func Overlaps(holds []Hold, excludes catalog.Exclusion) []Overlap {
	if excludes == catalog.NoExclusion {
		return nil
	}
	spans := make([]Span, len(holds))
	for i, h := range holds {
		spans[i] = h.Span
	}
	return overlaps(spans, excludes)
}

func overlaps(spans []Span, excludes catalog.Exclusion) []Overlap {
	slices.SortFunc(spans, func(a, b Span) int {
		// Of those that begin together, one that ended at once was over before the others.
		return cmp.Or(compareGroup(excludes, a, b), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Driver, b.Driver))
	})
	var found []Overlap
	var last Span // to end, of those before in the group
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

// compareGroup is 0 if the lock must keep two holders like these apart: they are at
// one order and, where it excludes only within a process, of one instance.
func compareGroup(excludes catalog.Exclusion, a, b Span) int {
	if order := cmp.Compare(a.Order, b.Order); order != 0 || excludes != catalog.PerProcess {
		return order
	}
	return cmp.Compare(a.Instance, b.Instance)
}
