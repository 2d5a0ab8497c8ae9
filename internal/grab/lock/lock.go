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
	// ErrBusy means that the lock did not become free while the client was willing to wait.
	ErrBusy = errors.New("lock: busy")
	// ErrLost means that the client no longer held its lease when it released or used the lease.
	ErrLost = errors.New("lock: lease lost")
	// ErrUnreachable means that the servers of a Locker do not answer.
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

	// Close stops all background work, including renewals. It does not release the leases.
	Close() error
}

// A Lease is a lock that a client holds.
type Lease interface {
	// Token returns a unique name of this acquisition, or "" if the lock has no tokens.
	Token() string
	// Fence returns the fencing token, a number that increases each time the key is locked. It is 0
	// if the lock has no fencing tokens.
	Fence() uint64
	// Lost returns a channel that closes as soon as the client knows that it has lost the lease. The
	// channel is nil if the lock cannot detect a loss.
	Lost() <-chan struct{}
	// Release gives the lock back. ErrLost means that the client no longer held it. After another
	// error, the result is unknown. A second call returns ErrLost too, and releases no other client's
	// lock. The context must not have ended.
	Release(ctx context.Context) error
}

// Bounded is a Lease that knows when it will end.
type Bounded interface {
	// Until returns when the lease ends if it is not renewed again. The client counts from the time
	// at which it sent its last request. The zero Time means that the lease never ends.
	Until() time.Time
}

// Checker is a Lease that can ask its servers whether it is still held.
type Checker interface {
	// Check asks the servers whether the client still holds the lease. It returns ErrLost if not, or
	// another error if no answer arrived. The lease may end right after the check.
	Check(ctx context.Context) error
}

// TxLease is a lease that belongs to one database session.
type TxLease interface {
	Lease
	// Rows reads orders and writes their winners, in the session of the lease. The holder must use no
	// other connection. Otherwise, it could still write after it has lost the lock.
	Rows() order.Rows
}

// Reservation is a lease on one unit of an order. Unlike a lock, it lets other drivers reserve other
// units.
type Reservation interface {
	// Sold tells the lease that the holder's claim was written. If Sold is not called before Release,
	// Release assumes that the claim was not written, or that this is unknown.
	Sold()
}

// FenceRaiser is a Locker whose counter of fencing tokens may lose its value, for example because its
// server loses data.
type FenceRaiser interface {
	// Raise increases the counter of key to at least fence, so that the next fencing token is higher
	// than fence.
	Raise(ctx context.Context, key string, fence uint64) error
}

// Forgetter is a Locker that keeps data about a key even while no client holds a lease on it.
type Forgetter interface {
	// Forget removes the data about a key that is no longer needed. If a client locks the key again,
	// the fencing tokens start from the beginning.
	Forget(ctx context.Context, key string) error
}

// Leaser is a Locker whose servers may grant a shorter or longer lease than the configured TTL.
type Leaser interface {
	// Lease returns how long a lease lasts without renewal.
	Lease() time.Duration
}

// LeaseOf returns how long a lease of l lasts without renewal. This is ttl, unless the servers round
// it.
func LeaseOf(l Locker, ttl time.Duration) time.Duration {
	if leaser, ok := l.(Leaser); ok {
		return leaser.Lease()
	}
	return ttl
}

// Env contains everything that a strategy may use. Clients for servers that the strategy does not
// need may be nil. All functions must be safe for concurrent use.
type Env struct {
	Node    string                  // the name of the instance
	Redis   redis.UniversalClient   // the single Redis
	Redlock []redis.UniversalClient // the independent Redlock nodes
	Orders  order.Store             // the source of sessions for the locks in the database

	ZooKeeper *Ensemble
	Etcd      *clientv3.Client // made by DialEtcd
	// AroundRedis is called around each command to the single Redis that does not go through the
	// client in the field Redis. If nil, such commands run directly.
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

// WaitAtMost returns a context in which acquires wait at most d, even if Env.Wait is longer.
func WaitAtMost(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, waitKey{}, d)
}

// TryOnce returns a context in which acquires try only once.
func TryOnce(ctx context.Context) context.Context { return WaitAtMost(ctx, 0) }

// WaitIn returns how long an acquire may wait: d, or the limit set by WaitAtMost if that is shorter.
func WaitIn(ctx context.Context, d time.Duration) time.Duration {
	if most, ok := ctx.Value(waitKey{}).(time.Duration); ok {
		return min(most, d)
	}
	return d
}

type renewalKey struct{}

// OnRenewal returns a context for an acquire. After each background renewal, the lease calls renewed
// with its new end. renewed must not block.
func OnRenewal(ctx context.Context, renewed func(until time.Time)) context.Context {
	return context.WithValue(ctx, renewalKey{}, renewed)
}

func (e *Env) wait(ctx context.Context) time.Duration { return WaitIn(ctx, e.Wait) }

// Backend is a set of kinds of servers that a strategy needs. Faults of other servers cannot affect
// the strategy.
type Backend uint

// These are the backends. A strategy may need several of them.
const (
	Redis Backend = 1 << iota
	RedisQuorum
	SQL
	SQLLocks // locks on rows and names that belong to a database session
	ZooKeeper
	Etcd
	RedisTracking // client tracking: the single Redis tells its clients which keys have changed
)

// A Strategy describes a lock and the guard of the database write. It also says what to expect of
// both.
type Strategy struct {
	Name   string
	Title  string // one line for tables
	Family string // the kind of lock: none, process, redis, redlock, database or consensus
	Source string // where the algorithm is described

	Needs Backend     // 0 means nothing
	Guard order.Guard // the default guard
	// FixedGuard means that the option -guard has no effect, because the strategy consists only of
	// its guard (none, mysql-cas).
	FixedGuard bool
	Fences     bool // whether its leases carry fencing tokens

	// Claims states the expected outcome under each fault, for the default guard and the option
	// -on-lost abort.
	Claims catalog.Claims
	// InSearch lists faults that affect this lock differently in the explorer's search than in a run.
	InSearch []SearchClaim
	// Excludes says which clients the lock keeps apart: the clients of all processes, the clients
	// of the same process, or none.
	Excludes catalog.Exclusion
	// UntilClaim means that writing the claim also releases the lock. The next holder may then start
	// before the winner has finished.
	UntilClaim bool
	// RefusesItself means that a repeated acquire fails because it finds the client's own lock, which
	// stays until it expires.
	RefusesItself bool
	// Waiter says in a few words how a client waits for the lock. It is empty if there is no lock.
	Waiter   string
	Breaks   []string // the ids of its known failure modes (F1 …)
	Promises Promises

	// These fields, except New, are only for the locks of third-party libraries (Peers).
	Module string // the Go module of the library
	Lease  string // the meaning of Env.TTL for this lock, in a sentence
	// Fails lists the tests of the conformance suite that the lock fails. The value is the reason.
	Fails map[string]string
	// Flaky lists the tests that the lock fails only sometimes. The value is the reason.
	Flaky map[string]string
	// Unexplorable explains why the lock cannot run in the explorer's virtual time. It is empty if it
	// can.
	Unexplorable string

	// New creates a Locker. It returns an error if env lacks something that the lock needs.
	New func(Env) (Locker, error)
}

// Promises lists what a lock promises beyond mutual exclusion. The explorer checks these promises.
type Promises struct {
	// WakeUp limits how long a waiter needs to get a released lock even if a message is lost. It is a
	// fraction of the TTL, and 0 means 0.5.
	WakeUp float64
	// Heard is like WakeUp, but for the case that no message is lost or late. 0 means 0.1, or the
	// longest pause between two polls if that is longer.
	Heard float64
	// InOrder says which clients get the lock in the order of their arrival, as long as none of their
	// calls fails.
	InOrder catalog.Exclusion
	// Drift is how much faster than real time a server's clock may run, as a fraction such as 0.01.
	// Clients assume that their leases are shorter by this fraction.
	Drift float64
	// Patience is how long an acquire waits for an answer at least, as a fraction of the TTL. 0 means
	// that the lock promises nothing.
	Patience float64
	// Grace is how long a call waits for the other servers after a quorum has answered. 0 means that the
	// lock promises nothing.
	Grace time.Duration
	// ReleaseRetried means that the lock repeats a failed release until the lease ends.
	ReleaseRetried bool
	// LateUndone means that a request that arrives late keeps no lock from others: its client removes the lock
	// when another client waits.
	LateUndone bool
	// TriesOnce means that an acquire tries once and does not wait for the lock.
	TriesOnce bool
}

// OutlivesHolder reports whether the lock is a key in Redis. Such a key stays if its holder dies.
func (s Strategy) OutlivesHolder() bool { return s.Needs&(Redis|RedisQuorum) != 0 }

// GuardedBy returns the guard that the strategy uses if the user asks for asked, where "" asks for
// the default. A fixed guard never changes.
func (s Strategy) GuardedBy(asked order.Guard) order.Guard {
	if asked == "" || s.FixedGuard {
		return s.Guard
	}
	return asked
}

// Expected returns the expected verdict on the order under a fault.
func (s Strategy) Expected(f catalog.Fault) catalog.Verdict { return s.Claims.Order(f) }

// ExclusiveUnder reports whether the lock is expected to have at most one holder at a time under a
// fault.
func (s Strategy) ExclusiveUnder(f catalog.Fault) bool { return s.Claims[f].Exclusive }

// A SearchClaim says that the explorer expects a different outcome of some faults. It expects what
// the strategy's claims say about the fault As in addition, or instead if As is NoFault.
type SearchClaim struct {
	Faults []catalog.Fault
	As     catalog.Fault
	Why    string // the reason, in a sentence
}

// Find returns the strategy with that name from Strategies, Peers or KnownBroken.
func Find(name string) (Strategy, error) {
	named := func(s Strategy) bool { return s.Name == name }
	for _, list := range [][]Strategy{Strategies, Peers, KnownBroken} {
		if i := slices.IndexFunc(list, named); i >= 0 {
			return list[i], nil
		}
	}
	return Strategy{}, fmt.Errorf("lock: there is no strategy %q: use one of %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all strategies, except the known-broken strategies.
func Names() []string {
	names := make([]string, len(Strategies))
	for i, s := range Strategies {
		names[i] = s.Name
	}
	return names
}
