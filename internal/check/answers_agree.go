package check

import (
	"cmp"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// answersAgree checks that the drivers who were told that they had won are the ones in the ledger.
// Judge calls it through the table checkers.
func answersAgree(e Evidence) Verdict {
	switch {
	case e.FromAnswers:
		return unknown("there is no ledger to compare the answers with")
	case e.LedgerErr != nil:
		return noLedger(e)
	}
	phantom, unacknowledged := CompareAnswers(e.Promised, e.Ledger)
	if len(phantom) > 0 {
		p := phantom[0]
		return fail("%s that the ledger does not have; for example, driver %d was told that it had won order %s",
			catalog.Plural(len(phantom), "grab was promised", "grabs were promised"), p.Driver, e.OrderText(p.Order))
	}
	// If a client got no answer, nothing was promised to it, so ignore its ledger row.
	denied := subtract(unacknowledged, e.Unsure)
	if e.Foreign { // the query may repeat the row of a driver who was told that it had won
		denied = slices.DeleteFunc(denied, func(p Pair) bool { return slices.Contains(e.Promised, p) })
	}
	if len(denied) > 0 {
		p := denied[0]
		return fail("%s to a driver who has won; for example, the ledger names driver %d for order %s, but this driver was told that it had not won",
			catalog.Plural(len(denied), "grab was denied", "grabs were denied"), p.Driver, e.OrderText(p.Order))
	}
	return pass("%s in the ledger", catalog.Plural(len(e.Promised), "promised grab is", "promised grabs are"))
}

// CompareAnswers compares the answers to clients with the ledger. A phantom grab was promised to a
// client but is missing from the ledger. An unacknowledged grab is in the ledger but was not
// promised to a client. Both results are sorted. Callers also compare two reads of the ledger: told
// is then the earlier read, phantom has the rows that have disappeared, and unacknowledged the new
// ones. The following equation always holds:
//
//	len(told) + len(unacknowledged) - len(phantom) == len(ledger)
func CompareAnswers(told []Pair, ledger []order.Grab) (phantom, unacknowledged []Pair) {
	rows := Pairs(ledger)
	return subtract(told, rows), subtract(rows, told)
}

// subtract returns a sorted copy of pairs without those in leaveOut. Each pair in leaveOut removes only
// one copy, because one lost answer explains only one row.
func subtract(pairs, leaveOut []Pair) []Pair {
	left := make(map[Pair]int, len(leaveOut))
	for _, p := range leaveOut {
		left[p]++
	}
	var rest []Pair
	for _, p := range pairs {
		if left[p]--; left[p] < 0 {
			rest = append(rest, p)
		}
	}
	slices.SortFunc(rest, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Driver, b.Driver))
	})
	return rest
}
