// Package lock holds every lock strategy behind one contract. Some strategies are there to
// be used, and the others demonstrate a known mistake.
//
// A strategy combines a lock with the guard of the write that claims an order. Strategies is
// the table of all strategies and their claims, and Find looks one up. Strategy.New makes a
// Locker from an Env, which holds the server clients and everything else that a strategy may
// touch. Locker.Acquire returns a Lease, and Lease.Release gives it back. The code of a
// strategy runs unchanged in an instance, in the benchmark and in the explorer.
//
// Each strategy has one file with its name. The comment at its start describes the algorithm
// and the schedule that breaks it. Start with setnx.go. Code shared by several strategies is
// in rediskey.go (a lock that is one key in Redis), renewer.go, notifier.go, poll.go,
// keyedmutex.go and mysql_session.go. Package conformtest tests all of them against the
// contract.
package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	// ErrBusy means that the lock could not be acquired within the allowed wait.
	ErrBusy = errors.New("lock: busy")
	// ErrLost means that the client had lost its lease before it released the lock.
	ErrLost = errors.New("lock: lease lost")
	// ErrUnreachable means that a Locker could not be created because its servers do not answer.
	ErrUnreachable = errors.New("lock: no answer")
)

// A Locker acquires locks by key. It is safe for concurrent use.
type Locker interface {
	// Acquire waits at most Env.Wait for the lock of key, then returns ErrBusy. If Wait is
	// 0, or under TryOnce, it tries once. It returns the context's error once ctx is done.
	// After any other error, it is unknown whether the lock was taken.
	//
	// Before it returns an error, Acquire tries to undo what it may have done. That clean-up
	// has its own deadline, so a client that disconnects leaves no lock behind.
	Acquire(ctx context.Context, key string) (Lease, error)

	// Close ends the background work of the locker, including all renewals. It releases no
	// lease.
	Close() error
}

// A Lease is a lock that is held.
type Lease interface {
	// Token returns a name that identifies this acquisition only, or "" if the lock has no
	// tokens.
	Token() string
	// Fence returns the fencing token, which grows with every acquisition of the key. It
	// returns 0 if the lock has no fencing tokens.
	Fence() uint64
	// Lost returns a channel that closes when the loss of the lease is known. It returns nil
	// if the lock cannot detect a loss, like setnx and its variants.
	Lost() <-chan struct{}
	// Release gives the lock back. It returns ErrLost if the client no longer held the lock. After
	// any other error, it is unknown whether the lock was released. Call Release exactly once, with
	// a context that is not yet done.
	Release(ctx context.Context) error
}

// Bounded is a Lease whose holder knows when the lease ends.
type Bounded interface {
	// Until returns when the lease ends if it is not renewed. The time is on the monotonic
	// clock and counts from before the request was sent. The zero Time means that the lease
	// does not end by itself.
	Until() time.Time
}

// Checker is a Lease that can ask its servers whether it is still held.
type Checker interface {
	// Check returns ErrLost if the lease is no longer held, and another error if the servers gave
	// no answer. The result may be outdated by the time the reply arrives.
	Check(ctx context.Context) error
}

// TxLease is a lease bound to one database session.
type TxLease interface {
	Lease
	// Rows reads and claims orders over that session. Holders must use no other connection,
	// so that a holder that has lost the lock cannot write.
	Rows() order.Rows
}

// Reservation is a lease that reserves a unit of an order instead of holding a lock.
type Reservation interface {
	// Sold records, before the release, that the claim was written. A release without Sold
	// means that the claim was not written or that the result is unknown.
	Sold()
}

// FenceRaiser is a Locker whose fencing tokens come from a counter that can lose its value.
type FenceRaiser interface {
	// Raise atomically raises the counter of key to at least fence, so that the next token
	// is higher.
	Raise(ctx context.Context, key string, fence uint64) error
}

// Forgetter is a Locker that stores data for a key beyond its leases.
type Forgetter interface {
	// Forget removes that data for a key that will not be locked again. If a client locks
	// the key anyway, its fencing tokens start again from the beginning.
	Forget(ctx context.Context, key string) error
}

// Leaser is a Locker whose leases can last longer or shorter than Env.TTL, because the
// servers enforce their own bounds.
type Leaser interface {
	// Lease returns how long a lease lives without renewal.
	Lease() time.Duration
}

// LeaseOf returns how long a lease of a locker lives without renewal. This is ttl, unless the
// servers of the locker enforce their own bounds.
func LeaseOf(l Locker, ttl time.Duration) time.Duration {
	if leaser, ok := l.(Leaser); ok {
		return leaser.Lease()
	}
	return ttl
}

// Env holds everything that a strategy may touch. Servers that are not in Strategy.Needs may
// be nil. Functions must be safe for concurrent use.
type Env struct {
	Node    string                  // the name of the instance
	Redis   redis.UniversalClient   // the single Redis
	Redlock []redis.UniversalClient // the independent Redlock nodes
	Orders  order.Store             // the source of sessions for the locks in the database

	ZooKeeper *Ensemble
	Etcd      *clientv3.Client // made by DialEtcd
	// AroundRedis wraps every command to the single Redis that is not sent through the field
	// Redis. If it is nil, the commands run directly.
	AroundRedis func(ctx context.Context, key string, call func() error) error

	PerDriver int // how many units of one order a driver may have; 0 means 1

	TTL  time.Duration // how long a lease lives without renewal, at least 1 ms
	Wait time.Duration // how long Acquire waits; if it is 0, Acquire tries once

	Now   func() time.Time // the wall clock, including any injected clock error
	Token func() string    // returns a name that was never used before
	Rand  func() float64   // uniform in [0,1), for jitter
	Log   *slog.Logger     // may be nil
}

type waitKey struct{}

// WaitAtMost returns a context with which acquires wait no longer than d, even if Env.Wait is
// longer.
func WaitAtMost(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, waitKey{}, d)
}

// TryOnce returns a context with which acquires try only once.
func TryOnce(ctx context.Context) context.Context { return WaitAtMost(ctx, 0) }

// WaitIn returns how long an acquire may wait: d, or the limit that WaitAtMost has set in the
// context if that is shorter.
func WaitIn(ctx context.Context, d time.Duration) time.Duration {
	if most, ok := ctx.Value(waitKey{}).(time.Duration); ok {
		return min(most, d)
	}
	return d
}

type renewalKey struct{}

// OnRenewal returns a context for acquiring leases. Every background renewal of such a lease calls
// the function with the new end of the lease. The function must not block.
func OnRenewal(ctx context.Context, renewed func(until time.Time)) context.Context {
	return context.WithValue(ctx, renewalKey{}, renewed)
}

func (e *Env) wait(ctx context.Context) time.Duration { return WaitIn(ctx, e.Wait) }

// Backend is a bit set of the servers and abilities that a strategy needs. A fault that
// affects none of them does not apply (n/a) to the strategy.
type Backend uint

// The backends.
const (
	Redis Backend = 1 << iota
	RedisQuorum
	SQL
	SQLLocks // locks on rows and names that belong to a database session
	ZooKeeper
	Etcd
	RedisTracking // client tracking: the single Redis tells its clients which keys have changed
)

// A Strategy is one entry of the registry: a lock, its guard, and the claims about them.
type Strategy struct {
	Name   string
	Title  string // one line for tables
	Family string // the kind of lock: none, process, redis, redlock, database or consensus
	Source string // where the algorithm is described

	Needs Backend     // 0 means nothing
	Guard order.Guard // the default guard
	// FixedGuard means that the flag -guard has no effect, because the guard itself is the strategy
	// (none, mysql-cas).
	FixedGuard bool
	Fences     bool // whether its leases carry fencing tokens

	// Claims says for each fault of a run what is expected to happen to the order and to the lock.
	// It applies to the default guard and -on-lost abort.
	Claims catalog.Claims
	// InSearch lists the faults that affect this lock differently in a search than in a run.
	InSearch []SearchClaim
	// Excludes names the group of clients among which the lock allows one holder at a time.
	Excludes catalog.Exclusion
	// UntilClaim means that the claim releases the lock. The next holder may enter before
	// the winner has left, so the lock separates the two only until the claim.
	UntilClaim bool
	// RefusesItself means that an acquire fails if it is sent twice, because the second request
	// meets the lock of the first one. The caller is told that the lock is taken, and the lock
	// stays behind until it expires.
	RefusesItself bool
	// Waiter says in a few words how a client waits while the lock is taken. It is empty if
	// there is no lock.
	Waiter   string
	Breaks   []string // the ids of its known failure modes (F1 …)
	Promises Promises

	// The remaining fields apply only to the locks of libraries (Peers), except New.
	Module string // the Go module of the library
	Lease  string // the meaning of Env.TTL for this lock, in a sentence
	// Fails gives the reason for each check of package conformtest that the lock does not pass.
	// Either its author promises less than Locker does, or the lock does not keep a promise.
	Fails map[string]string
	// Flaky gives the reason for each check that the lock fails only sometimes, by chance or under
	// load.
	Flaky map[string]string
	// Unexplorable says why the lock cannot run in virtual time. It is empty if it can.
	Unexplorable string

	// New checks that the Env has everything that the strategy needs, and makes a Locker.
	New func(Env) (Locker, error)
}

// Promises lists what the lock of a strategy promises besides mutual exclusion. The explorer
// checks these promises.
type Promises struct {
	// WakeUp is the longest time that a waiter needs to get a released lock, as a share of
	// the TTL. It holds even if a message to the waiter is lost, late or duplicated. 0 means
	// 0.5, which suits every lock that polls.
	WakeUp float64
	// Heard is the same bound for waiters whose messages arrive without delay. 0 means 0.1,
	// or the longest polling pause if that is longer.
	Heard float64
	// InOrder names the group of clients among which waiters get the lock in order of
	// arrival, as long as none of their calls fails.
	InOrder catalog.Exclusion
	// Drift is the share by which a server's clock may run faster than the clients' clocks.
	// The clients count their leases as shorter by this share.
	Drift float64
	// Patience is the shortest time that an acquire waits for an answer, as a share of the
	// TTL. 0 means no promise.
	Patience float64
	// ReleaseRetried means that a failed release is sent again while the lease lasts.
	ReleaseRetried bool
	// TriesOnce means that an acquire does not wait for a lock that is taken.
	TriesOnce bool
}

// OutlivesHolder reports whether the lock is a key in Redis. Such a key stays when the
// process of its holder dies, until the lease ends or, without a lease, forever.
func (s Strategy) OutlivesHolder() bool { return s.Needs&(Redis|RedisQuorum) != 0 }

// GuardedBy returns the guard that the strategy uses if the caller asks for a certain guard. An
// empty name selects the default guard, and a fixed guard does not change.
func (s Strategy) GuardedBy(asked order.Guard) order.Guard {
	if asked == "" || s.FixedGuard {
		return s.Guard
	}
	return asked
}

// Expected returns the verdict on the order that the registry claims under a fault.
func (s Strategy) Expected(f catalog.Fault) catalog.Verdict { return s.Claims.Order(f) }

// ExclusiveUnder reports whether the registry claims that no two holders are inside at once
// under a fault.
func (s Strategy) ExclusiveUnder(f catalog.Fault) bool { return s.Claims[f].Exclusive }

// A SearchClaim records that faults affect a lock differently in a search than in a run. In a
// search, the claims for the fault As apply in addition to those for the fault itself. If As is
// NoFault, only the claims for NoFault apply.
type SearchClaim struct {
	Faults []catalog.Fault
	As     catalog.Fault
	Why    string // the reason, in a sentence
}

// Find returns the strategy with that name from Strategies, Peers or KnownBroken, in this
// order.
func Find(name string) (Strategy, error) {
	named := func(s Strategy) bool { return s.Name == name }
	for _, list := range [][]Strategy{Strategies, Peers, KnownBroken} {
		if i := slices.IndexFunc(list, named); i >= 0 {
			return list[i], nil
		}
	}
	return Strategy{}, fmt.Errorf("lock: no strategy %q; there are %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of the strategies in the order of the registry, without the
// known-broken variants.
func Names() []string {
	names := make([]string, len(Strategies))
	for i, s := range Strategies {
		names[i] = s.Name
	}
	return names
}
