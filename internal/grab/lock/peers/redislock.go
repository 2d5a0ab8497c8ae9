package peers

import (
	"context"
	"errors"

	"grablab/internal/grab/lock"

	"github.com/bsm/redislock"
)

// newRedislock retries as retry says; nil: never, which is the library's default.
func newRedislock(retry func() redislock.RetryStrategy) func(lock.Env) (lock.Locker, error) {
	return func(env lock.Env) (lock.Locker, error) {
		client := redislock.New(env.Redis)
		return locker{acquire: func(ctx context.Context, key string) (func(context.Context) error, error) {
			var opts redislock.Options
			if retry != nil {
				opts.RetryStrategy = retry()
			}
			l, err := client.Obtain(ctx, key, env.TTL, &opts)
			if err != nil {
				return nil, busyIf(errors.Is(err, redislock.ErrNotObtained), err)
			}
			return l.Release, nil
		}}, nil
	}
}
