package check

import (
	"grablab/internal/history"
	"grablab/internal/order"
)

// Steps returns the timeline of all events of an order.
func Steps(events []history.Event, ledger []order.Grab, c Case) []Step {
	b := newBuilder(events, ledger, c)
	return b.steps(b.events)
}
