package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"grablab/internal/grab/lock"
)

// setnxVariants lists setnx and its variants. Each one fixes a mistake of the one before it.
var setnxVariants = []string{
	"setnx-nottl", "setnx-expire", "setnx-del", "setnx-getdel", "setnx-driverid",
	"setnx-check", "setnx-watch", "setnx-getset", "setnx", "setnx-fenced",
}

// TestHolderDies kills A while it holds the lock (F3). B must get the lock once the lease has expired,
// unless the key has no expiry.
func TestHolderDies(t *testing.T) {
	for _, strategy := range setnxVariants {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a, b := s.actor(strategy), s.actor(strategy)
				a.lock()
				a.diesBefore(1)
				if b.tries() {
					t.Fatal("B has A's valid lock")
				}
				time.Sleep(1000 * simulatedTTL)
				if got, want := b.tries(), strategy != "setnx-nottl"; got != want {
					t.Errorf("B gets the lock: %v, want %v", got, want)
				}
			})
		})
	}
}

// TestHolderDiesHalfway kills A before each command of its acquire in turn (F4). B must still get the
// lock after the TTL, except with setnx-expire if A dies before its EXPIRE.
func TestHolderDiesHalfway(t *testing.T) {
	stuck := map[string]int{"setnx-expire": 2}
	for _, strategy := range setnxVariants[1:] {
		t.Run(strategy, func(t *testing.T) {
			commands := commandsOf(t, strategy, func(a *actor, do func(func()) int) int {
				return do(func() { a.lock() })
			})
			for n := 1; n <= commands; n++ {
				simulate(t, func(s *simulation) {
					a, b := s.actor(strategy), s.actor(strategy)
					a.diesBefore(n)
					if _, err := a.Acquire(s.Context(), theKey); !errors.Is(err, errDead) {
						t.Fatalf("A does not die at command %d: %v", n, err)
					}
					time.Sleep(1000 * simulatedTTL)
					if got, want := b.tries(), stuck[strategy] != n; got != want {
						t.Errorf("A died before command %d of %d, B gets the lock: %v, want %v", n, commands, got, want)
					}
				})
			}
		})
	}
}

// commandsOf runs count in a separate simulation and returns its result, the number of commands of an
// operation. It ends the test if no command was sent.
func commandsOf(t *testing.T, strategy string, count func(a *actor, do func(func()) int) int) (n int) {
	simulate(t, func(s *simulation) {
		a := s.actor(strategy)
		n = count(a, a.sent)
	})
	if n == 0 {
		t.Fatal("no command was sent")
	}
	return n
}

// TestReleaseFreesTheNextHolder makes A's lease expire, and B lock, before each command of A's release
// in turn (F5, F6, F35). A correct release does not delete B's lock, so C cannot get it.
func TestReleaseFreesTheNextHolder(t *testing.T) {
	frees := map[string]map[int]bool{
		"setnx-expire": {1: true}, // failure mode F5
		"setnx-del":    {1: true}, // failure mode F5
		"setnx-getdel": {2: true}, // failure mode F6
		"setnx-getset": {1: true}, // failure mode F35; WATCH detects any later change
	}
	for _, strategy := range setnxVariants[1:] {
		t.Run(strategy, func(t *testing.T) {
			commands := commandsOf(t, strategy, func(a *actor, do func(func()) int) int {
				lease := a.lock()
				return do(func() { a.s.release(lease) })
			})
			for n := 1; n <= commands; n++ {
				simulate(t, func(s *simulation) {
					a, b, c := s.actor(strategy), s.actor(strategy), s.actor(strategy)
					lease := a.lock()
					a.before(n, func() {
						time.Sleep(simulatedTTL + time.Millisecond)
						b.lock()
					})
					s.release(lease)
					if got, want := c.tries(), frees[strategy][n]; got != want {
						t.Errorf("B locks before command %d of %d of A's release, C gets in: %v, want %v", n, commands, got, want)
					}
				})
			}
		})
	}
}

// TestReleaseOfTheSameDriver checks two attempts by the same driver. The first one expires before the
// second one locks (F36). The first attempt's release must not free the second attempt's lock.
func TestReleaseOfTheSameDriver(t *testing.T) {
	for strategy, frees := range map[string]bool{"setnx-driverid": true, "setnx-check": false, "setnx": false} {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				driver := func(id int64) func(context.Context) context.Context {
					return func(ctx context.Context) context.Context { return lock.WithDriver(ctx, id) }
				}
				first, second, c := s.actor(strategy), s.actor(strategy), s.actor(strategy)
				lease := first.lock(driver(42))
				time.Sleep(simulatedTTL + time.Millisecond)
				again := second.lock(driver(42))
				if lease.Token() == again.Token() {
					t.Errorf("two attempts have the token %q", lease.Token())
				}
				s.release(lease)
				if got := c.tries(); got != frees {
					t.Errorf("C gets the lock alongside the second attempt: %v, want %v", got, frees)
				}
			})
		})
	}
}

// TestLateGrant delays the last reply of A's acquire for longer than the TTL (F12). If a strategy
// accepts the late grant, A and B both have the lock. A correct strategy rejects it and cleans up.
func TestLateGrant(t *testing.T) {
	type gets struct{ a, b bool }
	both, onlyA, onlyB := gets{true, true}, gets{true, false}, gets{false, true}
	want := map[string]gets{
		"setnx-nottl":  onlyA, // never late, because the key does not expire
		"setnx-expire": both, "setnx-del": both, "setnx-getdel": both, "setnx-driverid": both, "setnx-check": both, "setnx-getset": both,
		"setnx-watch": onlyB, "setnx": onlyB, "setnx-fenced": onlyB,
	}
	for _, strategy := range setnxVariants {
		t.Run(strategy, func(t *testing.T) {
			last := commandsOf(t, strategy, func(a *actor, do func(func()) int) int {
				return do(func() { a.lock() })
			})
			simulate(t, func(s *simulation) {
				a, b := s.actor(strategy), s.actor(strategy)
				a.after(last, func() error { time.Sleep(simulatedTTL + time.Millisecond); return nil })
				if got := (gets{a.tries(), b.tries()}); got != want[strategy] {
					t.Errorf("A and B get the lock: %v, want %v", got, want[strategy])
				}
			})
		})
	}
}

// TestCheck checks that Check returns ErrLost if the lease has expired or another client has the lock,
// and the cause if Redis is unreachable.
func TestCheck(t *testing.T) {
	simulate(t, func(s *simulation) {
		a, b := s.actor("setnx-check"), s.actor("setnx-check")
		lease := a.lock()
		check := func() error { return lease.(lock.Checker).Check(s.Context()) }
		if err := check(); err != nil {
			t.Errorf("the lock is valid: %v", err)
		}
		time.Sleep(simulatedTTL + time.Millisecond)
		if err := check(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the lease has expired: %v, want ErrLost", err)
		}
		b.lock()
		if err := check(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("another client has the lock: %v, want ErrLost", err)
		}
		a.diesBefore(1)
		if err := check(); err == nil || errors.Is(err, lock.ErrLost) {
			t.Errorf("Redis is unreachable: %v, want the cause", err)
		}
	})
}

// TestClientClocks checks what happens if a client's clock is wrong (F9). With setnx-getset, a
// client whose clock is ahead takes a valid lock, and a client whose clock is behind loses its own
// too early. With setnx, only the clock of Redis counts.
func TestClientClocks(t *testing.T) {
	skew := func(by time.Duration) func(*lock.Env) {
		return func(e *lock.Env) { e.Now = func() time.Time { return time.Now().Add(by) } }
	}
	for strategy, broken := range map[string]bool{"setnx-getset": true, "setnx": false} {
		for _, tt := range []struct {
			name string
			a, b time.Duration
		}{
			{"B ahead", 0, simulatedTTL},
			{"A behind", -simulatedTTL, 0},
		} {
			t.Run(strategy+", "+tt.name, func(t *testing.T) {
				simulate(t, func(s *simulation) {
					a, b := s.actor(strategy, skew(tt.a)), s.actor(strategy, skew(tt.b))
					a.lock()
					if got := b.tries(); got != broken {
						t.Errorf("B takes A's valid lock: %v, want %v", got, broken)
					}
				})
			})
		}
	}
}

// TestLoserOverwritesTheTimestamp makes B and C race to take over A's expired lock (F10). It checks that C,
// which loses the race, overwrites B's timestamp anyway.
func TestLoserOverwritesTheTimestamp(t *testing.T) {
	simulate(t, func(s *simulation) {
		a, b, c := s.actor("setnx-getset"), s.actor("setnx-getset"), s.actor("setnx-getset")
		a.lock()
		time.Sleep(simulatedTTL)
		var set, moved string
		c.before(3, func() { // the third command of C is its GETSET
			time.Sleep(time.Millisecond)
			b.lock()
			set, _ = s.nodes[0].Get(theKey)
		})
		ctx := lock.TryOnce(s.Context())
		if _, err := c.Acquire(ctx, theKey); !errors.Is(err, lock.ErrBusy) {
			t.Fatalf("C: %v, want ErrBusy", err)
		}
		moved, _ = s.nodes[0].Get(theKey)
		if set == "" || moved == set {
			t.Errorf("B's timestamp was %q and is %q, want a change", set, moved)
		}
	})
}

// TestGetSetAcceptsNil checks both cases in which setnx-getset gets a nil reply, because the lock was
// released after the SETNX or after the GET. The client must get the lock in both cases.
func TestGetSetAcceptsNil(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   int  // the lock is released before this command
		late bool // whether the timestamp has passed by then
	}{
		{"GET", 2, false},
		{"GETSET", 3, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a, b, c := s.actor("setnx-getset"), s.actor("setnx-getset"), s.actor("setnx-getset")
				a.lock()
				if tt.late {
					time.Sleep(simulatedTTL)
				}
				b.before(tt.at, func() { s.forget(0) })
				if !b.tries() {
					t.Fatal("B does not get the free lock")
				}
				if c.tries() {
					t.Error("C gets the lock too")
				}
			})
		})
	}
}

// TestGetSetKeepsAnEqualTimestamp checks two clients with the same timestamp. If a client gets no reply, its
// cleanup must not delete the other client's lock, although both timestamps are equal.
func TestGetSetKeepsAnEqualTimestamp(t *testing.T) {
	simulate(t, func(s *simulation) {
		a, b, c := s.actor("setnx-getset"), s.actor("setnx-getset"), s.actor("setnx-getset")
		a.lock() // A and B lock in the same millisecond
		b.after(1, func() error { return errLostReply })
		if _, err := b.Acquire(s.Context(), theKey); !errors.Is(err, errLostReply) {
			t.Fatalf("B: %v, want its lost reply", err)
		}
		if c.tries() {
			t.Error("C has A's valid lock")
		}
	})
}
