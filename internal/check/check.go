// Package check judges what happened to a set of orders. Its input is the [Evidence]: the ledger,
// the answers to the clients, and a [Record] of the instances' events, made by a [Scan]. Its output
// is a [Verdict] for each property that a run can check: pass, fail or unknown. A property never
// passes if the evidence is incomplete. Package experiment calls [Judge] for each cell; the explorer has
// checks of its own in package sim.
//
// Start reading at [Judge]. Tables and verdicts always agree, because both get their figures from
// CountGrabs, CompareAnswers and Overlaps. If an order violates a property, [Explain] makes a
// timeline of it.
package check

import (
	"fmt"
	"slices"
	"strconv"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// Result says whether a property holds: pass, fail or unknown.
type Result string

// These are the possible results.
const (
	Pass    Result = "pass"
	Fail    Result = "fail"
	Unknown Result = "unknown"
)

// Verdict is the result for one property.
type Verdict struct {
	Property string `json:"checker"` // the property's name in package catalog
	Result   Result `json:"result"`
	Why      string `json:"why"` // the reason for the result, as a sentence
}

// checkers lists the functions that check the properties, most important property first.
var checkers = []struct {
	property string
	check    func(Evidence) Verdict
}{
	{catalog.OneWinner, oneWinner},
	{catalog.AnswersAgree, answersAgree},
	{catalog.HoldersExclusive, holdersExclusive},
	{catalog.WritesExclusive, writesExclusive},
	{catalog.Linearizable, linearizable},
	{catalog.FenceMonotone, fenceMonotone},
	{catalog.StaleWrite, staleWrite},
	{catalog.StuckOrder, stuckOrder},
}

// Judge checks the given properties. If none are given, it checks all of them.
func Judge(e Evidence, properties ...string) []Verdict {
	if e.OrderText == nil {
		e.OrderText = func(number int64) string { return strconv.FormatInt(number, 10) }
	}
	var verdicts []Verdict
	for _, c := range checkers {
		if len(properties) == 0 || slices.Contains(properties, c.property) {
			v := c.check(e)
			v.Property = c.property
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// Pair is one driver's attempt to grab one order.
type Pair struct{ Order, Driver int64 }

// Evidence is everything that we know about a set of orders after the load has ended.
type Evidence struct {
	Ledger []order.Grab // sorted by the time of the write
	// LedgerErr is the error from reading the ledger, or nil.
	LedgerErr error
	// FromAnswers means that there is no ledger, so the winners are those in Promised.
	FromAnswers bool
	// Foreign means that the ledger comes from the user's own query, which may repeat rows, for
	// example because of a JOIN.
	Foreign bool

	Promised []Pair // attempts that were answered "grabbed"
	Unsure   []Pair // attempts with an unknown outcome

	Record   *Record           // the events that the instances recorded; nil if they recorded none
	Excludes catalog.Exclusion // the scope within which the lock excludes other clients
	Guard    order.Guard       // the guard that checked the writes
	Units    int               // units per order; 0 means 1
	// UntilClaim means that the write that records the winner also releases the lock.
	UntilClaim bool

	Stuck []int64 // orders for which the final test grab was answered neither grabbed nor taken
	// ProbeErr says why the final test grabs were inconclusive. If they were conclusive, it is nil.
	ProbeErr error

	// OrderText returns the service's ID of an order. If it is nil, the number is the ID.
	OrderText func(number int64) string
}

func (e Evidence) units() int { return max(e.Units, 1) }

func pass(why string, args ...any) Verdict {
	return Verdict{Result: Pass, Why: fmt.Sprintf(why, args...)}
}
func fail(why string, args ...any) Verdict {
	return Verdict{Result: Fail, Why: fmt.Sprintf(why, args...)}
}
func unknown(why string, args ...any) Verdict {
	return Verdict{Result: Unknown, Why: fmt.Sprintf(why, args...)}
}

// eventsLost returns the result "unknown" for a property that seems to hold, because the lost events
// could have shown a violation.
func eventsLost(r *Record) Verdict {
	return unknown("%s", catalog.Plural(r.MissingEvents, "event was lost", "events were lost"))
}

func noLedger(e Evidence) Verdict { return unknown("the ledger could not be read: %v", e.LedgerErr) }
