package lock_test

import (
	"errors"
	"testing"
	"time"

	"grablab/internal/grab/lock"

	"github.com/redis/go-redis/v9"
)

// TestOneNodeTwice configures one server as two of three nodes (F20). While A holds the lock, that
// server loses its data. With re-entrant locks, B then gets a majority, so both hold the lock. With
// three separate nodes, or with SET NX, B must not get the lock.
func TestOneNodeTwice(t *testing.T) {
	for _, tt := range []struct {
		name, strategy string
		wire           func(*lock.Env)
		both           bool // whether A and B both hold the lock
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
					t.Error("A knows of the loss immediately, although it has not sent a renewal yet")
				default:
				}
				if both != tt.both {
					t.Errorf("B gets the lock alongside A: %v, want %v", both, tt.both)
				}
			})
		})
	}
}

func miswire(e *lock.Env) {
	e.Redlock = []redis.UniversalClient{e.Redlock[0], e.Redlock[0], e.Redlock[1]}
}

// TestOneNodeTwiceCostsAvailability checks whether a lock with a doubled node is available while the
// other node is down. With SET NX, the second request to the doubled node fails, so the lock needs
// both nodes. With re-entrant locks, the doubled node alone is a majority.
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

// TestMiswiredIsRenewed checks that the holder of a miswired lock renews it. The holder must learn
// that it has lost the lock if the doubled node loses its data, but keep it if the other node does.
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
			t.Error("the lease is lost although the doubled node is up")
		default:
		}
		s.forget(0)
		time.Sleep(simulatedTTL / 2)
		select {
		case <-lease.Lost():
		default:
			t.Error("the doubled node lost its data, but A did not notice")
		}
		if err := lease.Release(s.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release: %v, want ErrLost", err)
		}
	})
}
