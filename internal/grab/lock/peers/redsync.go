package peers

import (
	"context"
	"errors"

	"grablab/internal/grab/lock"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// newRedsync makes a mutex of go-redsync for every acquisition, because a mutex
// that goroutines share frees the locks of the others.
func newRedsync(options ...redsync.Option) func(lock.Env) (lock.Locker, error) {
	return func(env lock.Env) (lock.Locker, error) {
		sync := redsync.New(goredis.NewPool(env.Redis))
		return locker{acquire: func(ctx context.Context, key string) (func(context.Context) error, error) {
			m := sync.NewMutex(key, options...)
			if err := m.LockContext(ctx); err != nil {
				var taken *redsync.ErrTaken // after its last try: how many nodes were taken
				return nil, busyIf(errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken), err)
			}
			return func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}, nil
		}}, nil
	}
}
