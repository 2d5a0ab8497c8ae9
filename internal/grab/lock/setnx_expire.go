package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxExpire is SETNX and then EXPIRE, two commands. A sets the key and dies
// before it sends the second: as without expiry (F4, internal/explore/testdata/F4.txt).
// The article asks whether both have done what they should, and not how long ago: the
// answer to EXPIRE may come when the lease is over (F12).
var setnxExpire = variant(setnx, Strategy{
	Name:   "setnx-expire",
	Title:  "SETNX, then EXPIRE, released by DEL",
	Source: "the source articles: SETNX and EXPIRE",
	Claims: catalog.ClaimsOf("expire"),
	Breaks: []string{"F4", "F5", "F12"},
	New:    redisKeyLock{set: setThenExpire, unset: del, believesLate: true}.New,
})

// setThenExpire is false also if the key has gone by the second command. That
// is PEXPIRE, for leases are not measured in whole seconds.
func setThenExpire(ctx context.Context, l *redisKeyLease) (bool, error) {
	if ok, err := setForever(ctx, l); !ok {
		return false, err
	}
	return l.env.Redis.PExpire(ctx, l.key, l.env.TTL).Result()
}
