package check

import (
	"slices"

	"grablab/internal/catalog"
)

// stuckOrder checks that a new driver got a final answer for every order. Judge calls it through
// the table checkers.
func stuckOrder(e Evidence) Verdict {
	switch {
	case len(e.Stuck) > 0: // this determines the verdict even if other test grabs were inconclusive
		return fail("%s stuck, because a new driver got no final answer; for example, order %s",
			catalog.Plural(len(e.Stuck), "order is", "orders are"), e.OrderText(slices.Min(e.Stuck)))
	case e.ProbeErr != nil:
		return unknown("the orders could not be probed: %v", e.ProbeErr)
	default:
		return pass("a new driver got a final answer for every order")
	}
}
