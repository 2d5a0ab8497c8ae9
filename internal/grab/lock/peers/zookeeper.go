package peers

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"github.com/go-zookeeper/zk"
)

// zkLock is the Lock of go-zookeeper. Each client creates an ephemeral sequential node, and the
// client with the first node holds the lock. The library supports neither contexts nor a limited
// wait. If a caller gives up, a goroutine keeps waiting, and unlocks once it has the lock.
//
// After an error, such as a lost connection, the node remains. It blocks all clients until the
// session of that process ends. The lock can also fail if A's session ends just after A has checked
// it.
var zkLock = lock.Strategy{
	Name:         "zk-lock",
	Title:        "go-zookeeper's Lock, which takes no context",
	Family:       "consensus",
	Source:       "https://pkg.go.dev/github.com/go-zookeeper/zk#Lock",
	Module:       "github.com/go-zookeeper/zk",
	Needs:        lock.ZooKeeper,
	Guard:        order.Naive,
	Claims:       catalog.ClaimsOf("consensus"),
	Excludes:     catalog.Global,
	Waiter:       "watches the node before its own",
	Breaks:       []string{"F15", "F29", "F30", "F41"},
	Lease:        "the session timeout, within the server's limits. The client keeps the session alive while it is connected",
	Unexplorable: "its connection has no hook for individual calls, so a search cannot control its steps",
	Fails: map[string]string{
		"loss is known": "it does not check its node, and reports only the end of the session",
		"lost reply":    leavesNode,
		"recovers":      leavesNode,
	},
	New: newZKLock,
}

// leavesNode explains why zk-lock fails the tests in which a reply is lost.
const leavesNode = "after an error during the acquire, its node stays until the session ends"

func newZKLock(env lock.Env) (lock.Locker, error) {
	l := &zkLocker{env: env, lost: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	var err error
	l.session, err = env.ZooKeeper.Connect(ctx, env.TTL, l.expired)
	return l, err
}

type zkLocker struct {
	env     lock.Env
	session *lock.ZooKeeperSession
	left    sync.WaitGroup // calls that may continue after their callers have given up

	mu   sync.Mutex
	lost chan struct{} // closed when the session ends
}

func (l *zkLocker) Lease() time.Duration { return l.session.Lease() }

func (l *zkLocker) Close() error {
	l.session.Close(true)
	l.left.Wait()
	return nil
}

func (l *zkLocker) expired() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.lost)
	l.lost = make(chan struct{})
}

func (l *zkLocker) current() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// oneTry is the waiting time for an acquire that should try only once. It cannot be 0, because the
// library always waits.
const oneTry = time.Second

func (l *zkLocker) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, max(oneTry, lock.WaitIn(ctx, l.env.Wait)))
	defer cancel()
	path := lock.ZooKeeperRoot + "/" + url.PathEscape(key)
	lost, m := l.current(), zk.NewLock(l.session.Conn, path, zk.WorldACL(zk.PermAll))
	if err := l.call(waiting, ctx, path, m.Lock, func() { _ = m.Unlock() }); err != nil {
		return nil, notAcquired(ctx, waiting, false, err)
	}
	return &lease{token: l.env.Token(), lost: lost, release: func(ctx context.Context) error {
		err := l.call(ctx, ctx, path, m.Unlock, func() {})
		return lostIf(errors.Is(err, zk.ErrNotLocked) || errors.Is(err, zk.ErrNoNode), err)
	}}, nil
}

// call runs a function that cannot be cancelled, and returns its error. It stops waiting when the
// context named until ends. If the function succeeds after that, undo runs.
func (l *zkLocker) call(until, ctx context.Context, path string, call func() error, undo func()) error {
	done := make(chan error)
	l.left.Go(func() {
		err := l.env.ZooKeeper.Around.Run(ctx, path, call)
		select {
		case done <- err:
		case <-until.Done():
			if err == nil {
				undo()
			}
		}
	})
	select {
	case err := <-done:
		return err
	case <-until.Done():
		return until.Err()
	}
}
