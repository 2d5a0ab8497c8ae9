// Package peers wraps third-party lock libraries in lock.Locker, so that tests and benchmarks can
// compare them with this project's locks.
//
// Each wrapper calls the library as its documentation shows, and adds no protection of its own. It
// passes Env.TTL as an option, limits the wait through the context, and keeps all other defaults.
// It converts the library's errors and signals to ErrBusy, ErrLost and Lost. Strategy.Fails lists
// the conformance tests that a library fails.
//
// Start with the Strategies table. Each library has one file. A program that imports this package
// also finds the table in lock.Peers. The service must not import this package.
package peers

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/grab/lock"
)

// Strategies lists the lock of each library, with the library's default options.
var Strategies = []lock.Strategy{
	redsyncOne,
	redislockOnce,
	rueidislockThree,
	rueidislockOne,
	etcdMutex,
	zkLock,
}

// WithOptions lists polling libraries with pauses of only 5 ms. Benchmarks use them to show how
// much of the cost comes from the default pauses.
var WithOptions = []lock.Strategy{
	redsync5ms,
	redislock5ms,
}

func init() { lock.Peers = Strategies }

const (
	shortDelay  = 5 * time.Millisecond
	longestWait = 10 * time.Second // for libraries that limit the number of attempts instead of the time
)

// A lease adapts a library's lock to the interface lock.Lease.
type lease struct {
	token   string
	fence   uint64
	lost    <-chan struct{} // the library's signal for a loss, if it has one
	release func(context.Context) error
}

func (l *lease) Token() string                     { return l.token }
func (l *lease) Fence() uint64                     { return l.fence }
func (l *lease) Lost() <-chan struct{}             { return l.lost }
func (l *lease) Release(ctx context.Context) error { return l.release(ctx) }

// notAcquired converts a failed acquire's error to an error of package lock. taken means that
// another client has the lock. waiting is ctx with a deadline.
func notAcquired(ctx, waiting context.Context, taken bool, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	case taken || waiting.Err() != nil:
		return fmt.Errorf("%w: %w", lock.ErrBusy, err)
	default:
		return err
	}
}

// limited returns a context with the timeout wait. If wait is 0, the context has only the deadline
// of ctx.
func limited(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, wait)
}

// lostIf wraps err in lock.ErrLost if lost is true, and returns err unchanged otherwise.
func lostIf(lost bool, err error) error {
	if !lost {
		return err
	}
	return fmt.Errorf("%w: %w", lock.ErrLost, err)
}
