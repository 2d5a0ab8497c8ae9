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
	// ErrBusy means that the lock did not become free within the waiting time.
	ErrBusy = errors.New("lock: busy")
	// ErrLost means that the client lost its lease before the release.
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

	// Close stops the background work, including renewals. It does not release leases.
	Close() error
}

// A Lease is a lock that a client holds.
type Lease interface {
	// Token returns a unique name of this acquisition, or "" if the lock has no tokens.
	Token() string
	// Fence returns the fencing token, which increases with each acquisition of the key. It is 0 if
	// the lock has no fencing tokens.
	Fence() uint64
	// Lost returns a channel that closes as soon as the lease is known to be lost. It is nil if the
	// lock cannot detect a loss.
	Lost() <-chan struct{}
	// Release gives the lock back. ErrLost means that the client no longer held it. After another
	// error, the result is unknown. Call Release only once, with a context that has not ended.
	Release(ctx context.Context) error
}

// Bounded is a Lease that knows when it ends.
type Bounded interface {
	// Until returns when the lease ends without a further renewal, counted from the request. The
	// zero Time means that it does not end.
	Until() time.Time
}

// Checker is a Lease that can ask its servers whether it is still held.
type Checker interface {
	// Check returns ErrLost if the lease is lost, or another error if no answer arrived. The lease
	// may end just after the check.
	Check(ctx context.Context) error
}

// TxLease is a lease bound to one database session.
type TxLease interface {
	Lease
	// Rows reads and claims orders in that session. A holder must use no other connection, so that
	// it cannot write after losing the lock.
	Rows() order.Rows
}

// Reservation is a lease on one unit of an order instead of a lock.
type Reservation interface {
	// Sold tells the lease that the claim was written. Without this call, the release assumes that
	// it was not written or that its result is unknown.
	Sold()
}

// FenceRaiser is a Locker whose counter of fencing tokens can lose its value.
type FenceRaiser interface {
	// Raise increases the counter of key to at least fence, so that the next token is higher.
	Raise(ctx context.Context, key string, fence uint64) error
}

// Forgetter is a Locker that keeps data about a key even when no lease exists.
type Forgetter interface {
	// Forget removes the data of a key that is no longer needed. If the key is locked again, its
	// fencing tokens start from the beginning.
	Forget(ctx context.Context, key string) error
}

// Leaser is a Locker whose servers may shorten or lengthen a lease.
type Leaser interface {
	// Lease returns how long a lease lasts without renewal.
	Lease() time.Duration
}

// LeaseOf returns how long a lease lasts without renewal. It is ttl, unless the servers round it.
func LeaseOf(l Locker, ttl time.Duration) time.Duration {
	if leaser, ok := l.(Leaser); ok {
		return leaser.Lease()
	}
	return ttl
}

// Env contains what strategies may use. Servers that a strategy does not need may be nil. Functions
// must be safe for concurrent use.
type Env struct {
	Node    string                  // the name of the instance
	Redis   redis.UniversalClient   // the single Redis
	Redlock []redis.UniversalClient // the independent Redlock nodes
	Orders  order.Store             // the source of sessions for the locks in the database

	ZooKeeper *Ensemble
	Etcd      *clientv3.Client // made by DialEtcd
	// AroundRedis wraps every command to the single Redis that bypasses the client in Redis. If
	// nil, these commands run directly.
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

// WaitIn returns how long an acquire may wait, which is d or the limit from WaitAtMost, whichever
// is shorter.
func WaitIn(ctx context.Context, d time.Duration) time.Duration {
	if most, ok := ctx.Value(waitKey{}).(time.Duration); ok {
		return min(most, d)
	}
	return d
}

type renewalKey struct{}

// OnRenewal returns a context in which each background renewal calls renewed with the new end of
// the lease. renewed must not block.
func OnRenewal(ctx context.Context, renewed func(until time.Time)) context.Context {
	return context.WithValue(ctx, renewalKey{}, renewed)
}

func (e *Env) wait(ctx context.Context) time.Duration { return WaitIn(ctx, e.Wait) }

// Backend is a set of servers that a strategy needs. Faults of other servers do not apply to it.
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

// A Strategy describes a lock, its guard and the claims about them.
type Strategy struct {
	Name   string
	Title  string // one line for tables
	Family string // the kind of lock: none, process, redis, redlock, database or consensus
	Source string // where the algorithm is described

	Needs Backend     // 0 means nothing
	Guard order.Guard // the default guard
	// FixedGuard means that -guard has no effect, because the strategy consists of its guard (none,
	// mysql-cas).
	FixedGuard bool
	Fences     bool // whether its leases carry fencing tokens

	// Claims contains the claims about each fault of a run, with the default guard and -on-lost
	// abort.
	Claims catalog.Claims
	// InSearch lists faults that affect this lock differently in a search.
	InSearch []SearchClaim
	// Excludes tells which clients the lock separates, so that only one of them holds it at a time.
	Excludes catalog.Exclusion
	// UntilClaim means that the claim also releases the lock, so the next holder may start before
	// the winner has finished.
	UntilClaim bool
	// RefusesItself means that a repeated acquire fails because of the client's own lock, which
	// stays until it expires.
	RefusesItself bool
	// Waiter briefly says how a client waits for the lock. It is empty if there is no lock.
	Waiter   string
	Breaks   []string // the ids of its known failure modes (F1 …)
	Promises Promises

	// The following fields, except New, are only for the locks of libraries (Peers).
	Module string // the Go module of the library
	Lease  string // the meaning of Env.TTL for this lock, in a sentence
	// Fails maps each conformance check that the lock fails to the reason.
	Fails map[string]string
	// Flaky maps each conformance check that the lock fails only sometimes to the reason.
	Flaky map[string]string
	// Unexplorable explains why the lock cannot run in virtual time, or is empty.
	Unexplorable string

	// New makes a Locker. It returns an error if env lacks something that the lock needs.
	New func(Env) (Locker, error)
}

// Promises lists what a lock promises in addition to mutual exclusion. The explorer checks them.
type Promises struct {
	// WakeUp limits how long a waiter needs to get a released lock even if a message is lost, as a
	// share of the TTL. 0 means 0.5.
	WakeUp float64
	// Heard is like WakeUp, but applies if messages arrive in time. 0 means 0.1, or the longest
	// pause between polls if that is longer.
	Heard float64
	// InOrder tells which clients get the lock in order of arrival, if none of their calls fails.
	InOrder catalog.Exclusion
	// Drift is how much faster a server's clock may run, such as 0.01. Clients assume that their
	// leases are shorter by this share.
	Drift float64
	// Patience is how long an acquire waits for an answer at least, as a share of the TTL. 0 means
	// no promise.
	Patience float64
	// ReleaseRetried means that a failed release is repeated until the lease ends.
	ReleaseRetried bool
	// TriesOnce means that an acquire does not wait.
	TriesOnce bool
}

// OutlivesHolder reports whether the lock is a key in Redis, which stays if its holder dies.
func (s Strategy) OutlivesHolder() bool { return s.Needs&(Redis|RedisQuorum) != 0 }

// GuardedBy returns the guard of the strategy if the user asks for this one. "" means the default,
// and a fixed guard never changes.
func (s Strategy) GuardedBy(asked order.Guard) order.Guard {
	if asked == "" || s.FixedGuard {
		return s.Guard
	}
	return asked
}

// Expected returns the claimed verdict on the order under a fault.
func (s Strategy) Expected(f catalog.Fault) catalog.Verdict { return s.Claims.Order(f) }

// ExclusiveUnder reports whether the lock claims to have at most one holder under a fault.
func (s Strategy) ExclusiveUnder(f catalog.Fault) bool { return s.Claims[f].Exclusive }

// A SearchClaim says that faults affect a lock differently in a search. The claims for the fault As
// then apply too, or only those if As is NoFault.
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
	return Strategy{}, fmt.Errorf("lock: no strategy %q; there are %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all strategies except the known-broken ones.
func Names() []string {
	names := make([]string, len(Strategies))
	for i, s := range Strategies {
		names[i] = s.Name
	}
	return names
}
