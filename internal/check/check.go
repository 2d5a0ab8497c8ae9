// Package check judges what happened to some orders. The input is the [Evidence]: the
// ledger, the answers to the clients, and the [Record] that a [Scan] makes of the instances'
// events. The output is a [Verdict] for each property of the catalogue that a run can check:
// pass, fail or unknown. A property never passes if the evidence is incomplete.
//
// Start reading at [Judge]. CountGrabs, CompareAnswers and Overlaps calculate the figures
// for both tables and verdicts, so these cannot differ. [Explain] makes the timeline of an
// order on which a property broke.
package check

import (
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// Result is the result of a check.
type Result string

// These are the possible results of a check.
const (
	Pass    Result = "pass"
	Fail    Result = "fail"
	Unknown Result = "unknown"
)

// Verdict is the result of checking one property.
type Verdict struct {
	Property string `json:"checker"` // the name of the property in the catalogue
	Result   Result `json:"result"`
	Why      string `json:"why"` // the reason for the result, as a sentence
}

// checkers has a function for every property. The most important property comes first.
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

// Judge checks the named properties. Without names, it checks all properties.
func Judge(e Evidence, properties ...string) []Verdict {
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

// Evidence is everything that is known about some orders after the load on them has ended.
type Evidence struct {
	Ledger []order.Grab // sorted by the time of writing
	// NoLedger is the error with which the ledger could not be read. It is nil if it could be read.
	NoLedger error
	// FromAnswers means that there is no ledger. Told then says who has won.
	FromAnswers bool
	// Foreign means that the ledger was read with the user's own query. A JOIN in that query may
	// repeat rows.
	Foreign bool

	Told   []Pair // attempts that were answered "grabbed"
	Unsure []Pair // attempts with an unknown outcome

	Record   *Record           // what the instances recorded; nil if they recorded nothing
	Excludes catalog.Exclusion // the scope of the lock's exclusion
	Guard    order.Guard       // the guard of the writes
	Units    int               // the number of units of each order; 0 means 1
	// UntilClaim means that the lock is released together with the write of the winner.
	UntilClaim bool

	Stuck []int64 // orders for which the driver of a probe was told neither grabbed nor taken
	// NoProbe is the error because of which the test grabs after the load say nothing. It is nil if
	// they were conclusive.
	NoProbe error
}

// units returns the number of units of each order.
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

// eventsLost returns the verdict for a property that seems to hold although events are missing from
// the record.
func eventsLost(r *Record) Verdict {
	return unknown("%s", Plural(r.MissingEvents, "event was lost", "events were lost"))
}

// noLedger returns the verdict for a property that cannot be judged without the ledger.
func noLedger(e Evidence) Verdict { return unknown("the ledger could not be read: %v", e.NoLedger) }

// Plural returns a number with the right form of its noun (see [catalog.Plural]).
func Plural(n int, one, many string) string { return catalog.Plural(n, one, many) }
