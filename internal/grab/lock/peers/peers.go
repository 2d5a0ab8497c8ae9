// Package peers puts the lock libraries that one would otherwise take behind
// lock.Locker, so that they can be measured beside our own locks.
//
// In goes a lock.Env, as for any strategy; out comes a lock.Locker that calls
// the library and adds nothing to it. Each library runs with its defaults, and
// those that poll also with a retry every 5 ms. So the contract of lock.Locker is
// kept only as far as a library keeps it: a peer waits for as long as the library
// does, and its leases neither name themselves nor tell of their loss.
//
// Strategies is the table to begin with; each library has a file. The service
// never links this package, as a test in archtest checks.
package peers

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
)

// Strategies is every peer. Of a lock.Strategy it has the name, the title, the
// needs and the constructor: what faults do to a library is not claimed here.
var Strategies = []lock.Strategy{
	{Name: "redsync", Title: "go-redsync, one node, its defaults: retries after 50 to 250 ms", Needs: lock.Redis, Excludes: catalog.Global, New: newRedsync()},
	{Name: "redsync-5ms", Title: "go-redsync, one node, retries after 5 ms", Needs: lock.Redis, Excludes: catalog.Global,
		New: newRedsync(redsync.WithRetryDelay(shortDelay), redsync.WithTries(int(longestWait/shortDelay)))},
	{Name: "redislock", Title: "bsm/redislock, its defaults: no retry, so it is called again at once", Needs: lock.Redis, Excludes: catalog.Global, New: newRedislock(nil)},
	{Name: "redislock-5ms", Title: "bsm/redislock, retries after 5 ms", Needs: lock.Redis, Excludes: catalog.Global,
		New: newRedislock(func() redislock.RetryStrategy { return redislock.LinearBackoff(shortDelay) })},
	{Name: "rueidislock", Title: "rueidislock, its defaults: two of three keys", Needs: lock.Redis, Excludes: catalog.Global, New: newRueidislock(0)},
	{Name: "rueidislock-1", Title: "rueidislock, KeyMajority 1", Needs: lock.Redis, Excludes: catalog.Global, New: newRueidislock(1)},
	{Name: "etcd-mutex", Title: "etcd's concurrency.Mutex, a session for each worker", Needs: lock.Etcd, Excludes: catalog.Global, New: newEtcdMutex},
}

const (
	shortDelay  = 5 * time.Millisecond
	longestWait = 10 * time.Second // of a peer that counts its tries
)

// locker is a library's lock as a lock.Locker.
type locker struct {
	acquire func(ctx context.Context, key string) (release func(context.Context) error, err error)
	close   func() error // nil: there is nothing to close
}

func (l locker) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	release, err := l.acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lease{release}, nil
}

func (l locker) Close() error {
	if l.close == nil {
		return nil
	}
	return l.close()
}

// lease knows how to release, and nothing else.
type lease struct{ release func(context.Context) error }

func (lease) Token() string                       { return "" }
func (lease) Fence() uint64                       { return 0 }
func (lease) Lost() <-chan struct{}               { return nil }
func (l lease) Release(ctx context.Context) error { return l.release(ctx) }

// busyIf makes a library's error a lock.ErrBusy if it says that the lock was taken.
func busyIf(taken bool, err error) error {
	if taken {
		return fmt.Errorf("%w: %w", lock.ErrBusy, err)
	}
	return err
}
