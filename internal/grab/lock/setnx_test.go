package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"grablab/internal/grab/lock"
)

// setnxVariants are setnx and its variants, each the cure of the one before it.
var setnxVariants = []string{
	"setnx-nottl", "setnx-expire", "setnx-del", "setnx-getdel", "setnx-driverid",
	"setnx-check", "setnx-watch", "setnx-getset", "setnx", "setnx-fenced",
}

// F3: A takes the lock and dies. After ever so many leases B cannot have it.
func TestHolderDies(t *testing.T) {
	for _, strategy := range setnxVariants {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				a, b := s.actor(strategy), s.actor(strategy)
				a.lock()
				a.diesBefore(1)
				if b.tries() {
					t.Fatal("B has A's live lock")
				}
				time.Sleep(1000 * simulatedTTL)
				if got, want := b.tries(), strategy != "setnx-nottl"; got != want {
					t.Errorf("B gets it: %v, want %v", got, want)
				}
			})
		})
	}
}

// F4: A dies before the nth command of its acquire, for every n.
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
						t.Errorf("dead before command %d of %d, B gets it: %v, want %v", n, commands, got, want)
					}
				})
			}
		})
	}
}

// commandsOf counts commands in a simulation of its own.
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

// F5, F6, F35: before the nth command of A's release its lease runs out and B
// locks. Then C must not get in beside B.
func TestReleaseFreesTheNextHolder(t *testing.T) {
	frees := map[string]map[int]bool{
		"setnx-expire": {1: true}, // F5
		"setnx-del":    {1: true}, // F5
		"setnx-getdel": {2: true}, // F6
		"setnx-getset": {1: true}, // F35; the WATCH sees what comes after it
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

// F36: driver 42's first attempt runs out, the second locks, the first releases.
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
					t.Errorf("two attempts are named %q", lease.Token())
				}
				s.release(lease)
				if got := c.tries(); got != frees {
					t.Errorf("C gets in beside the second attempt: %v, want %v", got, frees)
				}
			})
		})
	}
}

// F12: the last reply of A's acquire takes longer than the lease lives. Who does
// as the article believes it, beside B; the others give back what they may have taken.
func TestLateGrant(t *testing.T) {
	type gets struct{ a, b bool }
	both, onlyA, onlyB := gets{true, true}, gets{true, false}, gets{false, true}
	want := map[string]gets{
		"setnx-nottl":  onlyA, // it is not late, for it has not run out
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
					t.Errorf("A and B get it: %v, want %v", got, want[strategy])
				}
			})
		})
	}
}

// A check finds what has happened before it.
func TestCheck(t *testing.T) {
	simulate(t, func(s *simulation) {
		a, b := s.actor("setnx-check"), s.actor("setnx-check")
		lease := a.lock()
		check := func() error { return lease.(lock.Checker).Check(s.Context()) }
		if err := check(); err != nil {
			t.Errorf("the lock stands: %v", err)
		}
		time.Sleep(simulatedTTL + time.Millisecond)
		if err := check(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("it has run out: %v, want ErrLost", err)
		}
		b.lock()
		if err := check(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("another client has it: %v, want ErrLost", err)
		}
		a.diesBefore(1)
		if err := check(); err == nil || errors.Is(err, lock.ErrLost) {
			t.Errorf("Redis cannot be asked: %v, want what failed", err)
		}
	})
}

// F9: a client whose clock is ahead takes a live lock; one whose clock was behind
// when it stamped loses it early. Where Redis counts, clients' clocks count nothing.
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
						t.Errorf("B takes A's live lock: %v, want %v", got, broken)
					}
				})
			})
		}
	}
}

// F10: B and C race to take over from A. B wins. C loses, but has moved B's stamp.
func TestLoserMovesTheStamp(t *testing.T) {
	simulate(t, func(s *simulation) {
		a, b, c := s.actor("setnx-getset"), s.actor("setnx-getset"), s.actor("setnx-getset")
		a.lock()
		time.Sleep(simulatedTTL)
		var set, moved string
		c.before(3, func() { // its GETSET
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
			t.Errorf("B's stamp was %q and is %q, want another", set, moved)
		}
	})
}

// The article's two questions. GET answers nil: the lock was released since the
// SETNX. GETSET answers nil: it was released since the GET.
func TestGetSetMeetsNil(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   int  // the command before which the lock is released
		late bool // the stamp has passed by then
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
					t.Error("C gets it, too")
				}
			})
		})
	}
}

// Two clients' stamps may be the same. One that got no answer must not take the
// other's lock for its own.
func TestGetSetSparesItsTwin(t *testing.T) {
	simulate(t, func(s *simulation) {
		a, b, c := s.actor("setnx-getset"), s.actor("setnx-getset"), s.actor("setnx-getset")
		a.lock() // in the same ms
		b.after(1, func() error { return errLostReply })
		if _, err := b.Acquire(s.Context(), theKey); !errors.Is(err, errLostReply) {
			t.Fatalf("B: %v, want its lost reply", err)
		}
		if c.tries() {
			t.Error("C has A's live lock")
		}
	})
}
