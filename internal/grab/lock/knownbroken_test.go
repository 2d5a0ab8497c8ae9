package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"grablab/internal/grab/lock"
)

var errLostReply = errors.New("the reply is lost")

// F7: C2 and C3 both find that A's stamp has passed.
func TestBlindTakeover(t *testing.T) {
	compareVariants(t, "getset-blind-takeover", "setnx-getset", func(s *simulation, strategy string) bool {
		a, c2, c3 := s.actor(strategy), s.actor(strategy), s.actor(strategy)
		a.lock()
		time.Sleep(simulatedTTL)
		c3.before(3, func() { c2.lock() })
		return c3.tries() // and C2 has it
	})
}

// F8: the lock goes between B's GET and its GETSET.
func TestGetSetNil(t *testing.T) {
	compareVariants(t, "getset-nil-busy", "setnx-getset", func(s *simulation, strategy string) bool {
		a, b, c := s.actor(strategy), s.actor(strategy), s.actor(strategy)
		a.lock()
		time.Sleep(simulatedTTL)
		b.before(3, func() { s.forget(0) })
		return !b.tries() && !c.tries() // no client has it, and none gets it
	})
}

// F9: of a lease of one and a half seconds, one is left in whole seconds.
func TestWholeSeconds(t *testing.T) {
	compareVariants(t, "setnx-getset-seconds", "setnx-getset", func(s *simulation, strategy string) bool {
		ttl := func(e *lock.Env) { e.TTL = 3 * time.Second / 2 }
		a, b := s.actor(strategy, ttl), s.actor(strategy, ttl)
		a.lock()
		time.Sleep(6 * time.Second / 5)
		return b.tries()
	})
}

// F14: A's request is on its way when A's client hangs up, and arrives after the
// clean-up.
func TestStrayRenewal(t *testing.T) {
	compareVariants(t, "watchdog-stray-renewal", "watchdog", func(s *simulation, strategy string) bool {
		a, b := s.actor(strategy), s.actor(strategy)
		ctx, hangUp := context.WithCancel(s.Context())
		var arrive func() error
		a.at(1, func(ctx context.Context, send func(context.Context) error) error {
			arrive = func() error { return send(context.WithoutCancel(ctx)) }
			hangUp()
			return ctx.Err()
		})
		if _, err := a.Acquire(ctx, theKey); !errors.Is(err, context.Canceled) {
			t.Fatalf("A: %v, want its cancellation", err)
		}
		if err := arrive(); err != nil || b.tries() {
			t.Fatalf("A's request did not arrive: %v", err)
		}
		time.Sleep(10 * simulatedTTL)
		return !b.tries()
	})
}

// F16: A releases, and says so, between B's look at the lock and B's subscription.
func TestLateSubscription(t *testing.T) {
	compareVariants(t, "watchdog-late-subscribe", "watchdog", func(s *simulation, strategy string) bool {
		a := s.actor(strategy)
		b := s.actor(strategy, func(e *lock.Env) { e.Wait = time.Minute })
		lease := a.lock()
		b.after(1, func() error { s.release(lease); return nil })
		began := time.Now()
		b.lock()
		return time.Since(began) >= simulatedTTL
	})
}

// F22: A's client hangs up while the lock is being granted.
func TestCancelledCleanup(t *testing.T) {
	compareVariants(t, "setnx-cancelled-cleanup", "setnx", func(s *simulation, strategy string) bool {
		a, b := s.actor(strategy), s.actor(strategy)
		ctx, hangUp := context.WithCancel(s.Context())
		a.after(1, func() error { hangUp(); return nil })
		if _, err := a.Acquire(ctx, theKey); !errors.Is(err, context.Canceled) {
			t.Fatalf("A: %v, want its cancellation", err)
		}
		return !b.tries()
	})
}

// F24: A's keys go; B locks, works, unlocks; A extends.
func TestSilentReacquire(t *testing.T) {
	compareVariants(t, "redlock-set-on-extend", "redlock", func(s *simulation, strategy string) bool {
		a, b, c := s.actor(strategy), s.actor(strategy), s.actor(strategy)
		lease := a.lock()
		s.forget(0, 1, 2)
		s.release(b.lock())
		time.Sleep(simulatedTTL / 2)
		select {
		case <-lease.Lost():
			return false
		default:
			return !c.tries()
		}
	})
}

// F25: A's SET is applied, and its reply lost.
func TestBlindRetry(t *testing.T) {
	compareVariants(t, "setnx-blind-retry", "setnx", func(s *simulation, strategy string) bool {
		a, b := s.actor(strategy), s.actor(strategy)
		a.after(1, func() error { return errLostReply })
		_, err := a.Acquire(s.Context(), theKey)
		if err == nil {
			t.Fatal("A has the lock")
		}
		return errors.Is(err, lock.ErrBusy) && !b.tries() // no client has it, and none gets it
	})
}

// F26: after A's lock, and before whatever A still asks, its lease runs out and B
// locks. Two holders with one token, and the fence cannot tell them apart.
func TestLateFence(t *testing.T) {
	compareVariants(t, "setnx-late-fence", "setnx-fenced", func(s *simulation, strategy string) bool {
		a, b := s.actor(strategy), s.actor(strategy)
		var second lock.Lease
		runOut := func() {
			time.Sleep(simulatedTTL + time.Millisecond)
			second = b.lock()
		}
		a.before(2, runOut)
		first := a.lock()
		if second == nil { // A asked but once
			runOut()
		}
		return first.Fence() >= second.Fence()
	})
}

// compareVariants plays a schedule with a known-broken variant, whose mistake must show, and with the
// correct lock, where it must not.
func compareVariants(t *testing.T, wrong, correct string, shows func(s *simulation, strategy string) bool) {
	for strategy, want := range map[string]bool{wrong: true, correct: false} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				if got := shows(s, strategy); got != want {
					t.Errorf("the mistake shows: %v, want %v", got, want)
				}
			})
		})
	}
}

// A known-broken variant is found by name, in no list, and says how it fails.
func TestKnownBroken(t *testing.T) {
	broken := map[string]bool{}
	for _, st := range lock.KnownBroken {
		for _, name := range lock.Names() {
			if name == st.Name {
				t.Errorf("%s is listed", name)
			}
		}
		if got, err := lock.Find(st.Name); err != nil || got.Title != st.Title {
			t.Errorf("Find(%q) = %q, %v", st.Name, got.Title, err)
		}
		for _, id := range st.Breaks {
			broken[id] = true
		}
	}
	for _, id := range []string{"F7", "F8", "F14", "F16", "F22", "F24", "F25", "F26", "F31", "F32"} {
		if !broken[id] {
			t.Errorf("no known-broken variant breaks by %s", id)
		}
	}
}
