package sim

import (
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/explore/search"
	"grablab/internal/order"
)

// neverSteps is the step count for an event that can never happen.
const neverSteps = search.MaxSteps + 1

// minSteps returns a lower bound on the number of steps before a property can break. The bound is 1
// unless one-winner is the only property.
func (o *oracle) minSteps(properties []string) int {
	if !slices.Equal(properties, []string{catalog.OneWinner}) {
		return 1
	}
	ledger := o.world.ledger()
	toWin := catalog.Map(o.world.actors, func(a *actor) int { return o.minStepsToWin(a, ledger) })
	toWin = append(toWin, neverSteps) // include an imaginary actor that can never win
	slices.Sort(toWin)
	steps := 0
	for i := range o.cluster.units() + 1 {
		steps = min(steps+toWin[min(i, len(toWin)-1)], neverSteps)
	}
	return steps
}

// minStepsToWin returns a lower bound on the number of steps before an actor has won.
func (o *oracle) minStepsToWin(a *actor, ledger []order.Grab) int {
	switch {
	case slices.ContainsFunc(ledger, func(g order.Grab) bool { return g.Driver == a.driver }):
		return 0
	case a.done || a.dead || a.hung || a.releasing:
		return neverSteps
	case a.inside:
		return 1 // it only has to claim the order
	case a.granted:
		return 2 // it has to read and claim the order
	}
	steps := 2 + max(0, o.leases.quorum()-len(a.leases))
	if !a.begun {
		steps++
	}
	return steps
}
