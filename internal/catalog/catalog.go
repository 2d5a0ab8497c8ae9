// Package catalog defines the names and descriptions of properties, faults, failure modes and verdicts,
// so that the whole program uses the same ones.
//
// A property is a condition that must hold. A failure mode is one way in which a lock can fail, with an
// ID such as F1. A cell is one strategy under one fault.
//
// Start reading with the tables [Properties], [Faults] and [Modes]. [ModeOf] infers the failure mode
// from facts about a failure. Any package can import this one, because it imports no other package of
// this module. For the same reason, it contains small helpers for slices, such as [Map] and [Filter], and
// for sentences, such as [Plural] and [List].
package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Programs is a set of programs that can inject a fault or check a property.
type Programs uint32

// Each constant stands for one loadgen command.
const (
	Run     Programs = 1 << iota // loadgen run: load on real servers
	Explore                      // loadgen explore: every schedule within its limits
	Replay                       // loadgen run -schedule: one given schedule on real servers
	Lab                          // loadgen lab: the live page, which cannot cut the network between instances and servers
)

// programNames lists the program names in the order of their constants.
var programNames = []string{"run", "explore", "run -schedule", "lab"}

// Commands returns the programs' loadgen commands, without the lab.
func (p Programs) Commands() (names []string) {
	for i, name := range programNames {
		if p&^Lab&(Run<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// UnmarshalJSON decodes a list of names.
func (p *Programs) UnmarshalJSON(list []byte) error { return unmarshalSet(list, programNames, p) }

// Verdict is a measured or expected result, such as safe or stuck.
type Verdict string

// These are the possible verdicts.
const (
	Safe    Verdict = "safe"
	Unsafe  Verdict = "unsafe" // an order was grabbed more than once
	Stuck   Verdict = "stuck"  // an order can no longer be grabbed
	Unknown Verdict = "unknown"
	NA      Verdict = "n/a" // the fault affects nothing that the strategy uses, or the strategy cannot sell several units
)

// severity sorts the verdicts from best to worst.
var severity = []Verdict{NA, Safe, Unknown, Stuck, Unsafe}

// WorseThan reports whether v is worse than other.
func (v Verdict) WorseThan(other Verdict) bool {
	return slices.Index(severity, v) > slices.Index(severity, other)
}

// IsFailure reports whether orders went wrong.
func (v Verdict) IsFailure() bool { return v == Unsafe || v == Stuck }

// Exclusion says whom a lock keeps out while one client holds it: no one, only clients in the same
// process, or all clients.
type Exclusion string

// These are the possible values of Exclusion.
const (
	NoExclusion Exclusion = "none"    // the lock excludes no one, or there is no lock
	PerProcess  Exclusion = "process" // only clients within the same process exclude each other
	Global      Exclusion = "global"
)

// Parse decodes an embedded JSON table. Because the table is part of the program, Parse panics if the
// table is invalid.
func Parse[T any](text string) (table T) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&table); err != nil {
		panic(fmt.Sprintf("catalog: %v in %.40q", err, text))
	}
	return table
}

// unmarshalSet decodes a list of names into a set with one bit for each name.
func unmarshalSet[S ~uint32](list []byte, names []string, set *S) error {
	var in []string
	if err := json.Unmarshal(list, &in); err != nil {
		return err
	}
	for _, name := range in {
		bit := slices.Index(names, name)
		if bit < 0 {
			return fmt.Errorf("no name %q", name)
		}
		*set |= 1 << bit
	}
	return nil
}
