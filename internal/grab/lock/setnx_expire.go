package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxExpire sends SETNX and then EXPIRE. If a client dies between the two, the key never expires.
// If the reply to EXPIRE is late, the client uses the lock although the lease may already have
// ended.
var setnxExpire = variant(setnx, Strategy{
	Name:     "setnx-expire",
	Title:    "SETNX, then EXPIRE, released by DEL",
	Source:   "the source articles: SETNX and EXPIRE",
	Claims:   catalog.ClaimsOf("expire"),
	Breaks:   []string{"F4", "F5", "F12"},
	InSearch: endlessIfSentTwice,
	New:      redisKeyLock{set: setThenExpire, unset: del, acceptsLate: true}.New,
})

// setThenExpire sends SETNX and EXPIRE. It returns false if another client has the lock, or if the
// key is gone before EXPIRE.
func setThenExpire(ctx context.Context, l *redisKeyLease) (bool, error) {
	if ok, err := setForever(ctx, l); !ok {
		return false, err
	}
	return l.env.Redis.PExpire(ctx, l.key, l.env.TTL).Result()
}
