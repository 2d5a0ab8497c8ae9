package lock

import (
	"time"

	"grablab/internal/catalog"

	"github.com/go-redsync/redsync/v4"
)

// redlockSetOnExtend sets a missing key again when it extends its lease. Client A's keys expire,
// and B locks, works and unlocks. Then A takes the lock again without noticing the gap (F24,
// internal/explore/testdata/F24.txt).
var redlockSetOnExtend = variant(redlock, Strategy{
	Name:   "redlock-set-on-extend",
	Title:  "redlock, setting the key again on extension",
	Breaks: []string{"F24"},
	New: func(env Env) (Locker, error) {
		return newRedlock(env, env.Redlock, redsync.WithSetNXOnExtend())
	},
})

// redlockLongTTL has leases of a day. If a holder dies or cannot reach a majority for its release,
// no one can grab the order for the rest of the day (F3).
var redlockLongTTL = variant(redlock, Strategy{
	Name:   "redlock-long-ttl",
	Title:  "redlock, with a TTL of a day",
	Breaks: []string{"F3", "F15", "F18", "F21", "F39"},
	// A lock also stays if its request arrives after its clean-up, or if its release has no time
	// left. With slow servers, chance decides whether that happens.
	Claims: catalog.ClaimsOf("redlock").
		But(catalog.GetsStuck, catalog.Crash, catalog.RedisDownMost, catalog.Partition). // the release fails
		But(catalog.Claim{Order: catalog.Unknown, Exclusive: true}, catalog.Slow, catalog.Pause, catalog.Failover, catalog.Latency, catalog.DBRestart, catalog.LateRelease),
	New: func(env Env) (Locker, error) {
		env.TTL = 24 * time.Hour
		return newRedlock(env, env.Redlock)
	},
})
