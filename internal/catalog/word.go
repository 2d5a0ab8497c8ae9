package catalog

import "slices"

// Word is a word in the tables of a run.
type Word struct {
	Name    string
	Aliases []string // other words that mean the same, or are explained with it
	Meaning string
}

// Words lists the words that a reader has to learn.
var Words = []Word{
	{"grab", []string{"grabs"}, "in a table, a row of the ledger `grabs`. It is written in the transaction that sets the order's status. The ledger has no unique key on the order, so a double-grab leaves two rows"},
	{"double", []string{"double-grab", "double_grabs"}, "rows in the ledger beyond the first of their order. If the order has several units: rows beyond these (oversold)"},
	{"repeated rows", []string{"repeated_rows"}, "in the ledger of your own service: rows that repeat an order and its driver. The query may return rows twice, or the service may write a grab twice"},
	{"oversold", nil, "about an order of several units: rows of the ledger beyond its units. For one unit, the word is double"},
	{"undersold", nil, "units left at the end of an order although drivers were refused after its last sale, by `taken` or by an error"},
	{"lost update", []string{"lost updates", "lost_updates"}, "the ledger has a row, but the counter of the order did not go down by one: two drivers read the same number, and both wrote that number less one"},
	{"phantom grab", []string{"phantom", "phantom_grabs"}, "a client was told `grabbed`, but the ledger has no such row"},
	{"unacknowledged grab", []string{"unacknowledged", "unacknowledged_grabs"}, "a row of the ledger whose client was not told `grabbed`"},
	{"overlap", []string{"overlaps"}, "two holders of one order's lock inside their critical sections at once, as the instances recorded it. A lock can overlap without a double-grab: a guard or a fence may refuse the second write"},
	{"near miss", []string{"near misses", "near_misses"}, "a stale or second write that a guard or a fence refused"},
	{"strike point", []string{"point", "points"}, "a place in a grab at which a fault is injected: before or after a remote call, of a driver that is alone, waiting or handing over"},
	{"struck", nil, "the number of points at which the fault struck, out of all points that it can reach. In `run.json`, and if a run has no points, the requests that it hit"},
	{"exclusive", nil, "`yes`: no overlap; `no`: there was one; `?`: not known; `-`: no lock is known"},
	{"belief gap", []string{"belief_gap_ms"}, "the longest time from the moment at which a lease was lost to the moment at which its holder knew"},
	{"stuck", []string{"stuck_orders"}, "orders on which a new driver got neither `grabbed` nor `taken` within two leases, or got `taken` although the ledger has fewer rows than units"},
	{"shard", []string{"shards"}, "one of several processes that send one load together, each on a machine of its own. A shard sends its share of the requests, and `loadgen merge` judges all shards as one run"},
	{"guard", []string{"guards"}, "the condition of the write that records the winner. naive: none; guarded: the order is still open; fence-write: no higher token has written; fenced: no higher token has even read; decrement: none, each write takes one unit"},
	{"fencing token", []string{"token", "fence"}, "a number that grows with each grant of the lock. The database refuses a write whose number is lower than one that it has seen"},
	{"taken, busy", []string{"taken", "busy"}, "answers: another driver has won the order; the driver did not get the lock within the wait"},
}

// Meanings returns what the words of tables, the verdicts and the properties mean, also by their aliases.
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

// VerdictEntry explains when a cell gets this verdict.
type VerdictEntry struct {
	Verdict Verdict
	When    string
}

// Verdicts lists the verdicts of a cell. The first that applies counts.
var Verdicts = []VerdictEntry{
	{NA, "the fault touches nothing that the strategy uses, or the strategy cannot sell several units; it is not run"},
	{Unsafe, "a double-grab in the ledger, or more units to a driver than one may have"},
	{Stuck, "no new driver can grab an order, or a unit of it, although the load has ended and the fault is healed"},
	{Unknown, "not measured, or the run could not have exposed a failure. Perhaps only one instance served, no order was contended or grabbed, the fault missed a point, or events were lost. In your own service, an answer may also hide a grab, or too few requests may have been served for a race. The reason is below the table"},
	{Safe, "none of these"},
}
