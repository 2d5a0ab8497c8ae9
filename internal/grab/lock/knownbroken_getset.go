package lock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"grablab/internal/catalog"
)

// getsetBlindTakeover deletes a stamp that has passed, and sets its own. C2 and
// C3 both see A's stamp passed; C2 DEL, SETNX; C3 DEL, which deletes C2's lock,
// SETNX: both hold (F7, internal/explore/testdata/F7.txt). It is why there is a GETSET.
// Wherever a stamp is left to pass, chance decides whether two race to take over.
var getsetBlindTakeover = variant(setnxGetSet, Strategy{
	Name:  "getset-blind-takeover",
	Title: "setnx-getset, taking over by DEL and SETNX",
	Claims: catalog.ClaimsOf("getset").
		But(catalog.ByChance, catalog.Hang, catalog.Crash, catalog.RedisDown).
		But(catalog.TwoInside, catalog.RedisRestartMost, catalog.RedisDownMost, catalog.Amnesia, catalog.DBRestart, catalog.ReplyLost, catalog.Cancel),
	Breaks: []string{"F7", "F35"},
	New:    redisKeyLock{set: setStamp(deleteAndSet, time.Millisecond), unset: watchAndDelete(lives), believesLate: true}.New,
})

func deleteAndSet(ctx context.Context, l *redisKeyLease) (bool, error) {
	if _, err := del(ctx, l); err != nil {
		return false, err
	}
	return setForever(ctx, l)
}

// getsetNilBusy takes a GETSET that answers nothing for a failure. Its stamp is
// in the key, and it believes that another client has the lock: none has it until
// the stamp passes (F8, internal/explore/testdata/F8.txt). That costs time, and lets no
// more in than setnx-getset does.
var getsetNilBusy = variant(setnxGetSet, Strategy{
	Name:   "getset-nil-busy",
	Title:  "setnx-getset, taking the nil of GETSET for busy",
	Breaks: []string{"F8", "F35"},
	New:    redisKeyLock{set: setStamp(takeOverUnlessNil, time.Millisecond), unset: watchAndDelete(lives), believesLate: true}.New,
})

func takeOverUnlessNil(ctx context.Context, l *redisKeyLease) (bool, error) {
	held, err := l.env.Redis.GetSet(ctx, l.key, l.value).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil && l.passed(held), err
}

// setnxGetSetSeconds stamps in whole seconds, as a program does whose clock has no finer
// ones. That cuts up to a second off every lease: A locks, B finds that A's stamp has
// passed, and takes over a lock that A has just got (F9: it is as if A's clock had been
// behind). How much is left of a lease of a second, chance decides.
var setnxGetSetSeconds = variant(setnxGetSet, Strategy{
	Name:   "setnx-getset-seconds",
	Title:  "setnx-getset, with stamps in whole seconds",
	Claims: catalog.Always(catalog.ByChance).But(catalog.GrabbedTwice, catalog.Slow, catalog.Pause, catalog.ClientClock),
	Breaks: []string{"F9", "F10", "F12", "F25", "F35"},
	New:    redisKeyLock{set: setStamp(takeOver, time.Second), unset: watchAndDelete(lives), believesLate: true}.New,
})
