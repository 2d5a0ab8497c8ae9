// Package check judges what happened: from the ledger, from what clients were
// told, and from what the instances recorded, to verdicts that know three
// values. What cannot be known is never passed.
//
// The figures (CountGrabs, CompareAnswers, Overlaps) stand apart from the
// verdicts on them, so that a table and a verdict can never count differently.
package check

import (
	"grablab/internal/grab/lock"
	"grablab/internal/history"
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

// Verdict is what one checker says.
type Verdict struct {
	Checker string
	Result  Result
	Why     string          // a sentence
	Events  []history.Event // those that show it, if any were recorded
}

// Checker looks at one property.
type Checker struct {
	Name  string
	About string // the property, in one line
	Check func(Evidence) Verdict
}

// Checkers is every property that is looked at, the one that matters first.
var Checkers = []Checker{
	oneWinner,
	answersAgree,
	holdersApart,
	effectsApart,
	linearizable,
	fenceMonotone,
	noStaleWrite,
	nothingStuck,
}

// Pair is one driver's attempt on one order.
type Pair struct{ Order, Driver int64 }

// Evidence is all that is known of some orders once the load on them has
// ended. Drivers who only probe belong in none of it.
type Evidence struct {
	Ledger []order.Grab // in the order in which it was written
	// NoLedger says why the ledger could not be read; nil: it was.
	NoLedger error
	// FromAnswers: there is no ledger to read, as with somebody else's service.
	// Winners are then counted from Told.
	FromAnswers bool

	Told   []Pair // who was answered "grabbed"
	Unsure []Pair // whose outcome nobody knows: no answer, or one that says so

	Record   *Record        // what the instances recorded; nil: nothing
	Excludes lock.Exclusion // whom the lock promises to keep apart
	Guard    order.Guard    // with which the winners were written

	Stuck []int64 // orders on which a probe never got an answer
	// NoProbe says why the probes could not tell; nil: they did.
	NoProbe error
}

// All runs every checker.
func All(e Evidence) []Verdict {
	verdicts := make([]Verdict, len(Checkers))
	for i, c := range Checkers {
		verdicts[i] = c.Check(e)
	}
	return verdicts
}

func pass(why string) Verdict    { return Verdict{Result: Pass, Why: why} }
func unknown(why string) Verdict { return Verdict{Result: Unknown, Why: why} }

func fail(why string, events ...history.Event) Verdict {
	return Verdict{Result: Fail, Why: why, Events: events}
}

// named fills in who says so.
func named(name string, check func(Evidence) Verdict) func(Evidence) Verdict {
	return func(e Evidence) Verdict {
		v := check(e)
		v.Checker = name
		return v
	}
}
