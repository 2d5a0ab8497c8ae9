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

// Words lists the special terms in the result tables.
var Words = Parse[[]Word](wordsJSON)

//go:embed words.json
var wordsJSON string

// Meanings maps each table word and its aliases, each verdict and each property to its explanation.
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

// Footnote tells a table's reader how to look up a word.
const Footnote = "loadgen explain WORD explains every word and mark of these tables, and also whole entries, as in loadgen explain 'unsafe 3/11·2'"

// Columns explains the column headings and marks in the tables. For terms that need more explanation,
// see [Words].
var Columns = Parse[[]Word](columnsJSON)

//go:embed columns.json
var columnsJSON string

// VerdictEntry is a verdict with the condition under which the result table shows it.
type VerdictEntry struct {
	Verdict Verdict
	When    string
}

// Verdicts lists the possible verdicts on a strategy under a fault. The first verdict whose condition is
// met applies.
var Verdicts = []VerdictEntry{
	{NA, "the program skipped this cell, because the fault affects nothing that the strategy uses, or because the strategy cannot sell several units"},
	{Unsafe, "according to the ledger, an order was grabbed too often, or a driver has more units than allowed"},
	{Stuck, "an order, or one of its units, is left, but no new driver can grab it, even after the load and the fault have ended. The verdict is also stuck if an order has a winner, but its lock is not released. If waiting drivers keep a lock alive, but it ends without them, the order is not stuck"},
	{Unknown, "the program could not measure the cell, or the cell could not have shown a failure. For example, only one instance responded, no two drivers competed for an order, no order was grabbed, the fault missed a point, or events were lost. In your own service, a response may also hide a grab, or there may have been too few requests for a race. A line below the table gives the reason"},
	{Safe, "none of the other verdicts applies"},
}
