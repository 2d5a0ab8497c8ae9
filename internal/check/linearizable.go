package check

import (
	"fmt"
	"maps"
	"slices"

	"grablab/internal/catalog"
)

// linearizable checks that each order's grabs fit a sequence in which only the first ones win.
// Judge calls it through the table checkers.
func linearizable(e Evidence) Verdict {
	if e.Record == nil {
		return unknown("the grabs were not recorded")
	}
	byOrder := map[int64][]Op{}
	for _, op := range e.Record.Ops {
		byOrder[op.Order] = append(byOrder[op.Order], op)
	}
	var wrong []int64
	for _, order := range slices.Sorted(maps.Keys(byOrder)) {
		ops := byOrder[order]
		// If events are missing, a missing sequence proves nothing, because a lost event may belong to
		// another winner. Too many wins are wrong anyway, because nothing can undo a win.
		if !haveSequence(ops, e.units()) && (e.Record.MissingEvents == 0 || winners(ops) > e.units()) {
			wrong = append(wrong, order)
		}
	}
	first := "the first wins"
	if e.Units > 1 {
		first = fmt.Sprintf("the first %d win", e.Units)
	}
	switch {
	case len(wrong) > 0:
		return fail("the grabs of %s fit no sequence in which only %s, for example those of order %d",
			catalog.Plural(len(wrong), "order", "orders"), first, wrong[0])
	case e.Record.MissingEvents > 0:
		return eventsLost(e.Record)
	default:
		return pass("the grabs of %s each have a sequence in which only %s", catalog.Plural(len(byOrder), "order", "orders"), first)
	}
}

// haveSequence reports whether one sequence explains the outcomes of an order's grabs. In such a
// sequence, each grab takes effect between its request and its answer. It gets a unit, until none are
// left, and "taken" after that. So all winners have to begin before the first answer "taken". By that
// answer, all units must have been sold, perhaps to drivers whose outcome is unknown.
func haveSequence(ops []Op, units int) bool {
	firstTaken, told := endUnseen, false
	for _, op := range ops {
		if op.Outcome == Taken {
			firstTaken, told = min(firstTaken, op.To), true
		}
	}
	mayHave := 0
	for _, op := range ops {
		switch {
		case op.From > firstTaken && op.Outcome == Won:
			return false
		case op.From <= firstTaken && op.Outcome == MayHave:
			mayHave++
		}
	}
	won := winners(ops)
	return won <= units && (!told || won+mayHave >= units)
}

func winners(ops []Op) (n int) {
	for _, op := range ops {
		if op.Outcome == Won {
			n++
		}
	}
	return n
}
