package lock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"grablab/internal/catalog"
)

// getsetBlindTakeover takes over an expired lock with DEL and SETNX instead of GETSET. C2 and C3
// both see that A's stamp has passed. C2 sends DEL and SETNX. C3's DEL then deletes C2's lock, and
// C3's SETNX succeeds, so both hold the lock (F7, internal/explore/testdata/F7.txt). GETSET exists
// to prevent this. If a holder leaves a stamp behind, chance decides whether two clients race.
var getsetBlindTakeover = variant(setnxGetSet, Strategy{
	Name:  "getset-blind-takeover",
	Title: "setnx-getset, taking over by DEL and SETNX",
	Claims: catalog.ClaimsOf("getset").
		But(catalog.ByChance, catalog.Hang, catalog.Crash, catalog.RedisDown).
		But(catalog.TwoInside, catalog.RedisRestartMost, catalog.RedisDownMost, catalog.Amnesia, catalog.DBRestart, catalog.ReplyLost, catalog.Cancel),
	Breaks: []string{"F7", "F35"},
	New:    redisKeyLock{set: setStamp(deleteAndSet, time.Millisecond), unset: watchAndDelete(isAlive), believesLate: true}.New,
})

func deleteAndSet(ctx context.Context, l *redisKeyLease) (bool, error) {
	if _, err := del(ctx, l); err != nil {
		return false, err
	}
	return setForever(ctx, l)
}

// getsetNilBusy takes a nil reply of GETSET for a failure. Its own stamp is then in the key, but it
// believes that another client has the lock. So no client holds the lock until the stamp passes
// (F8, internal/explore/testdata/F8.txt). This costs time, but does not let more clients in than
// setnx-getset does.
var getsetNilBusy = variant(setnxGetSet, Strategy{
	Name:   "getset-nil-busy",
	Title:  "setnx-getset, taking the nil of GETSET for busy",
	Breaks: []string{"F8", "F35"},
	New:    redisKeyLock{set: setStamp(takeOverUnlessNil, time.Millisecond), unset: watchAndDelete(isAlive), believesLate: true}.New,
})

func takeOverUnlessNil(ctx context.Context, l *redisKeyLease) (bool, error) {
	held, err := l.env.Redis.GetSet(ctx, l.key, l.value).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil && l.passed(held), err
}

// setnxGetSetSeconds uses stamps in whole seconds, like a program whose clock is no finer.
// The rounding cuts up to a second off every lease. B finds that the stamp of A's new lock
// has already passed and takes the lock over (F9, as if A's clock were behind). With a lease
// of one second, chance decides how much of it remains.
var setnxGetSetSeconds = variant(setnxGetSet, Strategy{
	Name:   "setnx-getset-seconds",
	Title:  "setnx-getset, with stamps in whole seconds",
	Claims: catalog.Always(catalog.ByChance).But(catalog.GrabbedTwice, catalog.Slow, catalog.Pause, catalog.ClientClock),
	Breaks: []string{"F9", "F10", "F12", "F25", "F35"},
	New:    redisKeyLock{set: setStamp(takeOver, time.Second), unset: watchAndDelete(isAlive), believesLate: true}.New,
})
