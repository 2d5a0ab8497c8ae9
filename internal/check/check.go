// Package check judges what happened to some orders. In goes [Evidence]: the
// ledger, what the clients were told, and the [Record] to which a [Scan] has
// brought the events of the instances. Out comes a [Verdict] on each property of
// the catalogue that a run can check: pass, fail, or unknown. What cannot be
// known never passes.
//
// Start with [Judge]. The figures (CountGrabs, CompareAnswers, Overlaps) stand
// apart from the verdicts on them, so that a table and a verdict can never count
// differently. [Explain] makes the timeline of an order on which a property broke.
package check

import (
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// Result of a check.
type Result string

// The results.
const (
	Pass    Result = "pass"
	Fail    Result = "fail"
	Unknown Result = "unknown"
)

// Verdict is what the checker of one property says.
type Verdict struct {
	Property string `json:"checker"` // by its name in the catalogue
	Result   Result `json:"result"`
	Why      string `json:"why"` // a sentence
}

// checkers is a function for every property that is checked, the one that
// matters most first.
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

// Judge checks the named properties, or every one that can be checked if none is
// named.
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

// Pair is one driver's attempt on one order.
type Pair struct{ Order, Driver int64 }

// Evidence is all that is known of some orders once the load on them has
// ended. Drivers who only probe belong in none of it.
type Evidence struct {
	Ledger []order.Grab // in the order in which it was written
	// NoLedger says why the ledger could not be read; nil: it was.
	NoLedger error
	// FromAnswers: there is no ledger to read, as with a foreign service.
	// Winners are then counted from Told.
	FromAnswers bool

	Told   []Pair // who was answered "grabbed"
	Unsure []Pair // whose outcome is unknown: no answer, or one that says so

	Record   *Record           // what the instances recorded; nil: nothing
	Excludes catalog.Exclusion // how far the lock promises to exclude
	Guard    order.Guard       // with which the winners were written
	Units    int               // of each order; 0: 1
	// UntilClaim: a claim releases the lock before its answer is there.
	UntilClaim bool

	Stuck []int64 // orders on which a probe never got an answer
	// NoProbe says why the probes could not tell; nil: they did.
	NoProbe error
}

// units of each order.
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

// eventsLost is the verdict on what a record with gaps does not break.
func eventsLost(r *Record) Verdict {
	return unknown("%s", Plural(r.MissingEvents, "event was lost", "events were lost"))
}

// noLedger is the verdict where the ledger is needed.
func noLedger(e Evidence) Verdict { return unknown("the ledger could not be read: %v", e.NoLedger) }

// Plural is n with the word that suits it.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
