package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxDel deletes the key without comparing its value. If A's lease has expired and B has the
// lock, A's release deletes B's lock, and C gets the lock too. The strategy has a second mistake: a
// client uses the lock even if the grant took longer than the TTL.
var setnxDel = variant(setnx, Strategy{
	Name:   "setnx-del",
	Title:  "SET NX PX, released by DEL",
	Source: "the source articles; redis.io: Distributed Locks with Redis",
	Claims: catalog.ClaimsOf("del"),
	Breaks: []string{"F5", "F12"},
	New:    redisKeyLock{set: setPX, unset: del, acceptsLate: true}.New,
})

func del(ctx context.Context, l *redisKeyLease) (bool, error) {
	n, err := l.env.Redis.Del(ctx, l.key).Result()
	return n > 0, err
}
