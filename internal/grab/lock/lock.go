// Package lock contains all lock strategies behind one interface. Some strategies are meant for
// real use, while others demonstrate a known mistake.
//
// A strategy combines a lock with a guard. A claim is the database write that records an order's
// winner, and the guard is the condition on that write.
//
// Strategies lists all strategies, and Find looks one up by name. Strategy.New creates a Locker
// from an Env, which contains the server clients. Locker.Acquire returns a Lease, and Lease.Release
// ends it. The service, the benchmark and the explorer all run the same code.
//
// Each strategy has its own file, which it may share with its variants. Its comment describes the
// algorithm and how the lock can fail. In these comments, A, B and C are clients. The field Breaks
// lists failure mode IDs, such as F11 (see docs/failure-modes.md). For most of them, a file in
// internal/explore/testdata shows the failure step by step.
//
// Start with setnx.go. Code shared by several strategies is in rediskey.go (a lock made of one
// Redis key), renewer.go, notifier.go, poll.go, keyedmutex.go and mysql_session.go. Package
// conformtest checks that every strategy fulfils the contract.
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
	// ErrBusy means that another client held the lock for the whole waiting time.
	ErrBusy = errors.New("lock: busy")
	// ErrLost means that the client no longer held its lease when it used or released it.
	ErrLost = errors.New("lock: lease lost")
	// ErrUnreachable means that the lock servers do not respond.
	ErrUnreachable = errors.New("lock: no answer")
)

// A Locker acquires locks by key. It is safe for concurrent use.
type Locker interface {
	// Acquire waits up to Env.Wait for the key's lock, and then returns ErrBusy. It tries only once
	// if Wait is 0, or if ctx comes from TryOnce. If ctx ends, Acquire returns the error of ctx.
	// After any other error, the client may or may not have the lock.
	//
	// Before Acquire returns an error, it tries to release whatever it may have acquired. This
	// cleanup has its own deadline, so even a client that disconnects leaves no lock behind.
	Acquire(ctx context.Context, key string) (Lease, error)

	// Close stops all background work, including renewals. It releases no lease: each lease stays
	// until it expires or its holder releases it. The holder still learns when it loses the lease. A
	// client that waits in Acquire ends within its waiting time, and leaves nothing on the servers.
	Close() error
}

// A Lease is a lock that a client holds.
type Lease interface {
	// Token returns a unique name for this acquisition. It returns "" if the lock has no tokens.
	Token() string
	// Fence returns the fencing token, a number that increases with each acquisition of the key. It
	// returns 0 if the lock has no fencing tokens.
	Fence() uint64
	// Lost returns a channel that is closed as soon as the client knows that it has lost the lease.
	// The channel is nil if the lock cannot detect a loss.
	Lost() <-chan struct{}
	// Release releases the lock. It returns ErrLost if the client no longer held the lock. After
	// any other error, the result is unknown. A second call returns ErrLost too, and never releases
	// another client's lock. The context must not have ended.
	Release(ctx context.Context) error
}

// Bounded is a Lease whose holder knows when it ends.
type Bounded interface {
	// Until returns the time at which the lease expires unless it is renewed. The TTL counts from
	// when the client sent its last successful request. The zero Time means that the lease never
	// expires.
	Until() time.Time
}

// Checker is a Lease that can ask the lock server whether the client still holds it.
type Checker interface {
	// Check returns nil if the server still stores the lease, and ErrLost if the lease is lost. Any
	// other error means that the server does not respond. Even after a successful check, the lease
	// may end at any moment.
	Check(ctx context.Context) error
}

// TxLease is a lease that is tied to one database session, so it ends when the session ends.
type TxLease interface {
	Lease
	// Rows gives access to the orders through the lease's database session. The holder must use no
	// other connection. Otherwise, it could write even after losing the lock.
	Rows() order.Rows
}

// Reservation is a lease on one unit of an order with several units. Unlike a lock, it does not
// prevent other drivers from reserving other units at the same time.
type Reservation interface {
	// Sold tells the lease that the database has recorded the sale of the unit. Without this call,
	// Release assumes that the sale failed.
	Sold()
}

// FenceRaiser is a Locker whose fencing token counter can be raised. This is necessary after the
// server has lost data, because the counter may then be too low.
type FenceRaiser interface {
	// RaiseFence sets the counter of key to at least fence, so that all later fencing tokens are higher.
	RaiseFence(ctx context.Context, key string, fence uint64) error
}

// Forgetter is a Locker that keeps data about a key even while no client has a lease on it. If a request
// names an order that does not exist, the service calls Forget.
type Forgetter interface {
	// Forget deletes the stored data of a key that is no longer needed. If a client locks the key
	// again, its fencing tokens may restart from the beginning.
	Forget(ctx context.Context, key string) error
}

// Leaser is a Locker whose servers may round the configured TTL, so its leases may be shorter or
// longer.
type Leaser interface {
	// Lease returns how long a lease lasts without renewal.
	Lease() time.Duration
}

// LeaseOf returns how long a lease of l lasts without renewal. The result differs from ttl if the
// servers round it.
func LeaseOf(l Locker, ttl time.Duration) time.Duration {
	if leaser, ok := l.(Leaser); ok {
		return leaser.Lease()
	}
	return ttl
}

// Env contains everything that a strategy may use. Clients of servers that the strategy does not
// need may be nil. All functions must be safe for concurrent use.
type Env struct {
	Node    string                  // the instance name
	Redis   redis.UniversalClient   // the single Redis
	Redlock []redis.UniversalClient // the independent Redlock nodes
	Orders  order.Store             // the source of database sessions for the database locks

	ZooKeeper *Ensemble
	Etcd      *clientv3.Client // made by DialEtcd
	// AroundRedis wraps the commands of libraries that use their own Redis client.
	AroundRedis Around

	PerDriver int // the maximum number of units per driver and order; 0 means 1

	TTL  time.Duration // how long a lease lasts without renewal, at least 1 ms
	Wait time.Duration // how long Acquire waits; if 0, Acquire tries once

	Now   func() time.Time // the wall clock, including any injected clock error
	Token func() string    // returns a unique name on each call
	Rand  func() float64   // uniform in [0,1), for jitter
	Log   *slog.Logger     // may be nil
}

// An Around wraps a call to a server, for example to record it. If it is nil, calls run directly.
type Around func(ctx context.Context, key string, call func() error) error

// Run runs call inside a, or directly if a is nil.
func (a Around) Run(ctx context.Context, key string, call func() error) error {
	if a == nil {
		return call()
	}
	return a(ctx, key, call)
}

// IsClosed reports whether a channel is closed, such as the channel from Lease.Lost.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

type waitKey struct{}

// WaitAtMost returns a context in which an acquire waits at most d, even if Env.Wait is longer.
func WaitAtMost(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, waitKey{}, d)
}

// TryOnce returns a context in which acquires try only once instead of waiting.
func TryOnce(ctx context.Context) context.Context { return WaitAtMost(ctx, 0) }

// WaitIn returns how long an acquire may wait: d, or the limit from WaitAtMost if that is shorter.
func WaitIn(ctx context.Context, d time.Duration) time.Duration {
	if most, ok := ctx.Value(waitKey{}).(time.Duration); ok {
		return min(most, d)
	}
	return d
}

type renewalKey struct{}

// OnRenewal returns a context for an acquire. After each background renewal, the lease calls
// renewed with the time at which it will now end. renewed must not block.
func OnRenewal(ctx context.Context, renewed func(until time.Time)) context.Context {
	return context.WithValue(ctx, renewalKey{}, renewed)
}

type driverKey struct{}

// WithDriver returns a context that passes the driver ID to an acquire, for strategies that store the
// driver in Redis. Without an ID, each acquire counts as a new driver.
func WithDriver(ctx context.Context, driver int64) context.Context {
	return context.WithValue(ctx, driverKey{}, driver)
}

func (e *Env) wait(ctx context.Context) time.Duration { return WaitIn(ctx, e.Wait) }

// Backend is a set of server kinds. For a strategy, it contains the servers that the lock needs,
// because faults on other servers cannot affect the lock.
type Backend uint

// These are the server kinds. A strategy may need several of them.
const (
	Redis Backend = 1 << iota
	RedisQuorum
	SQL
	SQLLocks // row locks and named locks that belong to a database session
	ZooKeeper
	Etcd
	RedisTracking // client tracking: the single Redis server notifies its clients when keys change
)

// A Strategy describes a lock, its guard, and the results that tests expect. The guard is the
// condition under which the database accepts a write.
type Strategy struct {
	Name   string
	Title  string // one line for tables
	Family string // none, process, redis, redlock, database or consensus
	Source string // where the algorithm is described

	Needs Backend     // the servers that the lock needs; 0 means none
	Guard order.Guard // the default guard
	// FixedGuard means that the -guard flag has no effect. It is set for strategies without a lock,
	// because only their guard decides who wins.
	FixedGuard bool
	Fences     bool // whether its leases have fencing tokens

	// Claims gives the expected outcome under each fault, provided that the service uses the
	// default guard and stops its work when a lease is lost.
	Claims catalog.Claims
	// InSearch lists the faults under which we expect a different outcome in the explorer than on
	// real servers.
	InSearch []SearchClaim
	// Excludes says which clients cannot hold the lock at the same time: the clients of all
	// processes, only those of the same process, or none.
	Excludes catalog.Exclusion
	// UntilClaim means that the lock ends as soon as the holder records the winner, so the next
	// client may start before the grab has ended.
	UntilClaim bool
	// RefusesItself means that a client cannot retry an acquire after a lost reply. The retry would
	// find the client's own lock, and would have to wait until that lock expires.
	RefusesItself bool
	// Waiter describes in a few words how a client waits for the lock. It is empty for a strategy
	// without a lock.
	Waiter   string
	Breaks   []string // IDs of its known failure modes, such as F1
	Promises Promises

	// The fields up to Unexplorable are used only for third-party libraries (see Peers).
	Module string // the Go module of the library
	Lease  string // what Env.TTL means for this lock, as a sentence
	// Fails gives the reason for each conformance test that the lock fails.
	Fails map[string]string
	// Flaky gives the reason for each conformance test that the lock fails only sometimes.
	Flaky map[string]string
	// Unexplorable explains why the explorer cannot run the lock in virtual time. It is empty if
	// the explorer can.
	Unexplorable string

	// New creates a Locker. env must have the clients of all servers in Needs, and a TTL.
	New func(Env) (Locker, error)
}

// Promises lists what a lock promises beyond mutual exclusion, so that the explorer can check it.
type Promises struct {
	// WakeUp limits how long a waiter may take to get a released lock if a message may be lost. It is
	// a fraction of the TTL, and 0 means 0.5. As long as all messages arrive in time, the limit is 0.1.
	WakeUp float64
	// InOrder says which clients get the lock in order of arrival: all of them, or only those of
	// the same process. The promise holds as long as none of their calls fails.
	InOrder catalog.Exclusion
	// Turns means that a renewal tells the holder's process which other processes wait. Clients that
	// arrive in the holder's process afterwards get the lock later than those processes.
	Turns bool
	// Drift is how much faster than real time a server's clock may run, as a fraction such as 0.01.
	// Clients shorten their leases by that fraction.
	Drift float64
	// Patience is how long an acquire waits for a reply before it may fail, as a fraction of the TTL.
	// 0 means that it may fail at any time.
	Patience float64
	// Grace is how long a call waits for the remaining servers after a quorum has replied. 0 means
	// no limit.
	Grace time.Duration
	// ReleaseRetried means that the lock retries a failed release until the lease ends.
	ReleaseRetried bool
	// RenewalRetried means that the lock repeats failed renewals. A fault that ends this long before
	// the end of a lease, as a fraction of the TTL, does not cost the lease. A reply that is
	// still missing counts as a fault that lasts. 0 means no such promise.
	RenewalRetried float64
	// LateUndone means that a lock request that arrives late, after its client has given up, does
	// not block other clients for long. The client releases such a lock as soon as another client
	// waits for it.
	LateUndone bool
	// GivesUpAfter is the shortest time after which an acquire may give up although its client would
	// wait longer. 0 means that it never gives up early.
	GivesUpAfter time.Duration
	// TriesOnce means that an acquire never waits for the lock, but fails if the lock is not free.
	TriesOnce bool
}

// OutlivesHolder reports whether the lock survives its holder's death, as all locks in Redis keys
// do.
func (s Strategy) OutlivesHolder() bool { return s.Needs&(Redis|RedisQuorum) != 0 }

// GuardedBy returns asked. If asked is empty or the strategy's guard is fixed, it returns the
// strategy's own guard instead.
func (s Strategy) GuardedBy(asked order.Guard) order.Guard {
	if asked == "" || s.FixedGuard {
		return s.Guard
	}
	return asked
}

// Expected returns the verdict that we expect for the orders under the fault.
func (s Strategy) Expected(f catalog.Fault) catalog.Verdict { return s.Claims.Order(f) }

// ExclusiveUnder reports whether the lock should have at most one holder at a time under the fault.
func (s Strategy) ExclusiveUnder(f catalog.Fault) bool { return s.Claims[f].Exclusive }

// A SearchClaim says that, under each of Faults, the explorer expects a different outcome than a
// run on real servers. It expects the worse of the outcomes under that fault and under the fault
// As. If As is NoFault, it expects the outcome without a fault.
type SearchClaim struct {
	Faults []catalog.Fault
	As     catalog.Fault
	Units  int    // the order needs at least this many units
	Why    string // the reason, as a sentence
}

// Find returns the strategy with the given name from Strategies, Peers or KnownBroken.
func Find(name string) (Strategy, error) {
	for _, s := range slices.Concat(Strategies, Peers, KnownBroken) {
		if s.Name == name {
			return s, nil
		}
	}
	return Strategy{}, fmt.Errorf("lock: there is no strategy %q: use one of %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all Strategies.
func Names() []string { return catalog.Map(Strategies, func(s Strategy) string { return s.Name }) }
