package lockbench

import (
	"context"
	"errors"
	"slices"
	"sync"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/peers"

	"github.com/redis/go-redis/v9"
)

// Subject is a lock that the benchmark can measure.
type Subject struct {
	lock.Strategy
	Peer bool // whether this lock comes from a library
}

// Floor is the name of the pseudo-lock with which all locks are compared.
const Floor = "floor"

// floor sends one PING to acquire and one to release. A lock in Redis is not faster than these two
// round trips, unless it avoids requests or combines them, as handoff does in some cases.
var floor = Subject{Strategy: lock.Strategy{
	Name: Floor, Title: "two PINGs on the same client", Needs: lock.Redis, Excludes: catalog.NoExclusion,
	New: func(env lock.Env) (lock.Locker, error) { return pings{env.Redis}, nil },
}}

// pings is a pseudo-lock that sends a PING for each acquire and each release.
type pings struct{ client redis.UniversalClient }

func (p pings) ping(ctx context.Context) error                            { return p.client.Ping(ctx).Err() }
func (p pings) Acquire(ctx context.Context, _ string) (lock.Lease, error) { return p, p.ping(ctx) }
func (p pings) Release(ctx context.Context) error                         { return p.ping(ctx) }
func (pings) Close() error                                                { return nil }
func (pings) Token() string                                               { return "" }
func (pings) Fence() uint64                                               { return 0 }
func (pings) Lost() <-chan struct{}                                       { return nil }

// Handover is the name of a pseudo-lock that shows how fast one worker can pass an element to
// another in Redis.
const Handover = "blpop"

// handover shows what a hand-over costs on this machine. It passes a list element from holder to
// holder with BLPOP and LPUSH. It is not a real lock, because the element is lost if its holder
// dies.
var handover = Subject{Strategy: lock.Strategy{
	Name: Handover, Title: "one list element, taken with BLPOP and put back with LPUSH", Needs: lock.Redis, Excludes: catalog.Global,
	New: func(env lock.Env) (lock.Locker, error) { return elements{pings{env.Redis}, new(sync.Map)}, nil },
}}

// elements implements a lock with one list element for each key. made contains the keys whose lists
// already exist.
type elements struct {
	pings
	made *sync.Map
}

func (e elements) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	if _, ok := e.made.Load(key); !ok {
		first, err := e.client.SetNX(ctx, key+":made", 1, 0).Result()
		if err != nil {
			return nil, err
		}
		if first {
			if err := e.client.LPush(ctx, key, 1).Err(); err != nil {
				return nil, err
			}
		}
		e.made.Store(key, true)
	}
	switch err := e.client.BLPop(ctx, acquireTimeout, key).Err(); {
	case errors.Is(err, redis.Nil):
		return nil, lock.ErrBusy
	case err != nil:
		return nil, err
	}
	return element{e.pings, key}, nil
}

type element struct {
	pings
	key string
}

func (e element) Release(ctx context.Context) error { return e.client.LPush(ctx, e.key, 1).Err() }

// Subjects returns what the benchmark measures by default: our own locks, third-party locks, and
// Handover.
func Subjects() []Subject {
	locks := catalog.Filter(lock.Strategies, func(s lock.Strategy) bool { return s.Excludes != catalog.NoExclusion })
	ours := catalog.Map(locks, func(s lock.Strategy) Subject { return Subject{Strategy: s} })
	libraries := catalog.Map(slices.Concat(peers.Strategies, peers.WithOptions), func(s lock.Strategy) Subject { return Subject{s, true} })
	return append(slices.Concat(ours, libraries), handover)
}

// Find returns the lock with this name. It also finds the floor, and strategies without a lock, with
// which you can check that the benchmark detects two holders.
func Find(name string) (Subject, error) {
	for _, s := range append(Subjects(), floor) {
		if s.Name == name {
			return s, nil
		}
	}
	s, err := lock.Find(name)
	if s.Excludes == catalog.NoExclusion {
		s.Excludes = catalog.Global
	}
	return Subject{Strategy: s}, err
}

// Names returns the names of all Subjects.
func Names() []string {
	return catalog.Map(Subjects(), func(s Subject) string { return s.Name })
}
