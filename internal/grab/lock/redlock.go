package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
)

// redlock is the same key on several independent nodes; a majority of them is
// the lock, so that it outlives the loss of a few. It is extended as watchdog is.
//
// A holds the bare majority of nodes 1, 2 and 3; node 3 restarts empty, or its
// clock jumps; B takes 3, 4 and 5 (F18, internal/explore/testdata/F18.txt; F19, F19.txt).
// B does so, too, if a node has a replica that is promoted on its side of a partition
// (F39).
// An extension does not set a key again that a node has forgotten, so that any two
// such losses, however far apart, end a lease (F21, F21.txt).
//
// It has no fencing token: its nodes share no counter, and the random value of a key
// says who holds it, not who came later. So nothing stops the write of a holder that
// paused behind its last look (F11).
var redlock = Strategy{
	Name:     "redlock",
	Title:    "a majority of independent nodes, extended; has no fencing token",
	Family:   "redlock",
	Source:   "redis.io: Distributed Locks with Redis; go-redsync",
	Needs:    RedisQuorum,
	Guard:    order.Naive,
	Claims:   catalog.ClaimsOf("redlock"),
	Excludes: catalog.Global,
	Waiter:   "asks again, after 25 to 200 ms",
	Breaks:   []string{"F11", "F13", "F15", "F18", "F19", "F21", "F39", "F41"},
	Promises: Promises{InOrder: catalog.PerProcess, Drift: redlockDrift, Patience: 1.0 / redlockShare},
	New:      func(env Env) (Locker, error) { return newRedlock(env, env.Redlock) },
}

const (
	// redlockDrift is the allowed clock drift as a share of the TTL, as redsync
	// documents it.
	redlockDrift = 0.01
	// redlockMin: with fewer nodes, none may fail.
	redlockMin = 3
)

// redlockBackoff is slower than setnx's: a try costs a command on every node, and
// two clients that split the nodes must part.
var redlockBackoff = backoff{first: 25 * time.Millisecond, most: 200 * time.Millisecond}

var errNoQuorum = errors.New("lock: fewer than a quorum of the nodes answered")

type redlockLocker struct {
	env     Env
	nodes   []redis.UniversalClient
	options []redsync.Option // beside those that it sets itself
	quorum  int
	timeout time.Duration

	queue    keyedMutex
	silence  atomic.Pointer[error] // why the last try, of whatever key, reached no quorum; nil: it did
	renewers renewers
	asking   sync.WaitGroup
}

// newRedlock locks nodes. The miswired variant names one node twice.
func newRedlock(env Env, nodes []redis.UniversalClient, options ...redsync.Option) (Locker, error) {
	if err := needTTL(env); err != nil {
		return nil, err
	}
	if len(nodes) < redlockMin {
		return nil, fmt.Errorf("lock: redlock needs %d independent nodes or more, not %d", redlockMin, len(nodes))
	}
	return &redlockLocker{
		env:     env,
		nodes:   nodes,
		options: options,
		quorum:  len(nodes)/2 + 1,
		timeout: min(redlockTimeout, env.TTL/redlockShare),
	}, nil
}

func (l *redlockLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	// Several waiters of one process would only take the nodes from one another.
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

// await tries for as long as wait. It is busy only if some try met another client,
// and the cause otherwise.
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

// try locks the nodes once. redsync cleans up after itself on the context that
// it was given, so it is given one that the caller cannot cancel; each of its
// steps ends with the locker's timeout. Each try has a token of its own, which
// the clean-up of an earlier one cannot hit when it arrives late.
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
	wanted     atomic.Bool // from the grant to the release
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

// outcome says what an extension or a release came to. The lease is lost when so
// many nodes do not have our key that the others are no quorum.
func (l *redlockLocker) outcome(ok bool, err error) error {
	if ok {
		return nil
	}
	if foreign, _ := answers(err); foreign > len(l.nodes)-l.quorum {
		return ErrLost
	}
	return l.explain(err)
}

// explain wraps errNoQuorum around an error in which no other client was met and the
// nodes that could not be asked were too many. The causes are given as text: a deadline among
// them is ours and not the caller's.
func (l *redlockLocker) explain(err error) error {
	if err == nil {
		return nil
	}
	if foreign, silent := answers(err); foreign == 0 && silent > len(l.nodes)-l.quorum {
		return fmt.Errorf("%w: %v", errNoQuorum, err)
	}
	return fmt.Errorf("lock: %v", err)
}

// answers counts the nodes in an error of redsync's: how many lack our key, held by
// another or expired, and how many did not answer.
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
