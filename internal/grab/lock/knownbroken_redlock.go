package lock

import (
	"time"

	"grablab/internal/catalog"

	"github.com/go-redsync/redsync/v4"
)

// redlockSetOnExtend recreates missing keys when it extends its lease. Suppose that A's keys
// expire, and B locks, works and unlocks. Then A takes the lock again without noticing that it had
// lost the lock (F24, internal/explore/testdata/F24.txt).
var redlockSetOnExtend = variant(redlock, Strategy{
	Name:   "redlock-set-on-extend",
	Title:  "redlock, which sets a missing key again at each extension",
	Breaks: []string{"F24"},
	New: func(env Env) (Locker, error) {
		return newRedlock(env, env.Redlock, redsync.WithSetNXOnExtend())
	},
})

// redlockLongTTL uses leases of a whole day. If a holder dies, the order stays locked for the rest
// of the day. The same happens if the holder's release reaches no majority of the nodes (failure
// mode F3).
var redlockLongTTL = variant(redlock, Strategy{
	Name:   "redlock-long-ttl",
	Title:  "redlock, with a TTL of one day",
	Breaks: []string{"F3", "F15", "F18", "F21", "F39"},
	// A lock also remains if its request arrives after the clean-up, or if no time is left for the
	// release. With slow servers, it depends on chance whether that happens.
	Claims: catalog.ClaimsOf("redlock").
		But(catalog.GetsStuck, catalog.Crash, catalog.RedisDownMost, catalog.Partition). // under these faults, the release fails
		But(catalog.Claim{Order: catalog.Unknown, Exclusive: true}, catalog.Slow, catalog.Pause, catalog.Failover, catalog.Latency, catalog.DBRestart, catalog.LateRelease),
	New: func(env Env) (Locker, error) {
		env.TTL = 24 * time.Hour
		return newRedlock(env, env.Redlock)
	},
})
