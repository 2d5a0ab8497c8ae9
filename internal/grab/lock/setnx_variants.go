package lock

import (
	"context"
	"errors"
	"strconv"

	"grablab/internal/catalog"

	"github.com/redis/go-redis/v9"
)

// setnxNoTTL uses SETNX and DEL without an expiry. If a client dies, its work hangs or a DEL gets
// lost, the order stays locked forever.
//
// A lease never ends, so a late grant is valid. Two clients can hold the lock only if Redis loses
// the key. In that case, the first client's DEL also deletes the second client's lock.
var setnxNoTTL = variant(setnx, Strategy{
	Name:     "setnx-nottl",
	Title:    "SETNX without an expiry, released by DEL",
	Source:   "the source articles: SETNX",
	Claims:   catalog.ClaimsOf("nottl"),
	Breaks:   []string{"F3", "F5", "F15"},
	InSearch: endlessIfSentTwice,
	New:      redisKeyLock{set: setForever, unset: del, acceptsLate: true, endless: true}.New,
})

func setForever(ctx context.Context, l *redisKeyLease) (bool, error) {
	return l.env.Redis.SetNX(ctx, l.key, l.value, 0).Result()
}

// endlessIfSentTwice says what the explorer expects of a lock without an expiry if a request is
// sent twice.
var endlessIfSentTwice = []SearchClaim{{
	Faults: []catalog.Fault{catalog.SentTwice}, As: catalog.Crash,
	Why: "Redis refuses the second request because the first one has set the key, so the client gives up and the lock stays behind without an expiry",
}}

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

// setnxGetDel releases the lock with two separate commands: one to compare the value, and one to
// delete the key. If A's lease expires between the two, A deletes B's lock, and C gets the lock
// too.
var setnxGetDel = variant(setnx, Strategy{
	Name:   "setnx-getdel",
	Title:  "SET NX PX, released by GET, compare, DEL",
	Source: "the source articles",
	Claims: catalog.ClaimsOf("del"),
	Breaks: []string{"F6", "F12"},
	New:    redisKeyLock{set: setPX, unset: getThenDel, acceptsLate: true}.New,
})

func getThenDel(ctx context.Context, l *redisKeyLease) (bool, error) {
	ours, err := holds(ctx, l.env.Redis, l)
	if !ours {
		return false, err
	}
	return del(ctx, l)
}

// holds reports whether the key contains the value that this client has set.
func holds(ctx context.Context, r redis.Cmdable, l *redisKeyLease) (bool, error) {
	value, err := get(ctx, r, l.key)
	return err == nil && value == l.value, err
}

// get returns the value of the key. It returns "" if the key does not exist.
func get(ctx context.Context, r redis.Cmdable, key string) (string, error) {
	return emptyIfNil(r.Get(ctx, key).Result())
}

// emptyIfNil returns the reply of a GET or a GETSET. If the key did not exist, it returns "".
func emptyIfNil(value string, err error) (string, error) {
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return value, err
}

// setnxDriverID stores the driver ID instead of a unique token. If a driver tries twice, its first
// attempt may therefore delete its second attempt's lock. The strategy has a second mistake: a
// client uses the lock even if the grant took longer than the TTL.
var setnxDriverID = variant(setnx, Strategy{
	Name:   "setnx-driverid",
	Title:  "setnx with the driver ID as its token",
	Source: "the source articles: SETNX key driver_id",
	Claims: catalog.ClaimsOf("del"),
	Breaks: []string{"F12", "F36"},
	New:    redisKeyLock{set: setDriver, unset: compareAndDelete, acceptsLate: true}.New,
})

func setDriver(ctx context.Context, l *redisKeyLease) (bool, error) {
	if driver, ok := ctx.Value(driverKey{}).(int64); ok {
		l.value = strconv.FormatInt(driver, 10)
	}
	return setPX(ctx, l)
}

// setnxCheck asks Redis just before the write whether the client still holds the lock. The lock can
// still fail: the lease may expire between the check and the write. B then locks and writes, and A
// writes too.
//
// Like the source articles, setnxCheck uses a lock even if the grant took longer than the TTL. Two
// clients may then work at once, but the check keeps one of them from writing.
var setnxCheck = variant(setnx, Strategy{
	Name:   "setnx-check",
	Title:  "setnx that rechecks the lock before the write",
	Source: "the source articles: CHECK",
	// The check shows only that the lease was still valid during the check. A process that pauses
	// after the check may still write too late.
	Claims: catalog.ClaimsOf("check"),
	Breaks: []string{"F12", "F37"},
	New: func(env Env) (Locker, error) {
		return checkLocker{redisKeyLock{set: setPX, unset: compareAndDelete, acceptsLate: true}.locker(env)}, nil
	},
})

type checkLocker struct{ *redisKeyLocker }

func (l checkLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.redisKeyLocker.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return checkLease{lease.(*redisKeyLease)}, nil
}

type checkLease struct{ *redisKeyLease }

func (l checkLease) Check(ctx context.Context) error {
	return orLost(holds(ctx, l.env.Redis, l.redisKeyLease))
}

// setnxWatch is like setnx, but releases the lock with a transaction instead of a Lua script. That
// takes three more round trips. WATCH makes EXEC fail if another client has changed the key.
var setnxWatch = variant(setnx, Strategy{
	Name:   "setnx-watch",
	Title:  "setnx, released by WATCH, GET, compare, MULTI, DEL, EXEC",
	Source: "the source articles; redis.io: Transactions",
	Breaks: setnx.Breaks,
	New:    redisKeyLock{set: setPX, unset: watchAndDelete(holds)}.New,
})

// watchAndDelete returns a function that deletes the key if the function may allows it, unless another
// client changes the key in the meantime.
func watchAndDelete(may func(context.Context, redis.Cmdable, *redisKeyLease) (bool, error)) redisKeyCall {
	return func(ctx context.Context, l *redisKeyLease) (deleted bool, err error) {
		err = l.env.Redis.Watch(ctx, func(tx *redis.Tx) error {
			if ok, err := may(ctx, tx, l); !ok {
				return err
			}
			var n *redis.IntCmd
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				n = p.Del(ctx, l.key)
				return nil
			})
			deleted = err == nil && n.Val() > 0
			return err
		}, l.key)
		if errors.Is(err, redis.TxFailedErr) {
			err = nil
		}
		return deleted, err
	}
}
