package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// watchdogFenced is watchdog with a token to each lease, raised in the database
// before the read. Whatever becomes of the lease, a write that comes after a
// later holder's read is refused. Work that hangs is still renewed for ever (F15).
var watchdogFenced = variant(watchdog, Strategy{
	Name:   "watchdog-fenced",
	Title:  "watchdog with a fencing token, raised before the read",
	Source: "Redisson: RFencedLock; Kleppmann 2016",
	Guard:  order.Fenced,
	Fences: true,
	Claims: catalog.ClaimsOf("watchdog").Fenced(),
	Breaks: []string{"F15", "F17", "F27"},
	New: func(env Env) (Locker, error) {
		l, err := newWatchdog(env, fenceKeys)
		return fencedLocker{l, env.Redis}, err
	},
})
