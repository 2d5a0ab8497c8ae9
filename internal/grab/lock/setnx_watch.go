package lock

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// setnxWatch is setnx without Lua: the release is an optimistic transaction,
// WATCH before the GET, so that whatever happens to the key in between makes
// the EXEC do nothing. It costs three round trips more and cures no more than
// the script does: F11 (internal/explore/testdata/F11.txt) and F17 stay. It is setnx
// in all but the release, and looks at the age of a grant as setnx does.
var setnxWatch = variant(setnx, Strategy{
	Name:   "setnx-watch",
	Title:  "setnx, released by WATCH, GET, compare, MULTI, DEL, EXEC",
	Source: "the source articles; redis.io: Transactions",
	Breaks: setnx.Breaks,
	New:    redisKeyLock{set: setPX, unset: watchAndDelete(holds)}.New,
})

// watchAndDelete deletes the key if may says so and no client has touched it since.
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
