package peers

import (
	"context"
	"errors"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// redsyncOne is go-redsync with a single node, as in its README. The lock is a key with an expiry.
// It is extended only if the program calls Extend, which the wrapper does not do.
//
// The lock can fail if A's work outlasts its lease, because nothing signals the end of the lease. B
// then locks and writes, and A writes too. If an acquire's context ends too early, the cleanup
// fails and the key stays until it expires.
//
// With five nodes, this library is the redlock strategy in package lock.
var redsyncOne = lock.Strategy{
	Name:     "redsync",
	Title:    "go-redsync with one node; 32 tries, 50 to 250 ms apart",
	Family:   "redis",
	Source:   "https://github.com/go-redsync/redsync#usage",
	Module:   "github.com/go-redsync/redsync/v4",
	Needs:    lock.Redis,
	Guard:    order.Naive,
	Claims:   catalog.ClaimsOf("setnx"),
	Excludes: catalog.Global,
	Waiter:   "retries after 50 to 250 ms",
	Breaks:   []string{"F11", "F17", "F22", "F38", "F39", "F40"},
	Promises: lock.Promises{GivesUpAfter: 31 * 50 * time.Millisecond}, // the shortest pauses between its 32 tries
	Lease:    "WithExpiry (8 s by default). The library never extends the lease",
	Fails: map[string]string{
		"cancelled in the middle": handedOver,
	},
	New: newRedsync(),
}

// handedOver explains why redsync and some other libraries fail the tests in which the caller
// disconnects.
const handedOver = "a caller that disconnects during the grant still gets the lock, so it must check its context"

var redsync5ms = func() lock.Strategy {
	s := redsyncOne
	s.Name, s.Title, s.Waiter = "redsync-5ms", "go-redsync with one node; a try every 5 ms", "retries after 5 ms"
	s.Promises.GivesUpAfter = 0 // it has enough tries for every wait
	s.New = newRedsync(redsync.WithRetryDelay(shortDelay), redsync.WithTries(int(longestWait/shortDelay)))
	return s
}()

// newRedsync returns a constructor for locks that create a redsync mutex for each acquire. With a
// shared mutex, one caller could release another caller's lock.
func newRedsync(options ...redsync.Option) func(lock.Env) (lock.Locker, error) {
	return func(env lock.Env) (lock.Locker, error) {
		all := append([]redsync.Option{
			redsync.WithExpiry(env.TTL),
			redsync.WithGenValueFunc(func() (string, error) { return env.Token(), nil }),
			redsync.WithRetryDelayFunc(func(int) time.Duration {
				return 50*time.Millisecond + time.Duration(env.Rand()*float64(200*time.Millisecond))
			}),
		}, options...)
		return redsyncLocker{env, redsync.New(goredis.NewPool(env.Redis)), all}, nil
	}
}

type redsyncLocker struct {
	env     lock.Env
	sync    *redsync.Redsync
	options []redsync.Option
}

func (redsyncLocker) Close() error { return nil }

func (l redsyncLocker) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	m := l.sync.NewMutex(key, l.options...)
	wait, take := lock.WaitIn(ctx, l.env.Wait), m.LockContext
	if wait <= 0 {
		take = m.TryLockContext
	}
	waiting, cancel := limited(ctx, wait)
	defer cancel()
	if err := take(waiting); err != nil {
		var taken *redsync.ErrTaken // redsync returns this error after the last try
		return nil, notAcquired(ctx, waiting, errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken), err)
	}
	return &lease{token: m.Value(), release: func(ctx context.Context) error {
		_, err := m.UnlockContext(ctx)
		var taken *redsync.ErrTaken // redsync returns this error if another client has the lock
		return lostIf(errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken), err)
	}}, nil
}
