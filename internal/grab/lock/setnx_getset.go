package lock

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"grablab/internal/catalog"
)

// setnxGetSet stores the lease's end as a timestamp, without an expiry in Redis. A client that
// finds a timestamp in the past takes over with GETSET. It has the lock if GETSET returns a
// timestamp in the past too.
//
// The lock can fail in several ways:
//
//   - If B's clock is ahead, B takes over A's lock although it is still valid.
//   - If B and C both try to take over an expired lock, the loser still overwrites the winner's
//     timestamp.
//   - A timestamp does not identify its client, so A's late release can delete B's timestamp.
//   - If a client gets no reply, its timestamp keeps the lock busy until it is in the past.
//   - A client uses the lock even if its own timestamp is already in the past.
var setnxGetSet = variant(setnx, Strategy{
	Name:   "setnx-getset",
	Title:  "SETNX with a timestamp; GETSET takes over an expired lock",
	Source: "the source articles; redis.io: SETNX, “Design pattern: Locking with SETNX”",
	Claims: catalog.ClaimsOf("getset"),
	Breaks: []string{"F9", "F10", "F12", "F25", "F35"},
	New:    redisKeyLock{set: setStamp(takeOver, time.Millisecond), unset: watchAndDelete(isAlive), acceptsLate: true}.New,
})

// setStamp returns a function that sets the key to the lease's end, in milliseconds rounded down to
// a multiple of unit. If the key already contains a time in the past, the function calls replace to
// take over.
func setStamp(replace redisKeyCall, unit time.Duration) redisKeyCall {
	return func(ctx context.Context, l *redisKeyLease) (bool, error) {
		l.value = strconv.FormatInt(l.env.Now().Add(l.env.TTL).Truncate(unit).UnixMilli(), 10)
		ok, err := l.stamp(ctx, replace)
		if err != nil {
			l.value = ""
		}
		return ok, err
	}
}

// stamp tries to set the key, which contains the lease's end. If the key is stored but its end is
// past, it calls replace.
func (l *redisKeyLease) stamp(ctx context.Context, replace redisKeyCall) (bool, error) {
	for {
		if ok, err := setForever(ctx, l); ok || err != nil {
			return ok, err
		}
		held, err := get(ctx, l.env.Redis, l.key)
		switch {
		case err != nil:
			return false, err
		case held == "": // the holder has released the lock, so try SETNX again
			continue
		case !l.isPast(held):
			return false, nil
		default:
			return replace(ctx, l)
		}
	}
}

// takeOver takes over an expired lock with GETSET. It succeeds if GETSET returns nil or a time in
// the past.
func takeOver(ctx context.Context, l *redisKeyLease) (bool, error) {
	held, err := emptyIfNil(l.env.Redis.GetSet(ctx, l.key, l.value).Result())
	return err == nil && (held == "" || l.isPast(held)), err
}

// isAlive reports whether the key contains a timestamp in the future.
func isAlive(ctx context.Context, r redis.Cmdable, l *redisKeyLease) (bool, error) {
	held, err := get(ctx, r, l.key)
	return held != "" && !l.isPast(held), err
}

// isPast reports whether a timestamp is in the past according to the client's clock.
func (l *redisKeyLease) isPast(stamp string) bool {
	end, err := strconv.ParseInt(stamp, 10, 64)
	return err == nil && end <= l.env.Now().UnixMilli()
}
