package lock_test

import (
	"errors"
	"testing"
	"time"

	"grablab/internal/grab/lock"

	"github.com/redis/go-redis/v9"
)

// TestOneNodeTwice clears the node that holds two of the three locks (F20). That node then gives B
// a majority alongside A. Three separate nodes survive the loss, and so does the same mistake with
// SET NX.
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
					t.Error("A knows of the loss immediately, which is impossible")
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

// TestOneNodeTwiceCostsAvailability shows the price of the mistake. With SET NX, the second request
// to the doubled node fails, so the lock needs both nodes and cannot lose one. With re-entrant
// locks, the lock can lose the other node, because the doubled node alone is a majority.
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

// TestMiswiredIsRenewed checks that the miswired lock is renewed, and that its holder learns of the
// loss when the doubled node loses its data.
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
