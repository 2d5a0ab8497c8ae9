package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"grablab/internal/order"
)

var fenceMonotone = Checker{
	Name:  "fence-monotone",
	About: "every acquisition of a lock got a higher fencing token than those that were over before it was asked for",
	Check: named("fence-monotone", func(e Evidence) Verdict {
		if e.Record == nil {
			return unknown("nobody recorded the tokens")
		}
		holds := fencedHolds(e.Record.Holds)
		if before, after, ok := fallsBack(holds); ok {
			return fail(fmt.Sprintf("the tokens of order %d fall back: driver %d (instance %s) got %d, and driver %d (instance %s) after him %d",
				before.Order, before.Driver, before.Instance, before.Fence, after.Driver, after.Instance, after.Fence))
		}
		switch {
		case e.Record.Lost > 0:
			return unknown(plural(e.Record.Lost, "event was lost", "events were lost"))
		case len(holds) == 0:
			return unknown("this lock has no fencing tokens, or nobody got it")
		default:
			return pass(fmt.Sprintf("%s, each higher than those before it", plural(len(holds), "token", "tokens")))
		}
	}),
}

func fencedHolds(holds []Hold) []Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return h.Fence == 0 })
}

// fallsBack finds a token that is no higher than one which had been handed out
// before it was asked for, or one that was handed out twice. Two acquires under
// way together may return in any order: that is a slow reply.
func fallsBack(holds []Hold) (before, after Hold, found bool) {
	byReturn := slices.SortedFunc(slices.Values(holds), func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.From, b.From))
	})
	byCall := slices.SortedFunc(slices.Values(holds), func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Asked, b.Asked))
	})
	var highest Hold // of the order, among those that had returned
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
	return twice(byReturn)
}

// earlier says whether a had returned before b was asked for, or belongs to an
// order that is done with.
func earlier(a, b Hold) bool {
	return a.Order < b.Order || a.Order == b.Order && a.From < b.Asked
}

// twice finds a token that two acquisitions of one order got.
func twice(holds []Hold) (before, after Hold, found bool) {
	holds = slices.Clone(holds)
	slices.SortStableFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Fence, b.Fence))
	})
	for i := 1; i < len(holds); i++ {
		if a, b := holds[i-1], holds[i]; a.Order == b.Order && a.Fence == b.Fence {
			return a, b, true
		}
	}
	return Hold{}, Hold{}, false
}

var noStaleWrite = Checker{
	Name:  "no-stale-write",
	About: "no claim was written whose fencing token was below one that the database had seen",
	Check: named("no-stale-write", func(e Evidence) Verdict {
		if !e.Guard.NeedsFence() {
			return unknown("the guard does not look at fencing tokens")
		}
		if later, stale, ok := rowsFallBack(e.Ledger); ok {
			return fail(fmt.Sprintf("order %d was written with token %d, and after that with token %d", stale.Order, later.Fence, stale.Fence))
		}
		if e.Record == nil {
			return unknown("nobody recorded the tokens")
		}
		seen := seenFences(e.Record, e.Guard)
		var doubt string
		for _, effect := range e.Record.Effects {
			fence, ok := highestBefore(seen[effect.Order], effect.From)
			switch {
			case !ok || effect.Fence >= fence:
			case effect.Sure:
				return fail(fmt.Sprintf("the claim of driver %d on order %d was written with token %d when the database had seen %d",
					effect.Driver, effect.Order, effect.Fence, fence), effect.events()...)
			default:
				doubt = fmt.Sprintf("nobody knows whether the stale claim of driver %d on order %d was written", effect.Driver, effect.Order)
			}
		}
		switch {
		case doubt != "":
			return unknown(doubt)
		case e.NoLedger != nil:
			return unknown(fmt.Sprintf("the ledger could not be read: %v", e.NoLedger))
		case e.Record.Lost > 0:
			return unknown(plural(e.Record.Lost, "event was lost", "events were lost"))
		default:
			return pass(fmt.Sprintf("%s, none with a token below one that had been seen", plural(len(e.Ledger), "claim was written", "claims were written")))
		}
	}),
}

// rowsFallBack finds a row of the ledger with a lower token than one that was
// written before it.
func rowsFallBack(ledger []order.Grab) (later, stale order.Grab, found bool) {
	highest := map[int64]order.Grab{}
	for _, g := range ledger {
		if h, ok := highest[g.Order]; ok && g.Fence < h.Fence {
			return h, g, true
		}
		highest[g.Order] = g
	}
	return order.Grab{}, order.Grab{}, false
}

// sighting is a token that the database had seen by t at the latest.
type sighting struct {
	t     time.Duration
	fence uint64
}

// seenFences lists by order what was shown to the database, and when its answer
// came: by the claims that wrote, and under Fenced by the reads before them.
func seenFences(r *Record, g order.Guard) map[int64][]sighting {
	seen := map[int64][]sighting{}
	for _, e := range r.Effects {
		if e.Sure {
			seen[e.Order] = append(seen[e.Order], sighting{e.To, e.Fence})
		}
	}
	if g == order.Fenced {
		for _, h := range r.Holds {
			if h.Read > 0 {
				seen[h.Order] = append(seen[h.Order], sighting{h.Read, h.Fence})
			}
		}
	}
	return seen
}

func highestBefore(seen []sighting, t time.Duration) (fence uint64, ok bool) {
	for _, s := range seen {
		if s.t < t && s.fence >= fence {
			fence, ok = s.fence, true
		}
	}
	return fence, ok
}
