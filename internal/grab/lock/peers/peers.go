// Package peers wraps third-party lock libraries in lock.Locker, so that faults and
// benchmarks can compare them with our own locks.
//
// Each wrapper calls the library as its documentation shows and adds nothing. Env.TTL is
// passed through the library's own option and Env.Wait through the context. Everything else
// keeps its default. Errors, contexts and channels of a library are mapped to ErrBusy,
// ErrLost and Lost. A wrapper does not detect what its library does not report.
// Strategy.Fails names the checks of package conformtest that a library does not pass.
//
// Start with the table Strategies. Each library has one file. A program that links this
// package also finds the table in lock.Peers. The service never links it, and a test in
// archtest checks that.
package peers

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/grab/lock"
)

// Strategies lists the lock of every library, with its default options.
var Strategies = []lock.Strategy{
	redsyncOne,
	redislockOnce,
	rueidislockThree,
	rueidislockOne,
	etcdMutex,
	zkLock,
}

// WithOptions lists the libraries that poll, with pauses of 5 ms. With them, the benchmark can
// separate the cost of the pause from the cost of the lock.
var WithOptions = []lock.Strategy{
	redsync5ms,
	redislock5ms,
}

func init() { lock.Peers = Strategies }

const (
	shortDelay  = 5 * time.Millisecond
	longestWait = 10 * time.Second // limits the wait of a library that counts its tries
)

// A lease is a lock of a library that a client holds, in the form that this program needs.
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
// waiting is ctx with a deadline added.
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

// lostIf replaces the error of a release with lock.ErrLost if lost is true.
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
