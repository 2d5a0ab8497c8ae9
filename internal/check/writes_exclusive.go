package check

import "grablab/internal/catalog"

// writesExclusive checks that no two successful writes to an order are in flight at the same time,
// whatever the scope of the lock.
func writesExclusive(e Evidence) Verdict {
	if e.Record == nil {
		return unknown("the claims were not recorded")
	}
	if e.Units > 1 && (e.UntilClaim || e.Excludes == catalog.NoExclusion) {
		return unknown("if an order has several units, claims for it may be in flight together, because no lock keeps them apart")
	}
	var sure, all []Span
	for _, effect := range e.Record.Effects {
		all = append(all, effect.Span)
		if effect.Sure {
			certain := effect.Span
			if certain.From == 0 { // the call was not recorded, so the write was certainly in flight only when its reply came
				certain.From = certain.To
			}
			sure = append(sure, certain)
		}
	}
	if found := overlaps(sure, catalog.Global); len(found) > 0 {
		a, b := found[0].First, found[0].Second
		return fail("%s another claim for the same order was in flight: on order %d, those of driver %d (instance %s) and driver %d (instance %s)",
			catalog.Plural(len(found), "claim wrote while", "claims wrote while"), a.Order, a.Driver, a.Instance, b.Driver, b.Instance)
	}
	if e.Record.MissingEvents > 0 {
		return eventsLost(e.Record)
	}
	if found := overlaps(all, catalog.Global); len(found) > 0 {
		a, b := found[0].First, found[0].Second
		return unknown("order %d: the claims of driver %d and driver %d were in flight together, and it is unknown which of them wrote",
			a.Order, a.Driver, b.Driver)
	}
	return pass("%s, and none while another claim for the same order was in flight", catalog.Plural(len(sure), "claim wrote", "claims wrote"))
}
