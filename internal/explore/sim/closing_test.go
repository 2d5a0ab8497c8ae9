package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
)

// mistakeOf returns the mistake that a strategy shows when the simulation first takes its lock. At the end, it
// calls finish.
func mistakeOf(t *testing.T, s lock.Strategy, finish func()) string {
	t.Helper()
	return clusterOf(t, s, "", finish).mistake
}

// clusterOf returns a new cluster for a strategy, with a mistake that is already known. At the end, it calls finish.
func clusterOf(t *testing.T, s lock.Strategy, known string, finish func()) *Cluster {
	t.Helper()
	bubble := func(f func()) {
		synctest.Test(t, func(*testing.T) {
			f()
			finish()
		})
	}
	c, err := New(bubble, Setting{
		Strategy: s, Guard: s.Guard, OnLost: grab.Abort, TTL: 3 * time.Second, Nodes: 3, Mistake: known,
		Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestEveryLockCloses checks that no lock shows a mistake when it is closed while a client holds it or waits
// for it.
func TestEveryLockCloses(t *testing.T) {
	for _, s := range slices.Concat(lock.Strategies, lock.Peers) {
		if s.Unexplorable != "" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			if got := mistakeOf(t, s, func() {}); got != "" {
				t.Error(got)
			}
		})
	}
}

// A wrongCloser is a locker whose Close has a mistake, or whose acquire ends in the wrong way after Close.
type wrongCloser struct {
	lock.Locker
	wrongClose
	env  lock.Env
	key  string // the key of the last acquire
	held lock.Lease
	lost chan struct{} // the channel Lost of a lease, if ownLost is true
}

// A wrongClose contains the parts of a locker that differ from a right one.
type wrongClose struct {
	close   func(w *wrongCloser)
	await   func() error // if not nil, the waiter's acquire calls only this
	ownLost bool         // whether a lease does not learn from the lock that it is lost
}

func (w *wrongCloser) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	w.key = key
	if w.await != nil && w.env.Node == "closing-waiter" {
		return nil, w.await()
	}
	l, err := w.Locker.Acquire(ctx, key)
	if err != nil {
		return l, err
	}
	w.held = l
	if w.ownLost {
		l = ownLost{l, w.lost}
	}
	return l, nil
}

func (w *wrongCloser) Close() error {
	if w.close != nil {
		w.close(w)
		return nil
	}
	return w.Locker.Close()
}

// ownLost is a lease with a channel Lost of its own.
type ownLost struct {
	lock.Lease
	lost chan struct{}
}

func (l ownLost) Lost() <-chan struct{} { return l.lost }

// TestWrongClose checks that the simulation notices what is wrong with a lock that closes in the wrong way.
func TestWrongClose(t *testing.T) {
	for _, c := range []struct {
		name, strategy, want string
		wrongClose
	}{
		{"releases the lease", "watchdog", "the servers no longer store the lease", wrongClose{close: func(w *wrongCloser) {
			if w.held != nil {
				_ = w.held.Release(context.Background())
			}
			_ = w.Locker.Close()
		}}},
		{"goes on renewing", "watchdog", "it sent another request", wrongClose{close: func(w *wrongCloser) {
			if w.held == nil {
				_ = w.Locker.Close()
			}
		}}},
		{"waits for too long", "handoff", "Close took 2s", wrongClose{close: func(w *wrongCloser) {
			_ = w.Locker.Close()
			time.Sleep(2 * time.Second)
		}}},
		{"forgets a waiter", "watchdog", "the waiter still waits after its wait time", wrongClose{await: func() error {
			time.Sleep(time.Minute)
			return lock.ErrBusy
		}}},
		{"lets a waiter in", "watchdog", "the waiter got the lock although another client held it", wrongClose{await: func() error { return nil }}},
		{"leaves a key behind", "watchdog", "the servers still store waiter", wrongClose{close: func(w *wrongCloser) {
			_ = w.Locker.Close()
			if w.held == nil {
				w.env.Redis.Set(context.Background(), "waiter", 1, 0)
			}
		}}},
		{"takes the key", "watchdog", "the lock cannot be taken after a waiter's lock was closed", wrongClose{close: func(w *wrongCloser) {
			_ = w.Locker.Close()
			if w.held == nil {
				w.env.Redis.Set(context.Background(), w.key, "waiter", 0)
			}
		}}},
		{"goes on listening", "watchdog", "a server still notifies the waiter", wrongClose{close: func(w *wrongCloser) {
			_ = w.Locker.Close()
			if w.held == nil {
				_, _ = w.env.Redis.Subscribe(context.Background(), w.key).Receive(context.Background())
			}
		}}},
		{"reports a loss too early", "watchdog", "the holder was told that it had lost its lease", wrongClose{ownLost: true, close: func(w *wrongCloser) {
			_ = w.Locker.Close()
			if !lock.IsClosed(w.lost) {
				close(w.lost)
			}
		}}},
		{"reports no loss", "watchdog", "the lease has expired, but the holder was not told", wrongClose{ownLost: true}},
		{"makes the lease endless", "watchdog", "the lease does not expire", wrongClose{close: func(w *wrongCloser) {
			_ = w.Locker.Close()
			if w.held != nil {
				w.env.Redis.Persist(context.Background(), w.key)
			}
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := lock.Find(c.strategy)
			if err != nil {
				t.Fatal(err)
			}
			var lockers []lock.Locker
			right := s.New
			s.New = func(env lock.Env) (lock.Locker, error) {
				l, err := right(env)
				if err != nil || !strings.HasPrefix(env.Node, "closing-") {
					return l, err
				}
				lockers = append(lockers, l)
				return &wrongCloser{Locker: l, wrongClose: c.wrongClose, env: env, lost: make(chan struct{})}, nil
			}
			finish := func() {
				for _, l := range lockers {
					_ = l.Close()
				}
				time.Sleep(time.Minute) // until even a forgotten waiter ends
			}
			if got := mistakeOf(t, s, finish); !strings.Contains(got, c.want) {
				t.Errorf("mistake %q, want %q", got, c.want)
			}
		})
	}
}

// A loser is a locker whose releases always report a loss.
type loser struct{ lock.Locker }

func (l loser) Acquire(ctx context.Context, key string) (lock.Lease, error) {
	lease, err := l.Locker.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lostLease{lease}, nil
}

type lostLease struct{ lock.Lease }

func (l lostLease) Release(ctx context.Context) error {
	return errors.Join(l.Lease.Release(ctx), lock.ErrLost)
}

// TestWrongRelease checks that a release that fails without any fault is a mistake of the lock. It must not end
// the search with an error. The simulation must still find out how the lock behaves, so that the other checks
// stay strict.
func TestWrongRelease(t *testing.T) {
	s, err := lock.Find("watchdog")
	if err != nil {
		t.Fatal(err)
	}
	right := s.New
	s.New = func(env lock.Env) (lock.Locker, error) {
		l, err := right(env)
		return loser{l}, err
	}
	want := "watchdog does not release its lock, although its lease is valid"
	c := clusterOf(t, s, "the guard is wrong", func() {})
	if !strings.HasPrefix(c.mistake, want) {
		t.Errorf("mistake %q, want %q", c.mistake, want)
	}
	if got, want := c.KnownMistake(), "the guard is wrong; "+c.mistake; got != want {
		t.Errorf("known mistake %q, want %q", got, want)
	}
	if !c.renews || !c.notifiesLoss || !c.showsToken || c.residue != nil {
		t.Errorf("renews %v, notifies %v, shows its token %v, residue %q", c.renews, c.notifiesLoss, c.showsToken, c.residue)
	}
}
