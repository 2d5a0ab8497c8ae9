package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/go-redsync/redsync/v4"
)

// redlock sets the same key on several independent nodes. A client that has set it on a majority
// holds the lock, so the lock survives the loss of a minority. The client keeps extending its lease
// while it holds the lock.
//
// The lock can fail if A has only a bare majority, such as nodes 1, 2 and 3 of five. If node 3 then
// loses its data or its clock jumps, B takes nodes 3, 4 and 5, and both hold the lock.
//
// redlock has no fencing token, because its nodes share no counter. If a holder pauses after its
// last check, nothing prevents its late write.
var redlock = Strategy{
	Name:          "redlock",
	Title:         "a lease on a majority of independent nodes, extended in the background; no fencing token",
	Family:        "redlock",
	Source:        "redis.io: Distributed Locks with Redis; go-redsync",
	Needs:         RedisQuorum,
	Guard:         order.Naive,
	Claims:        catalog.ClaimsOf("redlock"),
	Excludes:      catalog.Global,
	RefusesItself: true,
	Waiter:        "retries after 25 to 200 ms",
	Breaks:        []string{"F11", "F13", "F15", "F18", "F19", "F21", "F39", "F41"},
	Promises:      Promises{InOrder: catalog.PerProcess, Drift: redlockDrift, Patience: 1.0 / redlockShare, Grace: RedlockGrace, RenewalRetried: 0.5},
	New:           func(env Env) (Locker, error) { return newRedlock(env) },
}

const (
	// redlockDrift is the assumed clock drift as a fraction of the TTL, as in redsync.
	redlockDrift = 0.01
	// redlockMin is the minimum number of nodes. With fewer nodes, a single node failure would make
	// the lock unavailable.
	redlockMin = 3
)

// redlockBackoff has longer pauses than pollBackoff, because each attempt sends a command to every
// node. The pauses are random, so that two clients do not keep blocking each other.
var redlockBackoff = backoff{first: 25 * time.Millisecond, most: 200 * time.Millisecond}

var errNoQuorum = errors.New("lock: fewer than a majority of the Redlock nodes answered")

type redlockLocker struct {
	env     Env
	options []redsync.Option // additional options for redsync
	quorum  int
	timeout time.Duration

	queue    keyedMutex
	silence  atomic.Pointer[error] // the error of the last attempt; nil unless too few nodes responded to it
	renewers renewers
	asking   tasks
}

// newRedlock returns a Locker for the nodes in env. It returns an error if there are fewer than
// redlockMin.
func newRedlock(env Env, options ...redsync.Option) (Locker, error) {
	if len(env.Redlock) < redlockMin {
		return nil, fmt.Errorf("lock: redlock needs at least %d independent nodes, but there are %d: list more of them", redlockMin, len(env.Redlock))
	}
	return &redlockLocker{
		env:     env,
		options: options,
		quorum:  len(env.Redlock)/2 + 1,
		timeout: min(redlockTimeout, env.TTL/redlockShare),
	}, nil
}

func (l *redlockLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	// Let only one client of this process try at a time. Otherwise, several clients could keep each
	// other from getting a majority.
	wait, unlock, err := l.queue.lockToWait(ctx, key, l.env.wait(ctx))
	if err == nil {
		defer unlock()
		return l.await(ctx, key, wait)
	}
	if silence := l.silence.Load(); silence != nil && errors.Is(err, ErrBusy) {
		err = *silence
	}
	return nil, err
}

// await tries to get the lock until wait has passed. It then returns ErrBusy if any attempt found
// that another client had the lock. Otherwise, it returns the last attempt's error.
func (l *redlockLocker) await(ctx context.Context, key string, wait time.Duration) (lease Lease, err error) {
	var last error
	taken := false
	err = poll(ctx, wait, redlockBackoff, l.env.Rand, func() (bool, error) {
		if lease, last = l.try(ctx, key); last == nil {
			return true, nil
		}
		taken = taken || !errors.Is(last, errNoQuorum)
		return false, ctx.Err()
	})
	if !errors.Is(err, ErrBusy) {
		return lease, err
	}
	if !taken {
		return nil, last
	}
	return nil, fmt.Errorf("%w: %v", ErrBusy, last)
}

func (l *redlockLocker) Close() error {
	l.renewers.close()
	l.asking.Wait()
	return nil
}

// try requests the lock once from all nodes, even if ctx is cancelled meanwhile. Each attempt uses
// a new token, so that a delayed cleanup cannot affect a later attempt.
func (l *redlockLocker) try(ctx context.Context, key string) (Lease, error) {
	lease := &redlockLease{locker: l, key: key, token: l.env.Token()}
	mutex := l.mutex(lease, false)
	err := l.explain(mutex.TryLockContext(context.WithoutCancel(ctx)))
	if errors.Is(err, errNoQuorum) {
		l.silence.Store(&err)
		return nil, err
	}
	l.silence.Store(nil)
	if err != nil {
		return nil, err
	}
	lease.wanted.Store(true)
	if ctx.Err() != nil {
		cleanUp(ctx, lease.unlock)
		return nil, ctx.Err()
	}
	lease.renewer = l.renewers.start(ctx, mutex.Until(), l.env.TTL, lease.extend)
	return lease, nil
}

type redlockLease struct {
	*renewer
	locker     *redlockLocker
	key, token string
	wanted     atomic.Bool // true between the grant and the release
}

func (l *redlockLease) Token() string { return l.token }
func (l *redlockLease) Fence() uint64 { return 0 }

func (l *redlockLease) extend(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, l.locker.timeout)
	defer cancel()
	mutex := l.locker.mutex(l, true)
	ok, err := mutex.ExtendContext(ctx)
	return mutex.Until(), l.locker.outcome(ok, err)
}

func (l *redlockLease) Release(ctx context.Context) error {
	l.stop()
	return l.unlock(ctx)
}

func (l *redlockLease) unlock(ctx context.Context) error {
	l.wanted.Store(false)
	ctx, cancel := context.WithTimeout(ctx, l.locker.timeout)
	defer cancel()
	return l.locker.outcome(l.locker.mutex(l, true).UnlockContext(ctx))
}

// outcome returns the error for an extension or a release. It returns ErrLost if so many nodes lack
// the client's key that the other nodes are not a majority.
func (l *redlockLocker) outcome(ok bool, err error) error {
	if ok {
		return nil
	}
	if foreign, _ := answers(err); foreign > len(l.env.Redlock)-l.quorum {
		return ErrLost
	}
	return l.explain(err)
}

// explain adds errNoQuorum to err if too few nodes responded. It does not wrap err, so that a
// node's timeout does not look like the caller's deadline.
func (l *redlockLocker) explain(err error) error {
	if err == nil {
		return nil
	}
	if foreign, silent := answers(err); foreign == 0 && silent > len(l.env.Redlock)-l.quorum {
		return fmt.Errorf("%w: %v", errNoQuorum, err)
	}
	return fmt.Errorf("lock: %v", err)
}

// answers counts the failed nodes in a redsync error. foreign counts nodes without the client's
// key, and silent counts nodes that did not respond.
func answers(err error) (foreign, silent int) {
	switch err := err.(type) {
	case *redsync.ErrTaken:
		return len(err.Nodes), 0
	case *redsync.ErrNodeTaken:
		return 1, 0
	case *redsync.RedisError:
		return 0, 1
	case interface{ Unwrap() []error }:
		for _, e := range err.Unwrap() {
			f, s := answers(e)
			foreign, silent = foreign+f, silent+s
		}
		return foreign, silent
	}
	if errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return 1, 0
	}
	return 0, 0
}
