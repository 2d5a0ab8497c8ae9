package lock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"grablab/internal/catalog"
)

// setnxGetSet stores the end of the lease in the key, in ms on the clients' clocks, and sets
// no expiry in Redis. A client that finds an end in the past takes over with GETSET. It has
// the lock if the value that GETSET returns has also passed.
//
// It breaks in several ways. B's clock is ahead by more than the rest of A's lease, so B
// takes A's live lock (F9, internal/explore/testdata/F9.txt). A client that loses the race
// to take over has already changed the winner's stamp (F10, F10.txt).
//
// The release deletes any stamp that has not passed. A's stamp passes and B takes over. A's
// release deletes B's stamp and C locks, so B and C are both inside (F35, F35.txt).
//
// A stamp does not identify its client. After a lost reply, no client knows whose stamp it
// is, so it stays until it passes (F25). The article compares every stamp with the clock
// except the client's own. A SETNX that returns 1 after its own stamp has passed still
// counts (F12).
var setnxGetSet = variant(setnx, Strategy{
	Name:   "setnx-getset",
	Title:  "SETNX of a time stamp; an expired lock is taken over with GETSET",
	Source: "the source articles; redis.io: SETNX, “Design pattern: Locking with SETNX”",
	Claims: catalog.ClaimsOf("getset"),
	Breaks: []string{"F9", "F10", "F12", "F25", "F35"},
	New:    redisKeyLock{set: setStamp(takeOver, time.Millisecond), unset: watchAndDelete(isAlive), believesLate: true}.New,
})

// setStamp returns a function that sets the key to a timestamp if the key does not exist. If the key
// contains a timestamp in the past, that function calls over instead. Timestamps are rounded down to
// a multiple of unit.
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
		case errors.Is(err, redis.Nil): // the holder has released the lock since
			continue
		case err != nil:
			return false, err
		case !l.isPast(held):
			return false, nil
		default:
			return over(ctx, l)
		}
	}
}

// takeOver takes over an expired lock with GETSET. Only the first client that tries succeeds. A nil
// reply means that the lock was free.
func takeOver(ctx context.Context, l *redisKeyLease) (bool, error) {
	held, err := l.env.Redis.GetSet(ctx, l.key, l.value).Result()
	if errors.Is(err, redis.Nil) {
		return true, nil
	}
	return err == nil && l.isPast(held), err
}

// isAlive reports whether the key contains a timestamp in the future.
func isAlive(ctx context.Context, r redis.Cmdable, l *redisKeyLease) (bool, error) {
	held, err := get(ctx, r, l.key)
	return held != "" && !l.isPast(held), err
}

// isPast reports whether a timestamp is in the past, by this client's clock.
func (l *redisKeyLease) isPast(stamp string) bool {
	end, err := strconv.ParseInt(stamp, 10, 64)
	return err == nil && end <= l.env.Now().UnixMilli()
}
