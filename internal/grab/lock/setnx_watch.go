package lock

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// setnxWatch is like setnx, but uses a transaction instead of a Lua script. WATCH makes the EXEC
// fail if the key has changed. This needs three more round trips and has the same weaknesses as
// setnx (failure modes F11 and F17).
var setnxWatch = variant(setnx, Strategy{
	Name:   "setnx-watch",
	Title:  "setnx, released by WATCH, GET, compare, MULTI, DEL, EXEC",
	Source: "the source articles; redis.io: Transactions",
	Breaks: setnx.Breaks,
	New:    redisKeyLock{set: setPX, unset: watchAndDelete(holds)}.New,
})

// watchAndDelete returns a function that deletes the key if may returns true. The function deletes
// nothing if another client changes the key at the same time.
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
