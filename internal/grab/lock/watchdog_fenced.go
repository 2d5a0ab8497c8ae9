package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// watchdogFenced is watchdog with a fencing token for each lease. The database raises its
// own copy of the token before the read. Even if the lease is lost, the database refuses a
// write that comes after a later holder's read. The lease is still renewed forever if the
// work hangs (F15).
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
