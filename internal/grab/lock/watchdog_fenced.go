package lock

import "grablab/internal/order"

// watchdogFenced is watchdog with a token to each lease, raised in the database
// before the read. Whatever becomes of the lease, a write that comes after a
// later holder's read is refused. Work that hangs is renewed for ever, as ever
// (F15).
var watchdogFenced = Strategy{
	Name:     "watchdog-fenced",
	Title:    "watchdog with a fencing token, raised before the read",
	Family:   "redis",
	Source:   "Redisson: RFencedLock; Kleppmann 2016",
	Needs:    Redis,
	Guard:    order.Fenced,
	Fences:   true,
	Expect:   map[Fault]Verdict{Hang: Stuck},
	Excludes: Global,
	Survives: watchdog.Survives,
	Breaks:   []string{"F15"},
	New: func(env Env) (Locker, error) {
		l, err := newWatchdog(env, fenceKeys)
		return fencedLocker{l, env.Redis}, err
	},
}
