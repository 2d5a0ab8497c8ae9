package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsync has only one timeout for all nodes. If that timeout is short, calls fail on a busy
// machine. If it is long, a dead node delays every call. A call therefore first waits for a quorum,
// and then only RedlockGrace for the other nodes.
const (
	// RedlockGrace is how long a call waits for the remaining nodes after a quorum has responded.
	RedlockGrace = 50 * time.Millisecond
	// redlockTimeout limits how long a call waits for a quorum. For this to work, the Redis clients
	// must respect context deadlines, dial only once and never retry.
	redlockTimeout = 1500 * time.Millisecond
	redlockShare   = 5
)

var errSilent = errors.New("this node had not answered when a majority of the others had")

// A question is a command to all nodes. If decide is false, it ends when a quorum has replied. If
// decide is true, it ends when a quorum has replied yes, or when too many nodes have replied no for
// such a quorum.
type question struct {
	decide  bool
	running *tasks       // the calls that have not returned
	yes, no atomic.Int32 // how many more answers of this kind end the question; if decide is false, a no counts as a yes
	enough  chan struct{}
}

func (l *redlockLocker) question(decide bool) *question {
	q := &question{decide: decide, running: &l.asking, enough: make(chan struct{})}
	q.yes.Store(int32(l.quorum))
	q.no.Store(int32(len(l.env.Redlock) - l.quorum + 1))
	return q
}

func (q *question) answered(yes bool) {
	missing := &q.yes
	if q.decide && !yes {
		missing = &q.no
	}
	if missing.Add(-1) == 0 {
		close(q.enough)
	}
}

// put runs call, which sends a question to one node, and returns the node's reply. If no reply arrives
// within RedlockGrace after the question has ended, put returns errSilent. The function late then runs
// in the background once call has returned.
func put[T comparable](q *question, yes T, call func() (T, error), late func()) (T, error) {
	type reply struct {
		value T
		err   error
	}
	replies, givenUp := make(chan reply), make(chan struct{})
	q.running.Go(func() {
		value, err := call()
		select {
		case replies <- reply{value, err}:
		case <-givenUp:
			late()
		}
	})
	select {
	case r := <-replies:
		q.answered(r.value == yes)
		return r.value, r.err
	case <-q.enough:
	}
	grace := time.NewTimer(RedlockGrace)
	defer grace.Stop()
	select {
	case r := <-replies:
		return r.value, r.err
	case <-grace.C:
		close(givenUp)
		var none T
		return none, errSilent
	}
}

// A redlockNode gives redsync access to one Redis node during one operation.
type redlockNode struct {
	client      redis.UniversalClient
	lease       *redlockLease // a grant that arrives while lease.wanted is false is undone
	grant, eval *question
	refused     bool // whether another client has the lock on this node
}

// mutex returns a new redsync mutex for one acquire, renewal or release. A shared mutex would not
// work, because these operations overwrite its state. If decide is true, extensions and releases
// wait until a quorum has agreed or can no longer agree.
func (l *redlockLocker) mutex(lease *redlockLease, decide bool) *redsync.Mutex {
	grant, eval := l.question(false), l.question(decide)
	pools := make([]redsyncredis.Pool, len(l.env.Redlock))
	for i, client := range l.env.Redlock {
		pools[i] = &redlockNode{client: client, lease: lease, grant: grant, eval: eval}
	}
	options := []redsync.Option{
		redsync.WithValue(lease.token),
		redsync.WithGenValueFunc(func() (string, error) { return lease.token, nil }),
		redsync.WithExpiry(l.env.TTL),
		redsync.WithDriftFactor(redlockDrift),
		redsync.WithTimeoutFactor(float64(l.timeout) / float64(l.env.TTL)),
	}
	return redsync.New(pools...).NewMutex(lease.key, append(options, l.options...)...)
}

// Get implements redsync's Pool.
func (n *redlockNode) Get(ctx context.Context) (redsyncredis.Conn, error) {
	conn, err := n.pool().Get(ctx)
	return redlockConn{conn, ctx, n}, err
}

func (n *redlockNode) pool() redsyncredis.Pool { return goredis.NewPool(n.client) }

type redlockConn struct {
	redsyncredis.Conn
	ctx  context.Context
	node *redlockNode
}

// SetNX takes the lock on one node. If the node's grant comes too late, SetNX deletes the key
// again, unless the client has got the lock from the other nodes.
func (c redlockConn) SetNX(key, token string, ttl time.Duration) (bool, error) {
	granted, err := put(c.node.grant, true,
		func() (bool, error) { return c.Conn.SetNX(key, token, ttl) },
		func() {
			if !c.node.lease.wanted.Load() {
				cleanUp(c.ctx, func(ctx context.Context) error {
					return setnxRelease.Run(ctx, c.node.client, []string{key}, token).Err()
				})
			}
		})
	c.node.refused = err == nil && !granted
	return granted, err
}

// Eval runs a script that extends or releases the lock on one node. It continues even if redsync
// cancels it, because a key that is not released stays for a whole TTL.
func (c redlockConn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	if c.node.refused {
		c.node.eval.answered(false)
		return int64(0), nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.node.lease.locker.timeout)
	return put[any](c.node.eval, int64(1), func() (any, error) {
		defer cancel()
		conn, err := c.node.pool().Get(ctx)
		if err != nil {
			return nil, err
		}
		return conn.Eval(script, keysAndArgs...)
	}, func() {})
}
