package lock

import (
	"context"

	"grablab/internal/catalog"
)

// setnxDel is SET NX PX with a release that does not compare. A's lease expires and B locks.
// A's DEL deletes B's lock, then C locks, so B and C are both inside (F5,
// internal/explore/testdata/F5.txt). The article proceeds if setIfAbsent returns true. It
// ignores how old that reply is, although the lease may be over (F12, F12.txt).
var setnxDel = variant(setnx, Strategy{
	Name:   "setnx-del",
	Title:  "SET NX PX, released by DEL",
	Source: "the source articles; redis.io: Distributed Locks with Redis",
	Claims: catalog.ClaimsOf("del"),
	Breaks: []string{"F5", "F12"},
	New:    redisKeyLock{set: setPX, unset: del, believesLate: true}.New,
})

func del(ctx context.Context, l *redisKeyLease) (bool, error) {
	n, err := l.env.Redis.Del(ctx, l.key).Result()
	return n > 0, err
}
