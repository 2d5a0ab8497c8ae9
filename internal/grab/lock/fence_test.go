package lock_test

import (
	"testing"
	"time"

	"grablab/internal/grab/lock"
)

// Tokens grow with every acquisition, whatever ends the lease, and outlive it;
// the counter does not outlive its use for ever.
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
					t.Fatal("A has B's live lock")
				}
				b.diesBefore(1)
				time.Sleep(simulatedTTL + time.Millisecond) // B's renewals fail, or there are none
				lease := a.lock()
				grows(lease)
				s.release(lease)
				time.Sleep(time.Hour)
				lease = a.lock()
				grows(lease)
				s.release(lease)

				time.Sleep(48 * time.Hour)
				if keys := s.nodes[0].Keys(); len(keys) != 0 {
					t.Errorf("kept for days: %v", keys)
				}
			})
		})
	}
}

// A counter that was forgotten is raised, and never lowered.
func TestRaise(t *testing.T) {
	for _, strategy := range []string{"setnx-fenced", "setnx-fence-write", "watchdog-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a := s.actor(strategy)
				raiser := a.Locker.(lock.FenceRaiser)
				for _, tt := range []struct{ to, next uint64 }{{41, 42}, {7, 43}, {43, 44}, {1 << 40, 1<<40 + 1}} {
					if err := raiser.Raise(s.Context(), theKey, tt.to); err != nil {
						t.Fatal(err)
					}
					lease := a.lock()
					if got := lease.Fence(); got != tt.next {
						t.Errorf("raised to %d, the next token is %d, want %d", tt.to, got, tt.next)
					}
					s.release(lease)
				}
			})
		})
	}
}
