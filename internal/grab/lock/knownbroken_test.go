package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"grablab/internal/grab/lock"
)

var errLostReply = errors.New("the reply is lost")

// TestBlindTakeover makes C2 and C3 both find that A's timestamp has passed (F7). With a blind
// takeover, C3 then gets the lock although C2 already has it.
func TestBlindTakeover(t *testing.T) {
	compareVariants(t, "getset-blind-takeover", "setnx-getset", func(s *simulation, strategy string) bool {
		a, c2, c3 := s.actor(strategy), s.actor(strategy), s.actor(strategy)
		a.lock()
		time.Sleep(simulatedTTL)
		c3.before(3, func() { c2.lock() })
		return c3.tries() // although C2 has the lock
	})
}

// TestGetSetNil deletes the lock between B's GET and its GETSET (F8). If B treats the nil reply as
// busy, no client has the lock, but the timestamp that B has set keeps it busy.
func TestGetSetNil(t *testing.T) {
	compareVariants(t, "getset-nil-busy", "setnx-getset", func(s *simulation, strategy string) bool {
		a, b, c := s.actor(strategy), s.actor(strategy), s.actor(strategy)
		a.lock()
		time.Sleep(simulatedTTL)
		b.before(3, func() { s.forget(0) })
		return !b.tries() && !c.tries() // no client has the lock, and none can get it
	})
}

// TestWholeSeconds checks that another client gets the lock too early if the lease's end is rounded
// down to whole seconds (F9). A lease of 1.5 s is still valid after 1.2 s.
func TestWholeSeconds(t *testing.T) {
	compareVariants(t, "setnx-getset-seconds", "setnx-getset", func(s *simulation, strategy string) bool {
		ttl := func(e *lock.Env) { e.TTL = 3 * time.Second / 2 }
		a, b := s.actor(strategy, ttl), s.actor(strategy, ttl)
		a.lock()
		time.Sleep(6 * time.Second / 5)
		return b.tries()
	})
}

// TestStrayRenewal makes A's client disconnect while its request is in flight, so that the request
// arrives only after the cleanup (F14). The broken variant then renews that lock forever.
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

// TestLateSubscription makes A release the lock after B has checked it, but before B subscribes
// (F16). The broken variant misses the message, so B waits for a whole TTL.
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

// TestCancelledCleanup makes A's client disconnect during the grant (F22). The broken variant then
// does not delete the key, so B cannot get the lock.
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

// TestSilentReacquire deletes A's keys. B then locks and unlocks before A extends its lease (F24).
// The broken variant sets the keys again, so A does not learn that it had lost the lock.
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

// TestBlindRetry drops the reply after Redis has executed A's SET (F25). The broken variant retries,
// finds its own key, and reports that another client has the lock.
func TestBlindRetry(t *testing.T) {
	compareVariants(t, "setnx-blind-retry", "setnx", func(s *simulation, strategy string) bool {
		a, b := s.actor(strategy), s.actor(strategy)
		a.after(1, func() error { return errLostReply })
		_, err := a.Acquire(s.Context(), theKey)
		if err == nil {
			t.Fatal("A has the lock")
		}
		return errors.Is(err, lock.ErrBusy) && !b.tries() // no client has the lock, and none can get it
	})
}

// TestLateFence makes A's lease expire, and B lock, before A reads its token (F26). In the broken
// variant, both holders then have the same token, so the fence cannot distinguish them.
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
		if second == nil { // A sent only one command
			runOut()
		}
		return first.Fence() >= second.Fence()
	})
}

// compareVariants runs a schedule with a known-broken variant and with the correct lock. shows
// returns true if the mistake appears. The mistake must appear only with the broken variant.
func compareVariants(t *testing.T, wrong, correct string, shows func(s *simulation, strategy string) bool) {
	for strategy, want := range map[string]bool{wrong: true, correct: false} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				if got := shows(s, strategy); got != want {
					t.Errorf("the mistake appears: %v, want %v", got, want)
				}
			})
		})
	}
}

// TestKnownBroken checks that Find returns each known-broken variant, that no list contains it, and
// that it names its failure modes.
func TestKnownBroken(t *testing.T) {
	broken := map[string]bool{}
	for _, st := range lock.KnownBroken {
		for _, name := range lock.Names() {
			if name == st.Name {
				t.Errorf("%s is in the public list", name)
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
			t.Errorf("no known-broken variant has the failure mode %s", id)
		}
	}
}
