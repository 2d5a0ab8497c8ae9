package lock

import (
	"context"
	"errors"
	"time"
)

// undoTimeout bounds the clean-up after an acquire that failed.
const undoTimeout = time.Second

// undoing returns the context of a clean-up. Whoever asked for the lock may
// have gone, which is often why there is something to clean up (F22).
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

var (
	errNoRedis = errors.New("lock: this strategy needs a Redis")
	errTTL     = errors.New("lock: a lease needs a TTL of at least 1ms")
)

// needRedis checks what every lock in a single Redis needs of its Env.
func needRedis(env Env) error {
	if env.Redis == nil {
		return errNoRedis
	}
	return needTTL(env)
}

func needTTL(env Env) error {
	if env.TTL < time.Millisecond {
		return errTTL
	}
	return nil
}
