package lock_test

import (
	"errors"
	"testing"
	"time"

	"grablab/internal/grab/lock"

	"github.com/redis/go-redis/v9"
)

// F20: the node that two of the three locks are on forgets A, and is a majority
// for B. Three locks on three nodes bear it; so does the same slip with SET NX.
func TestOneNodeTwice(t *testing.T) {
	for _, tt := range []struct {
		name, strategy string
		wire           func(*lock.Env)
		both           bool // A and B hold
	}{
		{"re-entrant, miswired", "redlock-miswired", func(*lock.Env) {}, true},
		{"SET NX, miswired", "redlock", miswire, false},
		{"SET NX", "redlock", func(*lock.Env) {}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a, b := s.actor(tt.strategy, tt.wire), s.actor(tt.strategy, tt.wire)
				lease := a.lock()
				if b.tries() {
					t.Fatal("B has the lock that A has on every node")
				}
				s.forget(0)
				both := b.tries()
				select {
				case <-lease.Lost():
					t.Error("A knows at once, which it cannot")
				default:
				}
				if both != tt.both {
					t.Errorf("B gets it beside A: %v, want %v", both, tt.both)
				}
			})
		})
	}
}

func miswire(e *lock.Env) {
	e.Redlock = []redis.UniversalClient{e.Redlock[0], e.Redlock[0], e.Redlock[1]}
}

// With SET NX the second try on the doubled node fails, so that the two nodes
// are two locks of three, and there is none to spare. Re-entrant, the second
// node can go, for it never mattered.
func TestOneNodeTwiceCostsAvailability(t *testing.T) {
	for _, tt := range []struct {
		name, strategy string
		wire           func(*lock.Env)
		available      bool
	}{
		{"re-entrant, miswired", "redlock-miswired", func(*lock.Env) {}, true},
		{"SET NX, miswired", "redlock", miswire, false},
		{"SET NX", "redlock", func(*lock.Env) {}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a := s.actor(tt.strategy, tt.wire)
				s.nodes[1].SetError("this node is down")
				lease, err := a.Acquire(s.Context(), theKey)
				if got := err == nil; got != tt.available {
					t.Fatalf("available: %v (%v), want %v", got, err, tt.available)
				}
				if err == nil {
					s.release(lease)
				}
			})
		})
	}
}

// The miswired lock is renewed, and tells its holder when the doubled node has
// forgotten it.
func TestMiswiredIsRenewed(t *testing.T) {
	simulate(t, func(s *simulation) {
		a, b := s.actor("redlock-miswired"), s.actor("redlock-miswired")
		lease := a.lock()
		time.Sleep(5 * simulatedTTL)
		if b.tries() {
			t.Error("B has the lock that A renews")
		}
		s.forget(1)
		time.Sleep(simulatedTTL)
		select {
		case <-lease.Lost():
			t.Error("lost with the node that does not count")
		default:
		}
		s.forget(0)
		time.Sleep(simulatedTTL / 2)
		select {
		case <-lease.Lost():
		default:
			t.Error("the doubled node has forgotten it, and A was not told")
		}
		if err := lease.Release(s.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release: %v, want ErrLost", err)
		}
	})
}
