// Package locktest tests a lock of your own in Redis, from your own module, with
// go test.
//
// [Explore] runs the lock under a scheduler that decides the order in which commands
// reach simulated servers, and which fault strikes when. It fails with the shortest
// schedule that breaks the lock, or has searched everything within its bounds.
// [Conform] holds the lock to its contract on real servers: waiting, loss, renewal,
// cancelled clients, replies that are lost or late, several processes.
//
// Both take a [New], which makes the lock of an [Env]: the client is that of go-redis,
// and the code of the lock is the code that you ship.
//
//	func TestExplore(t *testing.T) {
//		locktest.Explore(t, locktest.Bounds{Preemptions: 2, Faults: []string{"crash", "slow"}}, newLock)
//	}
//
// Both start the test binary again, as processes that a lock may take down, and run
// the same test there up to the call. What stands before it should be quick.
package locktest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrBusy is what Acquire is to return, wrapped or not, when others had the lock
	// for all of the wait.
	ErrBusy = lock.ErrBusy
	// ErrLost is what Release is to return, wrapped or not, when the lease had stopped
	// being its holder's.
	ErrLost = lock.ErrLost
)

// Locker is a lock under test, as one process has it. It is safe for concurrent use.
type Locker interface {
	// Acquire takes the lock of key. It waits at most for wait, then returns ErrBusy; 0
	// tries once. Once ctx is done, it returns the error of ctx. Whenever it returns an
	// error, it has tried to undo what it may have done.
	Acquire(ctx context.Context, key string, wait time.Duration) (Lease, error)
	// Close ends what runs in the background, and releases no lease.
	Close() error
}

// Lease is a lock that is held.
type Lease interface {
	// Token names this acquisition and no other; "" where the lock has no names.
	Token() string
	// Fence is the fencing token, which grows with every acquisition of the key; 0: this
	// lock has none.
	Fence() uint64
	// Lost closes when the loss of the lease is known; nil: it cannot be known.
	Lost() <-chan struct{}
	// Release gives the lock back, once. ErrLost: it had stopped being ours. Any other
	// error leaves that open.
	Release(ctx context.Context) error
}

// Env is all that a lock may touch. Under Explore all of it is simulated; time is
// virtual, also that of package time. A lock that waits for something else, such as a
// file or a socket of its own, hangs there.
type Env struct {
	// Redis is the server; where there are Nodes, the first of them.
	Redis redis.UniversalClient
	// Nodes are all independent servers, for a lock that is held by a majority of them.
	Nodes []redis.UniversalClient

	TTL   time.Duration    // for how long a lease lives without renewal
	Now   func() time.Time // the wall clock, with its errors
	Token func() string    // a name that was never used before
	Rand  func() float64   // uniform in [0,1)
}

// New makes the lock of one process.
type New func(Env) (Locker, error)

// locker is a lock under test as the strategies of the registry are.
type locker struct {
	under Locker
	wait  time.Duration
}

func (l locker) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	lease, err := l.under.Acquire(ctx, key, lock.WaitIn(ctx, l.wait))
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l locker) Close() error { return l.under.Close() }

// open is for the New of a strategy.
func (n New) open(env lock.Env) (lock.Locker, error) {
	if env.Redis == nil {
		env.Redis = env.Redlock[0]
	}
	under, err := n(Env{Redis: env.Redis, Nodes: env.Redlock, TTL: env.TTL, Now: env.Now, Token: env.Token, Rand: env.Rand})
	if err != nil {
		return nil, err
	}
	return locker{under, env.Wait}, nil
}

// strategy is the lock as an entry of the registry that claims to bear everything.
func (n New) strategy(t *testing.T, nodes int) lock.Strategy {
	needs := lock.Redis
	if nodes > 0 {
		needs = lock.RedisQuorum
	}
	return lock.Strategy{
		Name:     strings.ReplaceAll(t.Name(), "/", "-"),
		Needs:    needs,
		Guard:    order.Naive,
		Excludes: catalog.Global,
		Claims:   catalog.Always(catalog.Holds),
		New:      n.open,
	}
}

// childArgument, and the call that a child is for, are the arguments of a process that
// was started by a test.
const childArgument = "locktest-child"

var calls = struct {
	sync.Mutex
	of map[string]int // by the test's name
}{of: map[string]int{}}

// callID names a call of this package: the test, and how many calls it made before.
func callID(t *testing.T) string {
	calls.Lock()
	defer calls.Unlock()
	calls.of[t.Name()]++
	return fmt.Sprintf("%s %d", t.Name(), calls.of[t.Name()])
}

// role says whether this process is a child, and whether it is one for this call.
func role(id string) (child, mine bool) {
	args := flag.Args()
	if len(args) != 2 || args[0] != childArgument {
		return false, false
	}
	return true, args[1] == id
}

// childCommand starts the test binary again, for one call.
func childCommand(t *testing.T, id string) []string {
	levels := strings.Split(t.Name(), "/")
	for i, name := range levels {
		levels[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return []string{os.Args[0], "-test.run=" + strings.Join(levels, "/"), childArgument, id}
}

// fileName is a name without what a path could not have.
func fileName(parts ...string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>| `, r) {
			return '-'
		}
		return r
	}, strings.Join(parts, "-"))
}
