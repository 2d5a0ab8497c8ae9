package lock

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// setnxWatch is like setnx, but releases the lock with a transaction instead of a Lua script. That
// takes three more round trips. WATCH makes EXEC fail if another client has changed the key.
var setnxWatch = variant(setnx, Strategy{
	Name:   "setnx-watch",
	Title:  "setnx, released by WATCH, GET, compare, MULTI, DEL, EXEC",
	Source: "the source articles; redis.io: Transactions",
	Breaks: setnx.Breaks,
	New:    redisKeyLock{set: setPX, unset: watchAndDelete(holds)}.New,
})

// watchAndDelete returns a function that deletes the key if may returns true, unless another client
// changes the key in the meantime.
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
