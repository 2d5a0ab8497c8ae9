// Package peers puts the lock libraries that one would otherwise take behind
// lock.Locker, so that they can be struck and measured beside our own locks.
//
// In goes a lock.Env, as for any strategy; out comes a lock.Locker that calls
// the library as its own documentation does, and adds nothing to it. Env.TTL is given
// to each by the option that it has for that, Env.Wait by the context, and everything
// else is its default. What a library says by an error, a context or a channel is mapped
// to ErrBusy, ErrLost and Lost; what it does not say is not found out for it. So the
// contract of lock.Locker is kept only as far as a library keeps it: Strategy.Fails
// names the checks of package conformtest that it does not pass.
//
// Strategies is the table to begin with; each library has a file. A program that
// links this package has it as lock.Peers, too. The service never does, as a test in
// archtest checks.
package peers

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/grab/lock"
)

// Strategies is every library, with its defaults.
var Strategies = []lock.Strategy{
	redsyncOne,
	redislockOnce,
	rueidislockThree,
	rueidislockOne,
	etcdMutex,
	zkLock,
}

// WithOptions are those that poll, with a pause of 5 ms between two tries: the benchmark
// has them to part the pause from the lock.
var WithOptions = []lock.Strategy{
	redsync5ms,
	redislock5ms,
}

func init() { lock.Peers = Strategies }

const (
	shortDelay  = 5 * time.Millisecond
	longestWait = 10 * time.Second // of a peer that counts its tries
)

// lease is a library's lock that is held.
type lease struct {
	token   string
	fence   uint64
	lost    <-chan struct{} // the library's own signal; nil: it has none
	release func(context.Context) error
}

func (l *lease) Token() string                     { return l.token }
func (l *lease) Fence() uint64                     { return l.fence }
func (l *lease) Lost() <-chan struct{}             { return l.lost }
func (l *lease) Release(ctx context.Context) error { return l.release(ctx) }

// notAcquired is the error of an acquire that came to err, by which the library says that
// the lock was taken, or not. waiting is ctx with the end of the wait.
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

// lostIf makes an error of a release a lock.ErrLost if it says that.
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
