package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/history"
)

var holdersApart = Checker{
	Name:  "holders-apart",
	About: "no two holders of one lock were inside their critical sections at the same instant",
	Check: named("holders-apart", func(e Evidence) Verdict {
		switch {
		case e.Excludes == lock.Nobody:
			return unknown("there is no lock that could be held")
		case e.Record == nil:
			return unknown("nobody recorded who held the lock")
		}
		// Without all events an open end may be one whose release was lost: such
		// a hold convicts nobody. Two that were both seen to end still do.
		holds := e.Record.Holds
		if e.Record.Lost > 0 {
			holds = slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return !h.Closed })
		}
		overlaps := Overlaps(holds, e.Excludes)
		if len(overlaps) == 0 {
			if e.Record.Lost > 0 {
				return unknown(plural(e.Record.Lost, "event was lost", "events were lost"))
			}
			return pass(fmt.Sprintf("%s, none at the same time as another of its order", plural(len(holds), "hold", "holds")))
		}
		o := overlaps[0]
		return fail(fmt.Sprintf("%s began while another of its order lasted: on order %d driver %d (instance %s) entered %s before driver %d (instance %s) left",
			plural(len(overlaps), "hold", "holds"), o.First.Order, o.Second.Driver, o.Second.Instance,
			(o.First.To-o.Second.From).Round(time.Microsecond), o.First.Driver, o.First.Instance), o.events()...)
	}),
}

// Overlap is a hold that began while another of the same order lasted.
type Overlap struct{ First, Second Hold }

// Overlaps returns one entry for every hold that began while another of its
// order lasted: n holders at once are n-1 overlaps, as n ledger rows of one
// order are n-1 double-grabs. Within Process only holds of one instance are
// compared; among Nobody, none are. They are sorted by order, then by time.
func Overlaps(holds []Hold, among lock.Exclusion) []Overlap {
	if among == lock.Nobody {
		return nil
	}
	holds = slices.Clone(holds)
	slices.SortFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), compare(among, a, b), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	var overlaps []Overlap
	var longest Hold // of the holds before, the one that ends last
	for i, h := range holds {
		same := i > 0 && h.Order == longest.Order && compare(among, h, longest) == 0
		if same && h.From < longest.To {
			overlaps = append(overlaps, Overlap{longest, h})
		}
		if !same || h.To > longest.To {
			longest = h
		}
	}
	return overlaps
}

// compare is 0 if two holders like these must be kept apart.
func compare(among lock.Exclusion, x, y Hold) int {
	if among == lock.Process {
		return cmp.Compare(x.Instance, y.Instance)
	}
	return 0
}

// events that show the overlap, in the order of time.
func (o Overlap) events() []history.Event {
	var events []history.Event
	for _, h := range []Hold{o.First, o.Second} {
		e := history.Event{
			Seq: h.fromSeq, T: h.From, Instance: h.Instance, Kind: history.OK, Op: history.Acquire,
			Order: h.Order, Driver: h.Driver, Token: h.Token, Fence: h.Fence,
		}
		events = append(events, e)
		if h.toSeq > 0 {
			e.Seq, e.T, e.Kind, e.Op = h.toSeq, h.To, history.Invoke, history.Release
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	return events
}
