package lock

import (
	"grablab/internal/catalog"
	"grablab/internal/order"
)

// watchdogFenced is watchdog with a fencing token, which the database stores at each read. If a
// holder loses its lease, the database refuses its write. If the work hangs, the lease is renewed
// forever.
var watchdogFenced = variant(watchdog, Strategy{
	Name:   "watchdog-fenced",
	Title:  "watchdog with a fencing token, stored before the read",
	Source: "Redisson: RFencedLock; Kleppmann 2016",
	Guard:  order.Fenced,
	Fences: true,
	Claims: catalog.ClaimsOf("watchdog").Fenced(),
	Breaks: []string{"F15", "F17", "F27"},
	New: func(env Env) (Locker, error) {
		return fencedLocker{newWatchdog(env, fenceKeys), env.Redis}, nil
	},
})
