package peers

import (
	"context"
	"errors"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"github.com/bsm/redislock"
)

// redislockOnce uses bsm/redislock as its README shows, with one key that expires and without
// retries. The library accepts grants that took too long, does not clean up after errors, and does
// not notice that a lease has expired.
var redislockOnce = lock.Strategy{
	Name:   "redislock",
	Title:  "bsm/redislock without retries",
	Family: "redis",
	Source: "https://github.com/bsm/redislock#examples",
	Module: "github.com/bsm/redislock",
	Needs:  lock.Redis,
	Guard:  order.Naive,
	Claims: catalog.ClaimsOf("check"),
	InSearch: []lock.SearchClaim{{
		Faults: []catalog.Fault{catalog.Latency}, As: catalog.NoFault,
		Why: "in a search, the library's callers set no deadline, so the library gives up after one lease. In `run`, each request has a later deadline, so the library may return a lock that has expired",
	}},
	Excludes: catalog.Global,
	Waiter:   "fails immediately",
	Breaks:   []string{"F11", "F12", "F17", "F22", "F25", "F38", "F39", "F40"},
	Lease:    "Obtain's ttl, which the library never extends",
	Promises: lock.Promises{TriesOnce: true},
	Fails: map[string]string{
		"busy":                    waitsNot,
		"wakes a waiter":          waitsNot,
		"expiry frees the key":    waitsNot,
		"cancelled while waiting": waitsNot,
		"cancelled in the middle": handedOver,
		"lost reply":              "after a lost reply, the key stays for a full ttl",
		"late reply":              "a grant counts even if it took longer than the ttl",
	},
	New: newRedislock(nil),
}

const waitsNot = "by default, it does not retry"

var redislock5ms = func() lock.Strategy {
	s := redislockOnce
	s.Name, s.Title, s.Waiter = "redislock-5ms", "bsm/redislock with a retry every 5 ms", "retries after 5 ms"
	s.Promises.TriesOnce = false
	s.New = newRedislock(func() redislock.RetryStrategy { return redislock.LinearBackoff(shortDelay) })
	return s
}()

// newRedislock returns a constructor for locks with the given retry strategy. If retry is nil, the
// locks never retry.
func newRedislock(retry func() redislock.RetryStrategy) func(lock.Env) (lock.Locker, error) {
	return func(env lock.Env) (lock.Locker, error) {
		return redislockLocker{env, redislock.New(env.Redis), retry}, nil
	}
}

type redislockLocker struct {
	env    lock.Env
	client *redislock.Client
	retry  func() redislock.RetryStrategy
}

func (redislockLocker) Close() error { return nil }

func (l redislockLocker) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	options := redislock.Options{Token: l.env.Token()}
	wait := lock.WaitIn(ctx, l.env.Wait)
	if l.retry == nil {
		wait = 0
	}
	if wait > 0 {
		options.RetryStrategy = l.retry()
	}
	waiting, cancel := limited(ctx, wait)
	defer cancel()
	held, err := l.client.Obtain(waiting, key, l.env.TTL, &options)
	if err != nil {
		return nil, notAcquired(ctx, waiting, errors.Is(err, redislock.ErrNotObtained), err)
	}
	return &lease{token: held.Token(), release: func(ctx context.Context) error {
		err := held.Release(ctx)
		return lostIf(errors.Is(err, redislock.ErrLockNotHeld), err)
	}}, nil
}
