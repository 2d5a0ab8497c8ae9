package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
)

// getsetBlindTakeover takes over an expired lock with DEL and SETNX instead of GETSET. If clients B
// and C both see the expired lock, B can delete it and take the lock. Then C deletes B's lock and
// takes the lock too.
var getsetBlindTakeover = variant(setnxGetSet, Strategy{
	Name:  "getset-blind-takeover",
	Title: "setnx-getset that takes over with DEL and SETNX",
	Claims: catalog.ClaimsOf("getset").
		But(catalog.ByChance, catalog.Hang, catalog.Crash, catalog.RedisDown).
		But(catalog.TwoInside, catalog.RedisRestartMost, catalog.RedisDownMost, catalog.Amnesia, catalog.DBRestart, catalog.ReplyLost, catalog.Cancel),
	Breaks: []string{"F7", "F35"},
	New:    redisKeyLock{set: setStamp(deleteAndSet, time.Millisecond), unset: watchAndDelete(isAlive), acceptsLate: true}.New,
})

func deleteAndSet(ctx context.Context, l *redisKeyLease) (bool, error) {
	if _, err := del(ctx, l); err != nil {
		return false, err
	}
	return setForever(ctx, l)
}

// getsetNilBusy treats a nil GETSET reply as a failure, although it means that the client has the
// lock. The lock then stays without a holder until its timestamp expires.
var getsetNilBusy = variant(setnxGetSet, Strategy{
	Name:   "getset-nil-busy",
	Title:  "setnx-getset that treats a nil GETSET reply as busy",
	Breaks: []string{"F8", "F35"},
	New:    redisKeyLock{set: setStamp(takeOverUnlessNil, time.Millisecond), unset: watchAndDelete(isAlive), acceptsLate: true}.New,
})

func takeOverUnlessNil(ctx context.Context, l *redisKeyLease) (bool, error) {
	held, err := emptyIfNil(l.env.Redis.GetSet(ctx, l.key, l.value).Result())
	return err == nil && l.isPast(held), err
}

// setnxGetSetSeconds stores the lease's end in whole seconds. Rounding down shortens a lease by up
// to a second, so another client may take over a lock that is still in use.
var setnxGetSetSeconds = variant(setnxGetSet, Strategy{
	Name:   "setnx-getset-seconds",
	Title:  "setnx-getset with timestamps in whole seconds",
	Claims: catalog.Always(catalog.ByChance).But(catalog.GrabbedTwice, catalog.Slow, catalog.Pause, catalog.ClientClock),
	Breaks: []string{"F9", "F10", "F12", "F25", "F35"},
	New:    redisKeyLock{set: setStamp(takeOver, time.Second), unset: watchAndDelete(isAlive), acceptsLate: true}.New,
})
