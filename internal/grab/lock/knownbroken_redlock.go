package lock

import (
	"time"

	"grablab/internal/catalog"

	"github.com/go-redsync/redsync/v4"
)

// redlockSetOnExtend sets the key again where an extension does not find it. A's
// keys expire; B locks, works, unlocks; A's extension takes the lock anew and
// says that it was never lost (F24, internal/explore/testdata/F24.txt).
var redlockSetOnExtend = variant(redlock, Strategy{
	Name:   "redlock-set-on-extend",
	Title:  "redlock, setting the key again on extension",
	Breaks: []string{"F24"},
	New: func(env Env) (Locker, error) {
		return newRedlock(env, env.Redlock, redsync.WithSetNXOnExtend())
	},
})

// redlockLongTTL has leases of a day, so that no work outlasts them. A releases while
// a majority of the nodes cannot be reached, or dies; the order cannot be grabbed any
// more until the day is over (F3).
var redlockLongTTL = variant(redlock, Strategy{
	Name:   "redlock-long-ttl",
	Title:  "redlock, with a TTL of a day",
	Breaks: []string{"F3", "F15", "F18", "F21", "F39"},
	// A request that comes after its own clean-up stays, too, and so does a lock whose release
	// had no time left: chance decides where requests or replies are late, and how long the
	// database takes to start.
	Claims: catalog.ClaimsOf("redlock").
		But(catalog.GetsStuck, catalog.Crash, catalog.RedisDownMost, catalog.Partition). // a release that fails
		But(catalog.Claim{Order: catalog.Unknown, Exclusive: true}, catalog.Slow, catalog.Pause, catalog.Failover, catalog.Latency, catalog.DBRestart, catalog.LateRelease),
	New: func(env Env) (Locker, error) {
		env.TTL = 24 * time.Hour
		return newRedlock(env, env.Redlock)
	},
})
