package lock

import (
	"context"
	"errors"

	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

// setnxWatch is setnx without Lua: the release is an optimistic transaction,
// WATCH before the GET, so that whatever happens to the key in between makes
// the EXEC do nothing. It costs three round trips more and cures no more than
// the script does: F11 and F17 stay.
var setnxWatch = Strategy{
	Name:     "setnx-watch",
	Title:    "setnx, released by WATCH, GET, compare, MULTI, DEL, EXEC",
	Family:   "redis",
	Source:   "the source articles; redis.io: Transactions",
	Needs:    Redis,
	Guard:    order.Naive,
	Expect:   setnx.Expect,
	Excludes: Global,
	Survives: setnx.Survives,
	Breaks:   setnx.Breaks,
	New:      keyLock{set: setPX, unset: watchAndDelete(holds)}.New,
}

// watchAndDelete deletes the key if may says so and nobody has touched it since.
func watchAndDelete(may func(context.Context, redis.Cmdable, *keyLease) (bool, error)) func(context.Context, *keyLease) (bool, error) {
	return func(ctx context.Context, l *keyLease) (deleted bool, err error) {
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
