// Package peers wraps third-party lock libraries in lock.Locker, so that faults and benchmarks can
// compare them with our own locks.
//
// Each wrapper calls the library as its documentation shows, and adds nothing. It passes Env.TTL as
// the library's own option, and Env.Wait through the context. All other options keep their
// defaults. The wrapper maps the library's errors, contexts and channels to ErrBusy, ErrLost and
// Lost. A wrapper does not detect what its library does not report. Strategy.Fails names the checks
// of package conformtest that a library does not pass.
//
// Start with the Strategies table. Each library has one file. A program that imports this package
// also finds the table in lock.Peers. The service never imports it, as a test in archtest checks.
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

// WithOptions lists the libraries that poll, with pauses of 5 ms instead of their default. The
// benchmark uses them to separate the cost of the pause from the cost of the lock.
var WithOptions = []lock.Strategy{
	redsync5ms,
	redislock5ms,
}

func init() { lock.Peers = Strategies }

const (
	shortDelay  = 5 * time.Millisecond
	longestWait = 10 * time.Second // limits the wait of a library that counts attempts instead of time
)

// A lease adapts a lock that a client holds in a library to lock.Lease.
type lease struct {
	token   string
	fence   uint64
	lost    <-chan struct{} // the library's own signal, or nil if it has none
	release func(context.Context) error
}

func (l *lease) Token() string                     { return l.token }
func (l *lease) Fence() uint64                     { return l.fence }
func (l *lease) Lost() <-chan struct{}             { return l.lost }
func (l *lease) Release(ctx context.Context) error { return l.release(ctx) }

// notAcquired converts the error of a failed acquire. taken means that another client has the lock.
// waiting is ctx with an additional deadline.
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

// lostIf returns lock.ErrLost instead of a release's error if lost is true.
func lostIf(lost bool, err error) error {
	if !lost {
		return err
	}
	return fmt.Errorf("%w: %w", lock.ErrLost, err)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
