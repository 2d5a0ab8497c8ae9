package check

// Mode is one way in which locks fail.
type Mode struct {
	ID   string // F1, F2, …
	Name string
	Cure string // in one line
	In   string // a strategy that has the cure; "": none here
}

// Modes is every failure mode that has an id, in its order.
var Modes = []Mode{
	{"F1", "check then act", "let the write look once more whether the order is open, in the same statement", "mysql-cas"},
	{"F2", "mutex of one process", "take a lock that all instances share", "setnx"},
	{"F3", "lock without expiry", "give the lock an expiry, in the command that sets it", "setnx"},
	{"F4", "expiry in a second step", "set key and expiry with one command, SET NX PX", "setnx"},
	{"F5", "unchecked DEL", "compare the token and delete the key in one script", "setnx"},
	{"F6", "GET, compare, DEL", "compare and delete in one script, or WATCH the key before the GET", "setnx-watch"},
	{"F7", "blind take-over", "take over with GETSET, and only if what it answers had passed, too", "setnx-getset"},
	{"F8", "GETSET answers nil", "take a GETSET that answers nil for a lock that was free, and is ours now", "setnx-getset"},
	{"F9", "clocks that differ", "let the server's clock alone end a lease", "setnx"},
	{"F10", "stamp moved by losers", "keep a token in the key that nobody but its holder writes", "setnx"},
	{"F11", "pause past the lease", "a fencing token that the database raises before the read and compares at the write", "setnx-fenced"},
	{"F12", "reply slower than the lease", "count the lease from before the request was sent", "setnx"},
	{"F13", "renewal that stalls", "a fencing token, for no holder can be told of the loss in time", "watchdog-fenced"},
	{"F14", "renewal that outlives", "renew by comparing the token, and only what an acquire has returned", "watchdog"},
	{"F15", "renewed for dead work", "give the work a deadline, and renew no longer", "setnx-fenced"},
	{"F16", "missed wake-up", "subscribe first, and then try once more", "watchdog"},
	{"F17", "lock lost by fail-over", "a fencing token kept in the database, which fails over with its own log", "setnx-fenced"},
	{"F18", "node that forgot", "keep a restarted node out for longer than a lease, or locks in a replicated log", "etcd"},
	{"F19", "clock that jumps", "let no node's wall clock end a lease", "etcd"},
	{"F20", "one node counted twice", "count nodes that are independent of each other, each once, with SET NX", "redlock"},
	{"F21", "bare majority", "set a missing key again when the lease is extended, or restart nodes late", "etcd"},
	{"F22", "clean-up on a cancelled context", "undo on a context of its own", "setnx"},
	{"F23", "shared handle", "one handle for each acquisition", "redlock"},
	{"F24", "silent re-acquire", "let an extension only extend", "redlock"},
	{"F25", "lost reply", "let the same token take its own lock again", "handoff"},
	{"F26", "fence fetched late", "draw the token in the step that grants the lock", "setnx-fenced"},
	{"F27", "fence that falls back", "a counter that outlives the lock, raised to what the database has seen", "handoff"},
	{"F28", "two goroutines, one session", "one session for each acquisition", "etcd"},
	{"F29", "lease lost under the holder", "a fencing token that the database compares (-guard fenced)", "handoff"},
	{"F30", "ghost node", "give the node a unique name, and delete it after an error", "zookeeper"},
	{"F31", "pooled connection", "lock, read, claim and unlock over one pinned session", "mysql-getlock"},
	{"F32", "idle connection closed", "claim over the session that has the lock", "mysql-getlock"},
	{"F33", "commit not acknowledged", "look for one's own token before answering", "mysql-cas"},
	{"F34", "fence at the write alone", "raise the row's fence before the read, so that an older holder is refused", "setnx-fenced"},
	{"F35", "release by age", "compare the token at the release, not the time", "setnx"},
	{"F36", "token of the driver", "a token that no other attempt ever has", "setnx"},
	{"F37", "check, then write", "let the write itself compare: a fencing token raised before the read", "setnx-fenced"},
}

// FindMode looks a mode up by its id.
func FindMode(id string) (Mode, bool) {
	for _, m := range Modes {
		if m.ID == id {
			return m, true
		}
	}
	return Mode{}, false
}
