package catalog

import (
	_ "embed"
	"slices"
)

// Word is a word from the result tables, with its explanation.
type Word struct {
	Name    string
	Aliases []string // other words with the same explanation
	Meaning string
}

// Words lists the special words that the result tables use.
var Words = parse[[]Word](wordsJSON)

//go:embed words.json
var wordsJSON string

// Meanings maps each word of the tables, each verdict and each property to its explanation. It also
// contains their aliases.
func Meanings() map[string]string {
	all := map[string]string{}
	for _, w := range slices.Concat(Columns, Words) {
		for _, name := range append([]string{w.Name}, w.Aliases...) {
			all[name] = w.Meaning
		}
	}
	for _, v := range Verdicts {
		all[string(v.Verdict)] = v.When
	}
	for _, p := range Properties {
		all[p.Name] = p.About
	}
	return all
}

// VerdictEntry describes a verdict and the condition under which the result table shows it.
type VerdictEntry struct {
	Verdict Verdict
	When    string
}

// Verdicts lists the possible verdicts on a strategy under a fault. The first one whose condition
// is met applies.
var Verdicts = []VerdictEntry{
	{NA, "the fault touches nothing that the strategy uses, or the strategy cannot sell several units; it is not run"},
	{Unsafe, "the ledger has a double-grab, or a driver has more units than allowed"},
	{Stuck, "no new driver can grab an order, or a unit of it, although the load has ended and the fault is healed"},
	{Unknown, "not measured, or the run could not have exposed a failure. Perhaps only one instance answered, no two drivers competed for an order, no order was grabbed, the fault missed a point, or events were lost. In your own service, an answer may also hide a grab, or too few requests may have been served for a race. The reason is below the table"},
	{Safe, "none of these"},
}
