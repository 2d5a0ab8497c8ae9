package lock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"grablab/internal/catalog"
)

// setnxGetSet stores a timestamp in the key and sets no expiry in Redis. The timestamp is the end
// of the lease, in ms on the clients' clocks. A client that finds a timestamp in the past takes
// over with GETSET. It has the lock if the value that GETSET returns is also in the past.
//
// The strategy breaks in several ways. If B's clock is ahead by more than the rest of A's lease, B
// takes A's valid lock (F9, internal/explore/testdata/F9.txt). A client that loses the race to take
// over has already changed the winner's timestamp (F10, F10.txt).
//
// The release deletes any timestamp in the future. Suppose that A's timestamp passes and B takes
// over. A's release then deletes B's timestamp and C locks, so B and C both hold the lock (F35,
// F35.txt).
//
// A timestamp does not identify its client. After a lost reply, no client can tell to whom the
// timestamp belongs, so it stays until it has passed (F25).
//
// The article compares every timestamp with the clock, except for the client's own. If SETNX
// returns 1 after the client's own timestamp has passed, the grant still counts (F12).
var setnxGetSet = variant(setnx, Strategy{
	Name:   "setnx-getset",
	Title:  "SETNX of a time stamp; an expired lock is taken over with GETSET",
	Source: "the source articles; redis.io: SETNX, “Design pattern: Locking with SETNX”",
	Claims: catalog.ClaimsOf("getset"),
	Breaks: []string{"F9", "F10", "F12", "F25", "F35"},
	New:    redisKeyLock{set: setStamp(takeOver, time.Millisecond), unset: watchAndDelete(isAlive), believesLate: true}.New,
})

// setStamp returns a function that sets the key to a timestamp if the key does not exist. If the
// key contains a timestamp in the past, that function calls over instead. It rounds timestamps down
// to a multiple of unit.
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
		case errors.Is(err, redis.Nil): // the holder has released the lock in the meantime
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
