package check

import (
	"cmp"
	"slices"

	"grablab/internal/order"
)

func answersAgree(e Evidence) Verdict {
	switch {
	case e.FromAnswers:
		return unknown("there is no ledger to compare the answers with")
	case e.NoLedger != nil:
		return noLedger(e)
	}
	phantom, unacknowledged := CompareAnswers(e.Told, e.Ledger)
	if len(phantom) > 0 {
		p := phantom[0]
		return fail("%s that the ledger does not have: driver %d was told to have won order %d",
			Plural(len(phantom), "grab was promised", "grabs were promised"), p.Driver, p.Order)
	}
	// A row whose client got no answer at all contradicts none.
	if denied := without(unacknowledged, e.Unsure); len(denied) > 0 {
		p := denied[0]
		return fail("%s to the driver who has it: driver %d stands in the ledger for order %d and was told otherwise",
			Plural(len(denied), "grab was denied", "grabs were denied"), p.Driver, p.Order)
	}
	return pass("%s in the ledger", Plural(len(e.Told), "promised grab stands", "promised grabs stand"))
}

// CompareAnswers compares what clients were told with the ledger: phantom
// grabs were promised and are not there, unacknowledged ones are there and
// were not promised. Both are sorted. Always
//
//	len(told) + len(unacknowledged) - len(phantom) == len(ledger)
func CompareAnswers(told []Pair, ledger []order.Grab) (phantom, unacknowledged []Pair) {
	rows := make([]Pair, len(ledger))
	for i, g := range ledger {
		rows[i] = Pair{g.Order, g.Driver}
	}
	return without(told, rows), without(rows, told)
}

// without returns the pairs, sorted, that are not among those to leave out. One
// to leave out accounts for one pair: a lost answer excuses one row, not two.
func without(pairs, leaveOut []Pair) []Pair {
	out := make(map[Pair]int, len(leaveOut))
	for _, p := range leaveOut {
		out[p]++
	}
	var rest []Pair
	for _, p := range pairs {
		if out[p]--; out[p] < 0 {
			rest = append(rest, p)
		}
	}
	slices.SortFunc(rest, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Driver, b.Driver))
	})
	return rest
}
