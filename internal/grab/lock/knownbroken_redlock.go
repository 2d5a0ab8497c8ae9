package lock

import (
	"time"

	"grablab/internal/catalog"

	"github.com/go-redsync/redsync/v4"
)

// redlockSetOnExtend sets missing keys again when it extends its lease. If A's keys have expired, B
// can lock, work and unlock. A then acquires the lock again without noticing that it had lost it.
var redlockSetOnExtend = variant(redlock, Strategy{
	Name:   "redlock-set-on-extend",
	Title:  "redlock that sets missing keys again when it extends",
	Breaks: []string{"F24"},
	New: func(env Env) (Locker, error) {
		return newRedlock(env, redsync.WithSetNXOnExtend())
	},
})

// redlockLongTTL uses one-day leases. If a holder dies, or its release does not reach a majority of
// the nodes, the order stays locked for the rest of the day.
var redlockLongTTL = variant(redlock, Strategy{
	Name:   "redlock-long-ttl",
	Title:  "redlock with a one-day TTL",
	Breaks: []string{"F3", "F15", "F18", "F21", "F39"},
	// With slow servers, a lock may also remain because a request arrives after its cleanup, or
	// because the release times out. As this depends on chance, we expect no certain result.
	Claims: catalog.ClaimsOf("redlock").
		But(catalog.GetsStuck, catalog.Crash, catalog.RedisDownMost, catalog.Partition). // these faults prevent the release
		But(catalog.Claim{Order: catalog.Unknown, Exclusive: true}, catalog.Slow, catalog.Pause, catalog.Failover, catalog.Latency, catalog.DBRestart, catalog.LateRelease),
	New: func(env Env) (Locker, error) {
		env.TTL = 24 * time.Hour
		return newRedlock(env)
	},
})
