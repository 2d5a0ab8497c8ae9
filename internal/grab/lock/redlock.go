package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"grablab/internal/order"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redlock is the same key on several independent nodes; a majority of them is
// the lock, so that it outlives the loss of a few. It is extended as watchdog is.
//
// A holds the bare majority of nodes 1, 2 and 3; node 3 restarts empty, or its
// clock jumps; B takes 3, 4 and 5 (F18, F19). An extension does not set a key
// again that a node has forgotten, so that any two such losses, however far
// apart, end a lease (F21).
var redlock = Strategy{
	Name:   "redlock",
	Title:  "a majority of independent nodes, extended",
	Family: "redlock",
	Source: "redis.io: Distributed Locks with Redis; go-redsync",
	Needs:  RedisQuorum,
	Guard:  order.Naive,
	Expect: map[Fault]Verdict{
		Hang:             Stuck,
		RedisRestartMost: Unsafe,
		Amnesia:          Unsafe,
	},
	Excludes: Global,
	Survives: []Fault{NoFault, Slow, Crash, RedisRestart, RedisDown, Failover, PartitionDB, ClientClock, NodeClock, DBRestart},
	Breaks:   []string{"F15", "F18", "F19", "F21"},
	New: func(env Env) (Locker, error) {
		if err := needTTL(env); err != nil {
			return nil, err
		}
		return newRedlock(env, env.Redlock)
	},
}

// RedlockNodeTimeout is what a node that does not answer may cost. For this to
// hold, the clients of the nodes must heed a context's deadline, dial once and
// retry nothing.
const RedlockNodeTimeout = 50 * time.Millisecond

const (
	// redlockDrift is the share of the TTL by which clocks may part, as redsync
	// documents it.
	redlockDrift = 0.01
	// redlockMin: two nodes bear no loss, and one is no quorum.
	redlockMin = 3
)

// redlockPace is slower than setnx's: a try that fails costs two commands on
// every node, and two contenders that split the nodes must part.
var redlockPace = pace{first: 8 * time.Millisecond, most: 200 * time.Millisecond}

var errNoQuorum = errors.New("lock: no quorum of the nodes answers")

type redlockLocker struct {
	env     Env
	nodes   *redsync.Redsync
	spare   int           // how many nodes a quorum can do without
	timeout time.Duration // of one node
	keepers keepers
}

// newRedlock locks nodes, which may name one node twice.
func newRedlock(env Env, nodes []redis.UniversalClient) (Locker, error) {
	if len(nodes) < redlockMin {
		return nil, fmt.Errorf("lock: redlock needs %d independent nodes or more, not %d", redlockMin, len(nodes))
	}
	pools := make([]redsyncredis.Pool, len(nodes))
	for i, node := range nodes {
		pools[i] = goredis.NewPool(node)
	}
	return &redlockLocker{
		env:     env,
		nodes:   redsync.New(pools...),
		spare:   (len(nodes) - 1) / 2,
		timeout: min(RedlockNodeTimeout, env.TTL/5),
	}, nil
}

// mutex is redsync's handle of one acquisition. It is not safe to share: the
// acquire, the renewals and the release have one each (F23).
func (l *redlockLocker) mutex(key, token string) *redsync.Mutex {
	return l.nodes.NewMutex(key,
		redsync.WithValue(token),
		redsync.WithGenValueFunc(func() (string, error) { return token, nil }),
		redsync.WithExpiry(l.env.TTL),
		redsync.WithDriftFactor(redlockDrift),
		redsync.WithTimeoutFactor(float64(l.timeout)/float64(l.env.TTL)),
	)
}

func (l *redlockLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	var lease Lease
	var last error // why the last try failed
	taken := false // some try met somebody else
	err := poll(ctx, &l.env, redlockPace, func() (bool, error) {
		lease, last = l.try(ctx, key)
		if last == nil {
			return true, nil
		}
		taken = taken || !errors.Is(last, errNoQuorum)
		return false, ctx.Err()
	})
	switch {
	case err == nil:
		return lease, nil
	case !errors.Is(err, ErrBusy):
		return nil, err
	case !taken:
		return nil, last
	default:
		return nil, fmt.Errorf("%w: %v", ErrBusy, last)
	}
}

func (l *redlockLocker) Close() error {
	l.keepers.close()
	return nil
}

// try locks the nodes once. redsync cleans up after itself on the context that
// it was given, so it is given one that the caller cannot cancel; each of its
// steps ends with the nodes' timeout. Each try has a token of its own, which
// the clean-up of an earlier one cannot hit when it arrives late.
func (l *redlockLocker) try(ctx context.Context, key string) (Lease, error) {
	lease := &redlockLease{locker: l, key: key, token: l.env.Token()}
	mutex := l.mutex(key, lease.token)
	if err := mutex.TryLockContext(context.WithoutCancel(ctx)); err != nil {
		return nil, l.explain(err)
	}
	if ctx.Err() != nil {
		undo, cancel := undoing(ctx)
		defer cancel()
		_ = lease.unlock(undo) // the expiry is the second line
		return nil, ctx.Err()
	}
	lease.keeper = l.keepers.keep(ctx, mutex.Until(), l.env.TTL, func(ctx context.Context) (time.Time, error) {
		return l.extend(ctx, mutex)
	})
	return lease, nil
}

// extend is called by one goroutine, which has the mutex to itself.
func (l *redlockLocker) extend(ctx context.Context, mutex *redsync.Mutex) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	ok, err := mutex.ExtendContext(ctx)
	if ok {
		return mutex.Until(), nil
	}
	if l.gone(err) {
		return time.Time{}, ErrLost
	}
	return time.Time{}, l.explain(err)
}

type redlockLease struct {
	*keeper
	locker     *redlockLocker
	key, token string
}

func (l *redlockLease) Token() string { return l.token }
func (l *redlockLease) Fence() uint64 { return 0 }

func (l *redlockLease) Release(ctx context.Context) error {
	l.stop()
	return l.unlock(ctx)
}

func (l *redlockLease) unlock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.locker.timeout)
	defer cancel()
	ok, err := l.locker.mutex(l.key, l.token).UnlockContext(ctx)
	switch {
	case ok:
		return nil
	case l.locker.gone(err):
		return ErrLost
	default:
		return l.locker.explain(err)
	}
}

// gone says whether so many nodes do not have our key that the others cannot be
// a quorum.
func (l *redlockLocker) gone(err error) bool {
	foreign, _ := tally(err)
	return foreign > l.spare
}

// explain tells an error in which nobody else was met and the nodes that could
// not be asked were too many. The causes are given as text: a deadline among
// them is ours and not the caller's.
func (l *redlockLocker) explain(err error) error {
	if foreign, silent := tally(err); foreign == 0 && silent > l.spare {
		return fmt.Errorf("%w: %v", errNoQuorum, err)
	}
	return fmt.Errorf("lock: %v", err)
}

// tally counts the nodes in an error of redsync's: on how many our key is not,
// and how many could not be asked.
func tally(err error) (foreign, silent int) {
	switch err := err.(type) {
	case *redsync.ErrTaken:
		return len(err.Nodes), 0
	case *redsync.ErrNodeTaken:
		return 1, 0
	case *redsync.RedisError:
		return 0, 1
	case interface{ Unwrap() []error }:
		for _, e := range err.Unwrap() {
			f, s := tally(e)
			foreign, silent = foreign+f, silent+s
		}
		return foreign, silent
	}
	if errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return 1, 0
	}
	return 0, 0
}
