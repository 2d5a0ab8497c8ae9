package lock_test

import (
	"testing"
	"time"

	"grablab/internal/grab/lock"
)

// TestFencesGrow checks that tokens grow with every acquisition, no matter how the previous lease
// ended. The counter outlives the lease, but is deleted once it has not been used for a long time.
func TestFencesGrow(t *testing.T) {
	for _, strategy := range []string{"setnx-fenced", "setnx-fence-write", "watchdog-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a, b := s.actor(strategy), s.actor(strategy)
				last := uint64(0)
				grows := func(lease lock.Lease) {
					t.Helper()
					if lease.Fence() <= last {
						t.Errorf("token %d after %d", lease.Fence(), last)
					}
					last = lease.Fence()
				}
				for range 3 {
					lease := a.lock()
					grows(lease)
					s.release(lease)
				}
				grows(b.lock())
				if a.tries() {
					t.Fatal("A has B's valid lock")
				}
				b.diesBefore(1)
				time.Sleep(simulatedTTL + time.Millisecond) // B's renewals fail, or it has none
				lease := a.lock()
				grows(lease)
				s.release(lease)
				time.Sleep(time.Hour)
				lease = a.lock()
				grows(lease)
				s.release(lease)

				time.Sleep(48 * time.Hour)
				if keys := s.nodes[0].Keys(); len(keys) != 0 {
					t.Errorf("keys are left after two days: %v", keys)
				}
			})
		})
	}
}

// TestRaise checks that Raise restores a lost counter, and never lowers one.
func TestRaise(t *testing.T) {
	for _, strategy := range []string{"setnx-fenced", "setnx-fence-write", "watchdog-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a := s.actor(strategy)
				raiser := a.Locker.(lock.FenceRaiser)
				for _, tt := range []struct{ to, next uint64 }{{41, 42}, {7, 43}, {43, 44}, {1 << 40, 1<<40 + 1}} {
					if err := raiser.RaiseFence(s.Context(), theKey, tt.to); err != nil {
						t.Fatal(err)
					}
					lease := a.lock()
					if got := lease.Fence(); got != tt.next {
						t.Errorf("after a raise to %d, the next token is %d, want %d", tt.to, got, tt.next)
					}
					s.release(lease)
				}
			})
		})
	}
}
