// Package lock holds every lock strategy behind one contract: the ones to
// choose from, and the ones that are kept because of what they get wrong.
//
// A strategy is a lock and the guard with which the winner of an order is written.
// Strategies is the table of them, with what each claims to bear; Find looks one up.
// Strategy.New makes a Locker of an Env, which holds the clients of the servers and
// all else that a strategy may touch; Locker.Acquire returns a Lease, Lease.Release
// gives it back. The code of a strategy runs unchanged in an instance, in the
// benchmark and in the explorer, and cannot know that it is watched.
//
// Each strategy is one file, named after it, which says first what the algorithm is
// and which schedule breaks it. Begin with setnx.go. What several strategies share
// has files of its own: rediskey.go (a lock that is one key in Redis), renewer.go,
// notifier.go, poll.go, keyedmutex.go, mysql_session.go. Package conformtest holds them
// all to the contract.
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
	// ErrBusy says that the lock was not obtained within the wait.
	ErrBusy = errors.New("lock: busy")
	// ErrLost says that a lease had stopped being ours before it was released.
	ErrLost = errors.New("lock: lease lost")
	// ErrUnreachable says that a Locker could not be made, because its servers
	// do not answer.
	ErrUnreachable = errors.New("lock: no answer")
)

// Locker takes the lock of one order. It is safe for concurrent use.
type Locker interface {
	// Acquire waits at most Env.Wait for the lock of key, then returns ErrBusy;
	// with a Wait of 0, or under TryOnce, it tries once. It returns the
	// context's error once ctx is done. Any other error leaves the ownership
	// unknown. Whenever it returns an error, it has tried on a deadline of its
	// own to undo what it may have done, so that a client that disconnects
	// leaves no lock behind.
	Acquire(ctx context.Context, key string) (Lease, error)

	// Close ends the background work of the locker, and with it all renewals.
	// It releases no lease.
	Close() error
}

// Lease is a lock that is held.
type Lease interface {
	// Token names this acquisition and no other; "" where the lock has none.
	Token() string
	// Fence is the fencing token, which grows with every acquisition of the
	// key; 0: this lock has none.
	Fence() uint64
	// Lost closes when the loss of the lease is known; nil: it cannot be known
	// (setnx and its variants).
	Lost() <-chan struct{}
	// Release gives the lock back. ErrLost: it had stopped being ours. Any other
	// error leaves that open. It must be called exactly once, and not on a context
	// that may be done already.
	Release(ctx context.Context) error
}

// Bounded is a Lease whose holder knows when it ends.
type Bounded interface {
	// Until is when the lease ends if it is not renewed, on the monotonic clock and
	// counted from before it was asked for, as its holder must; the zero Time: it does
	// not end by itself.
	Until() time.Time
}

// Checker is a Lease that can ask its servers whether it still stands.
type Checker interface {
	// Check returns ErrLost if the lease does not stand, and any other error if
	// that could not be found out. The answer is as old as the reply that brought it.
	Check(ctx context.Context) error
}

// TxLease is a lease that lives in one database session.
type TxLease interface {
	Lease
	// Rows reads and claims orders over that session. Holders must use no other
	// connection: then a lost lock cannot write.
	Rows() order.Rows
}

// Reservation is a lease that is a unit set aside, and not a lock.
type Reservation interface {
	// Sold says before the release that the claim was written. What is released
	// without it was not, or it is not known.
	Sold()
}

// FenceRaiser is a Locker whose fencing tokens come from a counter that can be
// forgotten.
type FenceRaiser interface {
	// Raise lifts the counter of key to at least fence, in one step, so that the
	// next token is above it.
	Raise(ctx context.Context, key string, fence uint64) error
}

// Forgetter is a Locker that keeps something of a key beyond its leases.
type Forgetter interface {
	// Forget removes that, of a key that nobody has a reason to lock again. If it is
	// locked all the same, its fencing tokens begin anew.
	Forget(ctx context.Context, key string) error
}

// Leaser is a Locker whose leases do not last for Env.TTL, because the servers
// have bounds of their own.
type Leaser interface {
	// Lease is for how long a lease lives without renewal.
	Lease() time.Duration
}

// LeaseOf is for how long a lease of l lives without renewal, if ttl was asked for.
func LeaseOf(l Locker, ttl time.Duration) time.Duration {
	if leaser, ok := l.(Leaser); ok {
		return leaser.Lease()
	}
	return ttl
}

// Env is all that a strategy may touch. Servers that Strategy.Needs does not name
// may be nil. Functions must be safe for concurrent use.
type Env struct {
	Node    string                  // name of the instance
	Redis   redis.UniversalClient   // the single Redis
	Redlock []redis.UniversalClient // the independent Redlock nodes
	Orders  order.Store             // the locks in the database begin their sessions here

	ZooKeeper *Ensemble
	Etcd      *clientv3.Client // as DialEtcd opens it
	// AroundRedis stands around every command that a client other than Redis sends to that
	// server; nil: nothing does.
	AroundRedis func(ctx context.Context, key string, call func() error) error

	PerDriver int // units of an order of several that one driver may have; 0: 1

	TTL  time.Duration // how long a lease lives without renewal, at least 1 ms
	Wait time.Duration // how long Acquire waits; 0 tries once

	Now   func() time.Time // wall clock; a clock's error enters here
	Token func() string    // a name that was never used before
	Rand  func() float64   // uniform in [0,1), for jitter
	Log   *slog.Logger     // may be nil
}

type waitKey struct{}

// WaitAtMost makes the acquires of ctx wait no longer than d, whatever Env.Wait is.
func WaitAtMost(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, waitKey{}, d)
}

// TryOnce makes the acquires of ctx try once.
func TryOnce(ctx context.Context) context.Context { return WaitAtMost(ctx, 0) }

// WaitIn is how long an acquire of ctx waits where Env.Wait is d.
func WaitIn(ctx context.Context, d time.Duration) time.Duration {
	if most, ok := ctx.Value(waitKey{}).(time.Duration); ok {
		return min(most, d)
	}
	return d
}

type renewalKey struct{}

// OnRenewal has renewed be called whenever a lease that is acquired with ctx has been
// renewed in the background, with its new end. It must not block.
func OnRenewal(ctx context.Context, renewed func(until time.Time)) context.Context {
	return context.WithValue(ctx, renewalKey{}, renewed)
}

func (e *Env) wait(ctx context.Context) time.Duration { return WaitIn(ctx, e.Wait) }

// Backend is what a strategy runs on. A fault that touches none of it is n/a.
type Backend uint

// The backends, a bit set.
const (
	Redis Backend = 1 << iota
	RedisQuorum
	SQL
	SQLLocks // locks of a database session, on rows and by name
	ZooKeeper
	Etcd
	RedisTracking // that the single Redis tells its clients which keys have changed
)

// Strategy is one entry of the registry: a lock, its guard, and what is
// claimed of them.
type Strategy struct {
	Name   string
	Title  string // one line, for a table
	Family string // what it is built on: none, process, redis, redlock, database, consensus
	Source string // where the algorithm is described

	Needs Backend     // 0: nothing
	Guard order.Guard // its default
	// FixedGuard: the guard is the strategy (none, mysql-cas); -guard does not change it.
	FixedGuard bool
	Fences     bool // its leases carry fencing tokens

	// Claims says what happens to the order and to the lock under each fault of a run, with the
	// default guard and -on-lost abort.
	Claims catalog.Claims
	// InSearch lists the faults that affect this lock differently in a search than in a run.
	InSearch []SearchClaim
	// Excludes says among which clients the lock allows one holder at a time.
	Excludes catalog.Exclusion
	// UntilClaim: the claim releases the lock. The next holder may be inside before
	// the winner has left, and is kept apart from it until the claim only.
	UntilClaim bool
	// Waiter is what who finds the lock taken does until it is free, in a few words; "": there
	// is no lock.
	Waiter   string
	Breaks   []string // its known failure modes (F1 …)
	Promises Promises

	// Of a library's lock (Peers):
	Module string // the Go module that it is in
	Lease  string // what Env.TTL is to it, in a sentence
	// Fails are the checks of package conformtest that it fails, each with the reason: its
	// author promises less than Locker does, or other than it keeps.
	Fails map[string]string
	// Flaky are the checks that it fails at times, likewise: chance decides, or the load.
	Flaky map[string]string
	// Unexplorable says why it cannot run in virtual time; "": it can.
	Unexplorable string

	// New checks that the Env has what the strategy needs, and makes a locker.
	New func(Env) (Locker, error)
}

// Promises are what the lock of a strategy claims beside mutual exclusion. The
// explorer holds it to them.
type Promises struct {
	// WakeUp is how much of a TTL a waiter needs at most to get a lock that was
	// released, even if a message to it is lost, late or comes twice; 0: half of one,
	// as do all that ask again and again.
	WakeUp float64
	// Heard is the same where its messages come at once; 0: a tenth, or the longest pause
	// of those that ask again and again.
	Heard float64
	// InOrder is among which clients those who wait get the lock in the order in
	// which they came, while none of their calls fails; "": among none.
	InOrder catalog.Exclusion
	// Drift is by what share a server's clock may run faster than the clients': their
	// leases end so much earlier for them.
	Drift float64
	// Patience is for how much of a TTL an acquire waits for an answer at the least; 0: it
	// promises nothing.
	Patience float64
	// ReleaseRetried: a release whose request fails is sent again while the lease runs.
	ReleaseRetried bool
}

// OutlivesHolder says whether the lock is a key in Redis, which stays there, for its lease or
// for ever, when the process of its holder dies.
func (s Strategy) OutlivesHolder() bool { return s.Needs&(Redis|RedisQuorum) != 0 }

// GuardedBy is the guard with which the strategy writes where asked is asked for;
// "" asks for none.
func (s Strategy) GuardedBy(asked order.Guard) order.Guard {
	if asked == "" || s.FixedGuard {
		return s.Guard
	}
	return asked
}

// Expected returns what the registry claims for the order under a fault.
func (s Strategy) Expected(f catalog.Fault) catalog.Verdict { return s.Claims.Order(f) }

// ExclusiveUnder reports whether the registry claims that no two holders are inside at once
// under a fault.
func (s Strategy) ExclusiveUnder(f catalog.Fault) bool { return s.Claims[f].Exclusive }

// SearchClaim says that faults affect a lock differently in a search than in a run. The claims
// under As apply in addition to the fault's own. If As is NoFault, they replace them.
type SearchClaim struct {
	Faults []catalog.Fault
	As     catalog.Fault
	Why    string // in a sentence
}

// Find looks a strategy up by name, in Strategies, in Peers and then in KnownBroken.
func Find(name string) (Strategy, error) {
	named := func(s Strategy) bool { return s.Name == name }
	for _, list := range [][]Strategy{Strategies, Peers, KnownBroken} {
		if i := slices.IndexFunc(list, named); i >= 0 {
			return list[i], nil
		}
	}
	return Strategy{}, fmt.Errorf("lock: no strategy %q; there are %s", name, strings.Join(Names(), ", "))
}

// Names lists the strategies in the registry's order, without the known-broken variants.
func Names() []string {
	names := make([]string, len(Strategies))
	for i, s := range Strategies {
		names[i] = s.Name
	}
	return names
}
