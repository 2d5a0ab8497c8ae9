package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

func linearizable(e Evidence) Verdict {
	if e.Record == nil {
		return unknown("the grabs were not recorded")
	}
	byOrder := map[int64][]Op{}
	for _, op := range e.Record.Ops {
		byOrder[op.Order] = append(byOrder[op.Order], op)
	}
	var wrong, undecided []int64
	for _, order := range slices.Sorted(maps.Keys(byOrder)) {
		ops := byOrder[order]
		switch result := linearize(ops, e.units()); {
		case result == porcupine.Illegal && (e.Record.MissingEvents == 0 || winners(ops) > e.units()):
			wrong = append(wrong, order)
		case result != porcupine.Ok:
			undecided = append(undecided, order)
		}
	}
	first := "the first wins"
	if e.Units > 1 {
		first = fmt.Sprintf("the first %d win", e.Units)
	}
	switch {
	case len(wrong) > 0:
		return fail("the grabs of %s fit no sequence in which only %s, for example those of order %d",
			Plural(len(wrong), "order", "orders"), first, wrong[0])
	case e.Record.MissingEvents > 0:
		return eventsLost(e.Record)
	case len(undecided) > 0:
		return unknown("the check could not decide whether one sequence explains the grabs of order %d", undecided[0])
	default:
		return pass("the grabs of %s each have a sequence in which only %s", Plural(len(byOrder), "order", "orders"), first)
	}
}

// linearizeTimeout limits the time for each order.
var linearizeTimeout = 2 * time.Second

// grabUnits returns a porcupine model in which each driver gets one unit until none are left. Its
// state is the number of units sold.
func grabUnits(units int) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{0} },
		Step: func(state, _, output any) []any {
			sold := state.(int)
			switch outcome := output.(Outcome); {
			case outcome == Won && sold < units:
				return []any{sold + 1}
			case outcome == Taken && sold == units:
				return []any{sold}
			case outcome == Won, outcome == Taken:
				return nil
			case sold < units: // the driver may or may not have won
				return []any{sold, sold + 1}
			default:
				return []any{sold}
			}
		},
	}
}

func winners(ops []Op) (n int) {
	for _, op := range ops {
		if op.Outcome == Won {
			n++
		}
	}
	return n
}

// linearize looks for a sequence of grabs that fits the model. If there are more winners than
// units, no sequence can fit, so it skips the search.
func linearize(ops []Op, units int) porcupine.CheckResult {
	if winners(ops) > units {
		return porcupine.Illegal
	}
	calls := make([]porcupine.Operation, len(ops))
	for i, op := range ops {
		calls[i] = porcupine.Operation{ClientId: i, Output: op.Outcome, Call: int64(op.From), Return: int64(op.To)}
	}
	model := grabUnits(units)
	return porcupine.CheckOperationsTimeout(model.ToModel(), calls, linearizeTimeout)
}
