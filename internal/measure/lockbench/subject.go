package lockbench

import (
	"context"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/lock/peers"

	"github.com/redis/go-redis/v9"
)

// Subject is a lock that the benchmark can measure.
type Subject struct {
	lock.Strategy
	Peer bool // whether the lock comes from a library
}

// Floor is the name of the subject that shows the lower limit for all locks in Redis.
const Floor = "floor"

// floor is a subject that sends two PINGs. They take two round trips, the minimum for acquiring
// and releasing a lock.
var floor = Subject{Strategy: lock.Strategy{
	Name: Floor, Title: "two PINGs on the same client", Needs: lock.Redis, Excludes: catalog.NoExclusion,
	New: func(env lock.Env) (lock.Locker, error) { return pings{env.Redis}, nil },
}}

// pings implements both Locker and Lease for the floor.
type pings struct{ client redis.UniversalClient }

func (p pings) ping(ctx context.Context) error                            { return p.client.Ping(ctx).Err() }
func (p pings) Acquire(ctx context.Context, _ string) (lock.Lease, error) { return p, p.ping(ctx) }
func (p pings) Release(ctx context.Context) error                         { return p.ping(ctx) }
func (pings) Close() error                                                { return nil }
func (pings) Token() string                                               { return "" }
func (pings) Fence() uint64                                               { return 0 }
func (pings) Lost() <-chan struct{}                                       { return nil }

// Subjects returns every subject except the floor: the strategies that are locks, and then the
// libraries with their defaults and with options.
func Subjects() []Subject {
	var all []Subject
	for _, s := range lock.Strategies {
		if s.Excludes != catalog.NoExclusion {
			all = append(all, Subject{Strategy: s})
		}
	}
	for _, s := range slices.Concat(peers.Strategies, peers.WithOptions) {
		all = append(all, Subject{s, true})
	}
	return all
}

// Find returns the subject with that name. It also finds the floor and strategies without a lock.
// The latter show that the benchmark detects holders that overlap.
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
	var names []string
	for _, s := range Subjects() {
		names = append(names, s.Name)
	}
	return names
}
