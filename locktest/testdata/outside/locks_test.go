// Package outside is an example of a user's module, for the locktest tests. It contains a correct
// lock and three incorrect ones.
package outside

import (
	"context"
	"time"

	"grablab/locktest"

	"github.com/redis/go-redis/v9"
)

// locker is a lock with a Redis key and a fencing token counter. Each flag adds one mistake.
type locker struct {
	env     locktest.Env
	forever bool // the key never expires
	looks   bool // the acquire checks whether the key exists, but sets it in a second step
	blind   bool // the release deletes the key without comparing the token
}

func fenced(env locktest.Env) (locktest.Locker, error)  { return &locker{env: env}, nil }
func forever(env locktest.Env) (locktest.Locker, error) { return &locker{env: env, forever: true}, nil }
func looks(env locktest.Env) (locktest.Locker, error)   { return &locker{env: env, looks: true}, nil }
func blind(env locktest.Env) (locktest.Locker, error)   { return &locker{env: env, blind: true}, nil }

var (
	take = redis.NewScript(`
if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
  return redis.call('incr', KEYS[2])
end
return 0`)
	takeForever = redis.NewScript(`
if redis.call('set', KEYS[1], ARGV[1], 'nx') then
  return redis.call('incr', KEYS[2])
end
return 0`)
	free = redis.NewScript(`
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0`)
)

const (
	pollEvery = 20 * time.Millisecond
	timeout   = time.Second
)

func (l *locker) Acquire(ctx context.Context, key string, wait time.Duration) (locktest.Lease, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		lease := &lease{locker: l, key: key, token: l.env.Token()}
		switch taken, err := lease.take(ctx); {
		case err != nil:
			lease.undo(ctx)
			return nil, err
		case taken:
			return lease, nil
		case wait == 0:
			return nil, locktest.ErrBusy
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over.C:
			return nil, locktest.ErrBusy
		case <-time.After(pollEvery):
		}
	}
}

func (l *locker) Close() error { return nil }

type lease struct {
	locker     *locker
	key, token string
	fence      uint64
}

// take tries once to acquire the lock. If the reply takes longer than the TTL, it returns an error.
func (l *lease) take(ctx context.Context) (taken bool, err error) {
	began, env := time.Now(), l.locker.env
	keys := []string{l.key, l.key + ":fence"}
	switch {
	case l.locker.looks:
		if n, err := env.Redis.Exists(ctx, l.key).Result(); err != nil || n > 0 {
			return false, err
		}
		l.fence, err = env.Redis.Incr(ctx, keys[1]).Uint64()
		if err == nil {
			err = env.Redis.Set(ctx, l.key, l.token, env.TTL).Err()
		}
	case l.locker.forever:
		l.fence, err = takeForever.Run(ctx, env.Redis, keys, l.token).Uint64()
	default:
		l.fence, err = take.Run(ctx, env.Redis, keys, l.token, env.TTL.Milliseconds()).Uint64()
	}
	switch {
	case err == nil && ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && l.fence > 0 && time.Since(began) >= env.TTL:
		err = context.DeadlineExceeded
	}
	return l.fence > 0, err
}

// undo releases the lock, in case it was taken.
func (l *lease) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	_ = free.Run(ctx, l.locker.env.Redis, []string{l.key}, l.token).Err()
}

func (l *lease) Token() string         { return l.token }
func (l *lease) Fence() uint64         { return l.fence }
func (l *lease) Lost() <-chan struct{} { return nil }

func (l *lease) Release(ctx context.Context) error {
	var freed int64
	var err error
	if l.locker.blind {
		freed, err = l.locker.env.Redis.Del(ctx, l.key).Result()
	} else {
		freed, err = free.Run(ctx, l.locker.env.Redis, []string{l.key}, l.token).Int64()
	}
	if err == nil && freed == 0 {
		return locktest.ErrLost
	}
	return err
}
