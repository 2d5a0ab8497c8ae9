// Package locktest tests your own Redis lock from your own module with go test.
//
// [Explore] runs the lock under a scheduler, which decides in which order commands reach the
// simulated servers, and when to inject a fault. Explore fails with the shortest schedule that
// breaks the lock. It passes once it has tried every schedule within its bounds.
//
// [Conform] checks the lock's contract on real servers. It covers waiting, lost leases, renewal,
// cancelled clients, lost or late replies, and several processes.
//
// Both take a [New] function, which creates the lock from an [Env]. The Env has real go-redis
// clients, so the test runs the code that you ship.
//
//	func TestExplore(t *testing.T) {
//		locktest.Explore(t, locktest.Bounds{Preemptions: 2, Faults: []string{"crash", "slow"}}, newLock)
//	}
//
// A lock may crash its process, so both functions run the test binary again in child processes. A
// child process also runs your test's code before the call of Explore or Conform, so keep that code
// fast.
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
	// ErrBusy means that other clients held the lock for the whole waiting time. Your Acquire must
	// return this error or wrap it.
	ErrBusy = lock.ErrBusy
	// ErrLost means that the client lost the lease before it could release it. Your Release must
	// return this error or wrap it.
	ErrLost = lock.ErrLost
)

// Locker is the lock under test, as one process uses it. It must be safe for concurrent use.
type Locker interface {
	// Acquire acquires the lock for key. If other clients hold the lock for the whole time wait, it
	// returns ErrBusy; if wait is 0, it tries once. If ctx ends first, it returns ctx's error.
	// Before it returns an error, it tries to release whatever it may have locked.
	Acquire(ctx context.Context, key string, wait time.Duration) (Lease, error)
	// Close stops background work, but does not release leases.
	Close() error
}

// Lease is a lock that a client holds.
type Lease interface {
	// Token returns the lease's unique name, or "" if the lock does not use tokens.
	Token() string
	// Fence returns the fencing token, a number that increases with each acquisition of the key. If
	// the lock has no fencing tokens, it returns 0.
	Fence() uint64
	// Lost returns a channel that is closed once the client knows that it has lost the lease. If
	// the lock cannot detect a loss, Lost returns nil.
	Lost() <-chan struct{}
	// Release releases the lock. It returns ErrLost if the lease was lost. After any other error,
	// the lock may or may not be released. A second call also returns ErrLost, and never releases
	// another client's lock.
	Release(ctx context.Context) error
}

// Env contains everything that a lock may use. Explore simulates all of it, and package time too.
// If a lock waits for anything else, such as a file, Explore hangs.
type Env struct {
	// Redis is a client for the single server, or for the first of several independent servers.
	Redis redis.UniversalClient
	// Nodes contains a client for each independent server, for locks that need a majority of
	// servers.
	Nodes []redis.UniversalClient

	TTL   time.Duration    // how long a lease lasts without renewal
	Now   func() time.Time // the wall clock, which may be wrong
	Token func() string    // returns a new unique name
	Rand  func() float64   // returns a uniform random number in [0,1)
}

// New creates the lock for one process.
type New func(Env) (Locker, error)

// locker adapts the user's lock to the interface in package lock.
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

// strategy describes the user's lock as a locking strategy that should survive every fault.
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

// childArgument is a child process's first argument. The second argument identifies the call that
// started the process.
const childArgument = "locktest-child"

var calls = struct {
	sync.Mutex
	of map[string]int // the number of calls so far, by test name
}{of: map[string]int{}}

// callID returns an ID for a call to this package, made up of the test name and a counter.
func callID(t *testing.T) string {
	calls.Lock()
	defer calls.Unlock()
	calls.of[t.Name()]++
	return fmt.Sprintf("%s %d", t.Name(), calls.of[t.Name()])
}

// role reports whether this process is a child process, and if so, whether the call with this ID
// started it.
func role(id string) (child, mine bool) {
	args := flag.Args()
	if len(args) != 2 || args[0] != childArgument {
		return false, false
	}
	return true, args[1] == id
}

// childCommand returns the command that runs the test binary as a child process for one call.
func childCommand(t *testing.T, id string) []string {
	levels := strings.Split(t.Name(), "/")
	for i, name := range levels {
		levels[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return []string{os.Args[0], "-test.run=" + strings.Join(levels, "/"), childArgument, id}
}
