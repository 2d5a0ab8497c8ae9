package catalog

// Word is a word in the tables of a run.
type Word struct {
	Name    string
	Aliases []string // other words that mean the same, or are explained with it
	Meaning string
}

// Words lists the words whose meaning a reader has to learn.
var Words = []Word{
	{"grab", []string{"grabs"}, "in a table, a row of the ledger `grabs`, written in the transaction that sets the order's status. The ledger has no unique key on the order, so that a double-grab is recorded as the fact that it is"},
	{"double", []string{"double-grab", "double_grabs"}, "rows in the ledger beyond the first of their order, or, where it has several units, beyond these: oversold"},
	{"repeated rows", []string{"repeated_rows"}, "rows that repeat an order and its driver, in the ledger of a service of others: the query may double rows, or the service may write a grab twice"},
	{"oversold", nil, "of an order of several units: rows of the ledger beyond its units. With one unit it is the word double"},
	{"undersold", nil, "units left at the end of an order although drivers were refused after its last sale, by `taken` or by an error"},
	{"lost update", []string{"lost updates", "lost_updates"}, "the ledger has a row, and the counter of the order has not gone down by it: two drivers read the same number, and both wrote it less one"},
	{"phantom grab", []string{"phantom", "phantom_grabs"}, "a client was told `grabbed`, and the ledger has no such row"},
	{"unacknowledged grab", []string{"unacknowledged", "unacknowledged_grabs"}, "a row of the ledger whose client got no such answer"},
	{"overlap", []string{"overlaps"}, "two holders of one order's lock inside their critical sections at once, as the instances recorded it. A lock can overlap without a double-grab: a guard or a fence may refuse the second write"},
	{"near miss", []string{"near misses", "near_misses"}, "a stale or second write that a guard or a fence refused"},
	{"strike point", []string{"point", "points"}, "a place in a grab at which a fault strikes: before or after a remote call, of a driver that is alone, waiting or handing over"},
	{"struck", nil, "points at which the cell's fault struck, of those that it can reach; in `run.json`, and where a run has no points, requests that it hit"},
	{"exclusive", nil, "`yes`: no overlap; `no`: there was one; `?`: not known; `-`: there is no lock"},
	{"belief gap", []string{"belief_gap_ms"}, "the longest time from the moment at which a lease was lost to the moment at which its holder knew"},
	{"stuck", []string{"stuck_orders"}, "orders on which a fresh driver got neither `grabbed` nor `taken` until two leases had passed, or `taken` although the ledger has fewer rows than units"},
	{"taken, busy", []string{"taken", "busy"}, "answers: the order was won by another driver; the lock was not obtained within the wait"},
}

// VerdictEntry describes when a cell gets a verdict.
type VerdictEntry struct {
	Verdict Verdict
	When    string
}

// Verdicts lists the verdicts of a cell. The first one that applies is the verdict.
var Verdicts = []VerdictEntry{
	{NA, "the fault touches nothing that the strategy uses; it is not run"},
	{Unsafe, "a double-grab in the ledger, or more units to a driver than one may have"},
	{Stuck, "an order, or a unit of it, that no fresh driver can grab any more, although the load has ended and the fault is healed"},
	{Unknown, "not measured, or the run could not have exposed a failure: one instance alone served, no order was contended or none was grabbed, the fault did not strike at a point, events were lost; of a service of others, an answer may hide a grab, or too few were served for a race, …; the reason stands below the table"},
	{Safe, "none of these"},
}
