package check

import (
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// staleWrite checks that no write had a lower fencing token than the database had already seen.
func staleWrite(e Evidence) Verdict {
	if !e.Guard.NeedsFence() {
		return unknown("the guard does not look at fencing tokens")
	}
	if later, stale, ok := lowerTokenInLedger(e.Ledger); ok {
		return fail("order %d was written with token %d, and after that with token %d", stale.Order, later.Fence, stale.Fence)
	}
	if e.Record == nil {
		return unknown("the fencing tokens were not recorded")
	}
	seen := seenFences(e.Record, e.Guard)
	var doubt *Effect
	for _, effect := range e.Record.Effects {
		fence := highestBefore(seen[effect.Order], effect.From)
		switch {
		case effect.Fence >= fence:
		case effect.Sure:
			return fail("driver %d wrote order %d with token %d after the database had seen token %d",
				effect.Driver, effect.Order, effect.Fence, fence)
		default:
			doubt = &effect
		}
	}
	switch {
	case doubt != nil:
		return unknown("it is unknown whether the stale claim of driver %d on order %d was written", doubt.Driver, doubt.Order)
	case e.LedgerErr != nil:
		return noLedger(e)
	case e.Record.MissingEvents > 0:
		return eventsLost(e.Record)
	default:
		return pass("%s, and none with a lower token than the database had seen", catalog.Plural(len(e.Ledger), "claim was written", "claims were written"))
	}
}

// lowerTokenInLedger finds a ledger row with a lower fencing token than an earlier row for the same
// order.
func lowerTokenInLedger(ledger []order.Grab) (later, stale order.Grab, found bool) {
	highest := map[int64]order.Grab{}
	for _, g := range ledger {
		if h, ok := highest[g.Order]; ok && g.Fence < h.Fence {
			return h, g, true
		}
		highest[g.Order] = g
	}
	return order.Grab{}, order.Grab{}, false
}

// A sighting records a fencing token that the database had seen by the time t.
type sighting struct {
	t     time.Duration
	fence uint64
}

// seenFences returns the fencing tokens that the database has seen, by order, with the times of its
// replies.
func seenFences(r *Record, g order.Guard) map[int64][]sighting {
	seen := map[int64][]sighting{}
	for _, e := range r.Effects {
		if e.Sure {
			seen[e.Order] = append(seen[e.Order], sighting{e.To, e.Fence})
		}
	}
	if g == order.Fenced {
		for _, h := range r.Holds {
			if h.ReadAt > 0 {
				seen[h.Order] = append(seen[h.Order], sighting{h.ReadAt, h.Fence})
			}
		}
	}
	return seen
}

// highestBefore returns the highest fencing token seen before t, or 0 if there was none.
func highestBefore(seen []sighting, t time.Duration) (fence uint64) {
	for _, s := range seen {
		if s.t < t {
			fence = max(fence, s.fence)
		}
	}
	return fence
}
