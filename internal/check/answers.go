package check

import (
	"fmt"

	"grablab/internal/order"
)

var answersAgree = Checker{
	Name:  "answers-agree",
	About: "who was told that he has an order is who stands in the ledger",
	Check: named("answers-agree", func(e Evidence) Verdict {
		if e.FromAnswers {
			return unknown("there is no ledger to compare the answers with")
		}
		if e.NoLedger != nil {
			return unknown(fmt.Sprintf("the ledger could not be read: %v", e.NoLedger))
		}
		phantom, unacknowledged := CompareAnswers(e.Told, e.Ledger)
		if len(phantom) > 0 {
			p := phantom[0]
			return fail(fmt.Sprintf("%s that the ledger does not have: driver %d was told that order %d is his",
				plural(len(phantom), "grab was promised", "grabs were promised"), p.Driver, p.Order))
		}
		// A row whose client got no answer at all is nobody's lie.
		if denied := without(unacknowledged, e.Unsure); len(denied) > 0 {
			p := denied[0]
			return fail(fmt.Sprintf("%s to the driver who has it: driver %d stands in the ledger for order %d and was told otherwise",
				plural(len(denied), "grab was denied", "grabs were denied"), p.Driver, p.Order))
		}
		return pass(fmt.Sprintf("%s in the ledger", plural(len(e.Told), "promised grab stands", "promised grabs stand")))
	}),
}

// CompareAnswers compares what clients were told with the ledger: phantom
// grabs were promised and are not there, unacknowledged ones are there and
// were not promised. Both are sorted. Always
//
//	len(told) + len(unacknowledged) - len(phantom) == len(ledger)
func CompareAnswers(told []Pair, ledger []order.Grab) (phantom, unacknowledged []Pair) {
	balance := make(map[Pair]int, len(told))
	for _, p := range told {
		balance[p]++
	}
	for _, g := range ledger {
		balance[Pair{g.Order, g.Driver}]--
	}
	for p, n := range balance {
		for ; n > 0; n-- {
			phantom = append(phantom, p)
		}
		for ; n < 0; n++ {
			unacknowledged = append(unacknowledged, p)
		}
	}
	sortPairs(phantom)
	sortPairs(unacknowledged)
	return phantom, unacknowledged
}

// without returns the pairs that are not among those to leave out. One to
// leave out accounts for one pair: a lost answer excuses one row, not two.
func without(pairs, leaveOut []Pair) []Pair {
	out := make(map[Pair]int, len(leaveOut))
	for _, p := range leaveOut {
		out[p]++
	}
	var rest []Pair
	for _, p := range pairs {
		if out[p] > 0 {
			out[p]--
			continue
		}
		rest = append(rest, p)
	}
	return rest
}
