package lock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnxGetSet keeps the end of the lease in the key, in ms on the clients'
// clocks, and lets Redis expire nothing. Whoever finds that it has passed takes
// over with GETSET, and has the lock if what GETSET answers had passed, too.
//
// B's clock is ahead by more than the rest of A's lease: B takes A's live lock
// (F9). Whoever loses the race of a take-over has moved the winner's stamp all
// the same (F10). The release deletes any stamp that has not passed: A's passes;
// B takes over; A's release deletes B's; C locks: B and C are inside (F35).
var setnxGetSet = Strategy{
	Name:   "setnx-getset",
	Title:  "SETNX of a time stamp, taken over by GETSET",
	Family: "redis",
	Source: "the source articles; redis.io: SETNX, “Design pattern: Locking with SETNX”",
	Needs:  Redis,
	Guard:  order.Naive,
	Expect: map[Fault]Verdict{
		Slow:         Unsafe,
		Pause:        Unsafe,
		RedisRestart: Unsafe,
		Failover:     Unsafe,
		Partition:    Unsafe,
		PartitionDB:  Unsafe,
		ClientClock:  Unsafe,
	},
	Excludes: Global,
	Survives: []Fault{NoFault, Crash, NodeClock},
	Breaks:   []string{"F9", "F10", "F35"},
	New:      keyLock{set: setStamp(takeOver), unset: watchAndDelete(lives)}.New,
}

// setStamp sets the key if it is not there, and lets over take it over if its
// stamp has passed.
func setStamp(over func(context.Context, *keyLease) (bool, error)) func(context.Context, *keyLease) (bool, error) {
	return func(ctx context.Context, l *keyLease) (bool, error) {
		for {
			l.value = stamp(l.env.Now().Add(l.env.TTL))
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
}

// takeOver is true for one of those who found the stamp to have passed: the one
// whose GETSET comes first. If it answers nothing, the lock had been released,
// and is ours now.
func takeOver(ctx context.Context, l *keyLease) (bool, error) {
	held, err := l.env.Redis.GetSet(ctx, l.key, l.value).Result()
	if errors.Is(err, redis.Nil) {
		return true, nil
	}
	if err != nil {
		l.value = "" // our stamp may stand for the winner's lock: nothing must be undone
		return false, err
	}
	return l.passed(held), nil
}

// lives says whether there is a lock, anybody's, that has not passed.
func lives(ctx context.Context, r redis.Cmdable, l *keyLease) (bool, error) {
	held, err := r.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil && !l.passed(held), err
}

func stamp(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// passed compares with this client's clock. What is no stamp never passes.
func (l *keyLease) passed(stamp string) bool {
	end, err := strconv.ParseInt(stamp, 10, 64)
	return err == nil && end <= l.env.Now().UnixMilli()
}
