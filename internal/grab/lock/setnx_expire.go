package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxExpire sends SETNX and then EXPIRE, as two commands. If a client dies between the two, the
// key never expires (F4, internal/explore/testdata/F4.txt). Like the source article, it checks that
// both commands succeeded, but not how long they took. So it may return a lease that has already
// ended, because the reply to EXPIRE was late (F12).
var setnxExpire = variant(setnx, Strategy{
	Name:     "setnx-expire",
	Title:    "SETNX, then EXPIRE, released by DEL",
	Source:   "the source articles: SETNX and EXPIRE",
	Claims:   catalog.ClaimsOf("expire"),
	Breaks:   []string{"F4", "F5", "F12"},
	InSearch: endlessIfSentTwice,
	New:      redisKeyLock{set: setThenExpire, unset: del, believesLate: true}.New,
})

// setThenExpire also returns false if the key disappears between the two commands. It uses PEXPIRE,
// because leases are not measured in whole seconds.
func setThenExpire(ctx context.Context, l *redisKeyLease) (bool, error) {
	if ok, err := setForever(ctx, l); !ok {
		return false, err
	}
	return l.env.Redis.PExpire(ctx, l.key, l.env.TTL).Result()
}
