package lock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"grablab/internal/catalog"
)

// setnxGetSet keeps the end of the lease in the key, in ms on the clients'
// clocks, and lets Redis expire nothing. A client that finds that it has passed
// takes over with GETSET, and has the lock if what GETSET answers had passed, too.
//
// B's clock is ahead by more than the rest of A's lease: B takes A's live lock (F9,
// internal/explore/testdata/F9.txt). A client that loses the race of a take-over has
// moved the winner's stamp all the same (F10, F10.txt). The release deletes any stamp
// that has not passed: A's passes; B takes over; A's release deletes B's; C locks: B
// and C are inside (F35, F35.txt). And a stamp is no name: after a lost reply no
// client can tell whose it is, so that it has to stay until it passes (F25). The page
// compares every stamp with the clock but the client's own: a SETNX that answers 1
// when that has passed is a lock all the same (F12).
var setnxGetSet = variant(setnx, Strategy{
	Name:   "setnx-getset",
	Title:  "SETNX of a time stamp, taken over by GETSET",
	Source: "the source articles; redis.io: SETNX, “Design pattern: Locking with SETNX”",
	Claims: catalog.ClaimsOf("getset"),
	Breaks: []string{"F9", "F10", "F12", "F25", "F35"},
	New:    redisKeyLock{set: setStamp(takeOver, time.Millisecond), unset: watchAndDelete(lives), believesLate: true}.New,
})

// setStamp sets the key if it is not there, and lets over take it over if its
// stamp has passed. Stamps are whole units. After an error, what is there may be another client's stamp of
// the same ms: nothing is undone then.
func setStamp(over redisKeyCall, unit time.Duration) redisKeyCall {
	return func(ctx context.Context, l *redisKeyLease) (bool, error) {
		l.value = strconv.FormatInt(l.env.Now().Add(l.env.TTL).Truncate(unit).UnixMilli(), 10)
		ok, err := l.stamp(ctx, over)
		if err != nil {
			l.value = ""
		}
		return ok, err
	}
}

func (l *redisKeyLease) stamp(ctx context.Context, over redisKeyCall) (bool, error) {
	for {
		if ok, err := setForever(ctx, l); ok || err != nil {
			return ok, err
		}
		held, err := l.env.Redis.Get(ctx, l.key).Result()
		switch {
		case errors.Is(err, redis.Nil): // released since
			continue
		case err != nil:
			return false, err
		case !l.passed(held):
			return false, nil
		default:
			return over(ctx, l)
		}
	}
}

// takeOver is true for one of the clients that found the stamp to have passed: the
// one whose GETSET comes first. If it answers nothing, the lock had been released,
// and is ours now.
func takeOver(ctx context.Context, l *redisKeyLease) (bool, error) {
	held, err := l.env.Redis.GetSet(ctx, l.key, l.value).Result()
	if errors.Is(err, redis.Nil) {
		return true, nil
	}
	return err == nil && l.passed(held), err
}

// lives says whether there is a lock, any client's, that has not passed.
func lives(ctx context.Context, r redis.Cmdable, l *redisKeyLease) (bool, error) {
	held, err := get(ctx, r, l.key)
	return held != "" && !l.passed(held), err
}

// passed compares with this client's clock. What is no stamp never passes.
func (l *redisKeyLease) passed(stamp string) bool {
	end, err := strconv.ParseInt(stamp, 10, 64)
	return err == nil && end <= l.env.Now().UnixMilli()
}
