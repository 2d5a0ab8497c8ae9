// Package locktest tests your own Redis lock from your own module with go test.
//
// [Explore] runs the lock under a scheduler that decides in which order commands reach the
// simulated servers, and when a fault is injected. It fails with the shortest schedule that breaks
// the lock. It passes after it has searched everything within its bounds. [Conform] checks the
// contract of the lock on real servers: waiting, loss, renewal, cancelled clients, lost or late
// replies, and several processes.
//
// Both take a [New], which creates the lock from an [Env]. The client is a go-redis client, so the
// test runs the code that you ship.
//
//	func TestExplore(t *testing.T) {
//		locktest.Explore(t, locktest.Bounds{Preemptions: 2, Faults: []string{"crash", "slow"}}, newLock)
//	}
//
// Both start the test binary again as child processes, because a lock may crash its process. A
// child runs the same test up to the call, so the code before the call should be fast.
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
	// ErrBusy means that other clients had the lock during the whole wait. Acquire must return it
	// or wrap it.
	ErrBusy = lock.ErrBusy
	// ErrLost means that the client lost the lease before the release. Release must return it or
	// wrap it.
	ErrLost = lock.ErrLost
)

// Locker is the lock to test, in one process. It must be safe for concurrent use.
type Locker interface {
	// Acquire takes the lock of key. It returns ErrBusy after wait, and tries only once if wait is
	// 0. If ctx ends first, it returns the error of ctx. After an error, it tries to release what
	// it may have acquired.
	Acquire(ctx context.Context, key string, wait time.Duration) (Lease, error)
	// Close stops background work without releasing leases.
	Close() error
}

// Lease is a lock that a client holds.
type Lease interface {
	// Token returns a unique name of this acquisition, or "" if the lock has no tokens.
	Token() string
	// Fence returns the fencing token, which increases with each acquisition of the key. It is 0 if
	// the lock has no fencing tokens.
	Fence() uint64
	// Lost returns a channel that closes as soon as the lease is known to be lost. It is nil if the
	// lock cannot detect a loss.
	Lost() <-chan struct{}
	// Release gives the lock back. It is called only once. It returns ErrLost if the lease was
	// lost. After another error, the result is unknown.
	Release(ctx context.Context) error
}

// Env contains what a lock may use. Explore simulates all of it, including package time. There, a
// lock hangs if it waits for anything else, such as a file.
type Env struct {
	// Redis is the single server, or the first of Nodes.
	Redis redis.UniversalClient
	// Nodes contains all independent servers, for a lock that needs a majority.
	Nodes []redis.UniversalClient

	TTL   time.Duration    // the lifetime of a lease without renewal
	Now   func() time.Time // the wall clock, which may be wrong
	Token func() string    // returns a new unique name
	Rand  func() float64   // uniform in [0,1)
}

// New creates the lock of one process.
type New func(Env) (Locker, error)

// locker adapts the user's lock to this program.
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

// open creates the lock for a strategy.
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

// strategy returns the lock as a strategy that claims to survive every fault.
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

// childArgument is the first argument of a child process. The second is the id of a call.
const childArgument = "locktest-child"

var calls = struct {
	sync.Mutex
	of map[string]int // by the test's name
}{of: map[string]int{}}

// callID returns the id of a call to this package, which consists of the test's name and a counter.
func callID(t *testing.T) string {
	calls.Lock()
	defer calls.Unlock()
	calls.of[t.Name()]++
	return fmt.Sprintf("%s %d", t.Name(), calls.of[t.Name()])
}

// role reports whether this process is a child, and whether it belongs to this call.
func role(id string) (child, mine bool) {
	args := flag.Args()
	if len(args) != 2 || args[0] != childArgument {
		return false, false
	}
	return true, args[1] == id
}

// childCommand returns the command that starts the test binary for one call.
func childCommand(t *testing.T, id string) []string {
	levels := strings.Split(t.Name(), "/")
	for i, name := range levels {
		levels[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return []string{os.Args[0], "-test.run=" + strings.Join(levels, "/"), childArgument, id}
}

// fileName joins parts to make a valid file name.
func fileName(parts ...string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>| `, r) {
			return '-'
		}
		return r
	}, strings.Join(parts, "-"))
}
