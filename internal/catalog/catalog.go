// Package catalog holds the names that all parts of Grab Lab share: properties
// that a lock must have, faults that are played against it, failure modes F1 …
// by which it breaks, verdicts, and how far an exclusion reaches. Each name
// stands here once, with one line on what it means.
//
// Start with [Properties], [Faults] and [Modes], the three tables. [FindProperty]
// and [FindFault] take what a user wrote, old names included, and [ModeOf]
// infers the failure mode from what is known of a failure. The package has no
// dependency of ours, so that the record of a run, a strategy and a schedule file
// can use its names alike.
package catalog

import (
	"fmt"
	"slices"
)

// Programs is a set of the programs that can play a fault or check a property.
type Programs uint

// The programs.
const (
	Run     Programs = 1 << iota // loadgen run: load on real servers
	Explore                      // loadgen explore: every schedule within bounds
	Replay                       // loadgen run -schedule: one schedule, forced on real servers
	Lab                          // loadgen lab: needs no route between an instance and its servers
)

// Verdict is what a cell of a run or a search comes to, or what the registry of
// strategies expects of it.
type Verdict string

// The verdicts.
const (
	Safe    Verdict = "safe"
	Unsafe  Verdict = "unsafe" // an order was grabbed more than once
	Stuck   Verdict = "stuck"  // an order cannot be grabbed any more
	Unknown Verdict = "unknown"
	NA      Verdict = "n/a" // the fault touches nothing that the strategy uses
)

// Exclusion is how far the mutual exclusion of a lock reaches.
type Exclusion string

// The exclusions.
const (
	NoExclusion Exclusion = "none"    // there is no lock
	PerProcess  Exclusion = "process" // only holders within one process exclude each other
	Global      Exclusion = "global"
)

// find looks a name up in a table: by the name first, then by the old ones. note
// says in one line what an old name is called now; "" where name is no old one.
func find[E any](table []E, name string, names func(E) (string, []string)) (entry E, note string, ok bool) {
	for _, e := range table {
		now, aliases := names(e)
		if now == name {
			return e, "", true
		}
		if slices.Contains(aliases, name) {
			entry, note, ok = e, fmt.Sprintf("%s is now called %s", name, now), true
		}
	}
	return entry, note, ok
}
