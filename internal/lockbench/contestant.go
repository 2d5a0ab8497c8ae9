package lockbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"grablab/internal/grab/lock"
	"grablab/internal/tap"
)

// Contestant is a lock that is measured.
type Contestant struct {
	Name     string
	Title    string
	Peer     bool // a library's lock, not one of ours
	Needs    lock.Backend
	Excludes lock.Exclusion // among whom holders must not overlap; Nobody: it is no lock
	open     func(tools) (contender, error)
}

// contender is one process's side of a contestant.
type contender struct {
	// take waits for the lock of key. lock.ErrBusy: it gave up, as some do.
	take  takeFunc
	close func() error
}

type (
	takeFunc = func(ctx context.Context, key string) (release, error)
	release  = func(ctx context.Context) error // gives a lock back
)

// tools is what a contender is made of.
type tools struct {
	lock.Env
	servers servers
	counted func(tap.Dialer) tap.Dialer // for clients that are not those of Env
}

// Floor is the name of what no lock can be below.
const Floor = "floor"

// floor is two PINGs, on the client that the strategies have: what one round
// trip to take and one to release cost.
var floor = Contestant{
	Name: Floor, Title: "two PINGs on the same client", Needs: lock.Redis, Excludes: lock.Nobody,
	open: func(t tools) (contender, error) {
		ping := func(ctx context.Context) error { return t.Redis.Ping(ctx).Err() }
		return contender{
			take:  func(ctx context.Context, _ string) (release, error) { return ping, ping(ctx) },
			close: func() error { return nil },
		}, nil
	},
}

// Contestants is everything that can be measured beside the floor: the locks of
// the registry, and the peers.
func Contestants() []Contestant {
	var all []Contestant
	for _, s := range lock.Strategies {
		if s.Excludes != lock.Nobody {
			all = append(all, ours(s))
		}
	}
	return append(all, peers...)
}

// ErrUnknown says that there is no contestant of that name.
var ErrUnknown = errors.New("lockbench: no such contestant")

// Find looks a contestant up by name. It finds every strategy, also those that
// Contestants leaves out because they hold nothing.
func Find(name string) (Contestant, error) {
	for _, c := range append(slices.Clone(peers), floor) {
		if c.Name == name {
			return c, nil
		}
	}
	s, err := lock.Find(name)
	if err != nil {
		return Contestant{}, fmt.Errorf("%w: %q; there are %s", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	return ours(s), nil
}

// Names lists the names of Contestants.
func Names() []string {
	var names []string
	for _, c := range Contestants() {
		names = append(names, c.Name)
	}
	return names
}

// ours is a strategy as a contestant. One that holds nothing is counted as if
// it did: so it can be seen that the overlaps of holders are.
func ours(s lock.Strategy) Contestant {
	excludes := s.Excludes
	if excludes == lock.Nobody {
		excludes = lock.Global
	}
	return Contestant{
		Name: s.Name, Title: s.Title, Needs: s.Needs, Excludes: excludes,
		open: func(t tools) (contender, error) {
			locker, err := s.New(t.Env)
			if err != nil {
				return contender{}, err
			}
			return contender{take: takeFrom(locker), close: locker.Close}, nil
		},
	}
}

func takeFrom(l lock.Locker) takeFunc {
	return func(ctx context.Context, key string) (release, error) {
		lease, err := l.Acquire(ctx, key)
		if err != nil {
			return nil, err
		}
		return lease.Release, nil
	}
}
