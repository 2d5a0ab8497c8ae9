package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// sessions is a database with a limited number of sessions. A test can make Begin fail or hang.
type sessions struct {
	order.Store
	refuses bool
	hangs   bool          // Begin returns only when its context ends
	few     chan struct{} // contains one value per session in use; nil means that there is no limit
	locked  func() error  // called after a session has got a lock; an error replaces the reply
}

func (s *sessions) Begin(ctx context.Context) (order.Tx, error) {
	if s.refuses {
		return nil, errors.New("refused")
	}
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.few != nil {
		select {
		case s.few <- struct{}{}:
		case <-ctx.Done():
			return nil, order.ErrExhausted
		}
	}
	tx, err := s.Store.Begin(ctx)
	return pinned{tx, s}, err
}

// pinned is a session that a client is using.
type pinned struct {
	order.Tx
	of *sessions
}

func (p pinned) LockRow(ctx context.Context, id int64, wait time.Duration) (bool, error) {
	return p.answer(p.Tx.LockRow(ctx, id, wait))
}

func (p pinned) LockName(ctx context.Context, name string, wait time.Duration) (bool, error) {
	return p.answer(p.Tx.LockName(ctx, name, wait))
}

func (p pinned) answer(ok bool, err error) (bool, error) {
	if ok && p.of.locked != nil {
		if lost := p.of.locked(); lost != nil {
			return false, lost
		}
	}
	return ok, err
}

func (p pinned) Close(ctx context.Context) error {
	if p.of.few != nil {
		defer func() { <-p.of.few }()
	}
	return p.Tx.Close(ctx)
}

func sessionLocker(t *testing.T, strategy string, db order.Store, wait time.Duration) lock.Locker {
	t.Helper()
	st, err := lock.Find(strategy)
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	l, err := st.New(lock.Env{
		Orders: db, TTL: simulatedTTL, Wait: wait, Now: time.Now, Rand: func() float64 { return 0.5 },
		Token: func() string { tokens++; return fmt.Sprint("token", tokens) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// inSessions runs play once for each MySQL lock, with two processes that use the same database. The
// database has one order.
func inSessions(t *testing.T, wait time.Duration, play func(t *testing.T, db *sessions, a, b lock.Locker)) {
	for _, strategy := range []string{"mysql-getlock", "mysql-forupdate"} {
		t.Run(strategy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &sessions{Store: new(order.Mem)}
				if _, err := db.Create(t.Context(), 1, 1); err != nil {
					t.Fatal(err)
				}
				play(t, db, sessionLocker(t, strategy, db, wait), sessionLocker(t, strategy, db, wait))
			})
		})
	}
}

// TestRefusedSession checks the error of an acquire that gets no database session. Afterwards, other
// clients of the same process must still be able to get the lock.
func TestRefusedSession(t *testing.T) {
	inSessions(t, 0, func(t *testing.T, db *sessions, a, _ lock.Locker) {
		db.refuses = true
		if _, err := a.Acquire(t.Context(), "{1}"); err == nil || errors.Is(err, lock.ErrBusy) {
			t.Errorf("without a session: %v, want the cause", err)
		}
		db.refuses, db.hangs = false, true
		if _, err := a.Acquire(t.Context(), "{1}"); kindOf(err) != "error" || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Begin hangs: %v, want an error that does not look like the caller's deadline", err)
		}
		db.hangs = false
		mustRelease(t, mustAcquire(t, t.Context(), a, "{1}"))
	})
}

// TestSessionWaitsNoLonger checks that a client waits exactly as long as it is allowed to, although
// the database accepts only whole seconds.
func TestSessionWaitsNoLonger(t *testing.T) {
	const wait = 2500 * time.Millisecond
	inSessions(t, wait, func(t *testing.T, _ *sessions, a, b lock.Locker) {
		lease, began := mustAcquire(t, t.Context(), a, "{1}"), time.Now()
		if _, err := b.Acquire(t.Context(), "{1}"); !errors.Is(err, lock.ErrBusy) || time.Since(began) != wait {
			t.Errorf("%v after %v, want busy after %v", err, time.Since(began), wait)
		}
		mustRelease(t, lease)
	})
}

// TestSessionTriesOnce checks that a client that does not want to wait gets ErrBusy immediately.
func TestSessionTriesOnce(t *testing.T) {
	inSessions(t, 0, func(t *testing.T, _ *sessions, a, b lock.Locker) {
		lease, began := mustAcquire(t, t.Context(), a, "{1}"), time.Now()
		if _, err := b.Acquire(t.Context(), "{1}"); !errors.Is(err, lock.ErrBusy) || time.Since(began) != 0 {
			t.Errorf("%v after %v, want busy at once", err, time.Since(began))
		}
		mustRelease(t, lease)
	})
}

// TestWaitersOfOneKeyLeaveSessions checks that the clients that wait for one key do not use up the
// database sessions. Clients of other keys must get their lock immediately, and all waiters must get
// the key one after the other.
func TestWaitersOfOneKeyLeaveSessions(t *testing.T) {
	const many, few, work = 50, 3, 100 * time.Millisecond
	inSessions(t, time.Minute, func(t *testing.T, db *sessions, a, b lock.Locker) {
		if _, err := db.Create(t.Context(), few, 1); err != nil {
			t.Fatal(err)
		}
		db.few = make(chan struct{}, few)
		first := mustAcquire(t, t.Context(), a, "{1}")
		var served sync.WaitGroup
		for range many {
			served.Go(func() {
				lease, err := a.Acquire(t.Context(), "{1}")
				if err == nil {
					time.Sleep(work)
					err = lease.Release(t.Context())
				}
				if err != nil {
					t.Errorf("a client that waits for the key with %d waiters: %v", many, err)
				}
			})
		}
		synctest.Wait() // until each of them waits
		for _, other := range []lock.Locker{a, b} {
			began := time.Now()
			for _, key := range []string{"{2}", "{3}"} {
				lease, err := other.Acquire(t.Context(), key)
				if err == nil {
					err = lease.Release(t.Context())
				}
				if err != nil || time.Since(began) > 0 {
					t.Errorf("another key, which is free: %v after %v, want the lock immediately", err, time.Since(began))
				}
			}
		}
		began := time.Now()
		mustRelease(t, first)
		served.Wait()
		if took := time.Since(began); took != many*work {
			t.Errorf("%d waiters took %v in total, want %v", many, took, many*work)
		}
	})
}

// TestSessionLostWhileHeld makes the database end all sessions while a client holds the lock. The
// client's reads and writes must fail, and its release must return ErrLost. Afterwards, this process
// and another one must be able to get the lock.
func TestSessionLostWhileHeld(t *testing.T) {
	inSessions(t, 0, func(t *testing.T, db *sessions, a, b lock.Locker) {
		mem := db.Store.(*order.Mem)
		for range 2 {
			lease := mustAcquire(t, t.Context(), a, "{1}")
			mem.Restart()
			mustRelease(t, mustAcquire(t, t.Context(), b, "{1}"))
			rows := lease.(lock.TxLease).Rows()
			if _, err := rows.Read(t.Context(), 1, 0); err == nil {
				t.Error("a read in a lost session succeeds")
			}
			if err := rows.Claim(t.Context(), order.Claim{Order: 1, Driver: 7, Token: "lost"}, order.Naive); err == nil {
				t.Error("a write in a lost session succeeds")
			}
			for range 2 {
				if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
					t.Errorf("release: %v", err)
				}
			}
			mustRelease(t, mustAcquire(t, t.Context(), a, "{1}"))
			if n := mem.Sessions(); n > 0 {
				t.Errorf("%d sessions are open", n)
			}
		}
	})
}

// TestSessionLostWhileWaiting makes the database end all sessions while a client waits for the lock.
// Its acquire must fail. Another client, which waits in the queue of the same process, must get the
// lock.
func TestSessionLostWhileWaiting(t *testing.T) {
	inSessions(t, time.Minute, func(t *testing.T, db *sessions, a, b lock.Locker) {
		mem := db.Store.(*order.Mem)
		held := mustAcquire(t, t.Context(), a, "{1}")
		failed, got := make(chan error, 1), make(chan lock.Lease, 1)
		go func() {
			_, err := b.Acquire(t.Context(), "{1}")
			failed <- err
		}()
		synctest.Wait()
		go func() { got <- mustAcquire(t, t.Context(), b, "{1}") }()
		time.Sleep(1500 * time.Millisecond)
		mem.Restart()
		if err := <-failed; kindOf(err) != "error" {
			t.Errorf("the acquire returned %v", err)
		}
		mustRelease(t, <-got)
		if err := held.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release: %v", err)
		}
		mustRelease(t, mustAcquire(t, t.Context(), a, "{1}"))
		if n := mem.Sessions(); n > 0 {
			t.Errorf("%d sessions are open", n)
		}
	})
}

// TestFailedAcquireKeepsNoSession checks that a failed acquire closes its session and unlocks the
// process's queue. The database may have granted the lock, but the client does not use it.
func TestFailedAcquireKeepsNoSession(t *testing.T) {
	broken := errors.New("the connection is broken")
	for _, c := range []struct {
		name   string
		locked func(hangUp func()) error
		want   string
	}{
		{"the answer is lost", func(func()) error { return broken }, "error"},
		{"the client hangs up", func(hangUp func()) error { hangUp(); return nil }, "cancelled"},
		{"the client hangs up and the answer is lost", func(hangUp func()) error { hangUp(); return broken }, "cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inSessions(t, 0, func(t *testing.T, db *sessions, a, b lock.Locker) {
				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				db.locked = func() error { return c.locked(hangUp) }
				if _, err := a.Acquire(ctx, "{1}"); kindOf(err) != c.want {
					t.Errorf("the acquire returned %v", err)
				}
				db.locked = nil
				if n := db.Store.(*order.Mem).Sessions(); n > 0 {
					t.Errorf("%d sessions are open", n)
				}
				for _, l := range []lock.Locker{b, a} {
					mustRelease(t, mustAcquire(t, t.Context(), l, "{1}"))
				}
			})
		})
	}
}

// TestNoFreeSession checks how long an acquire waits for a session if all sessions are in use. It must
// wait for half a second, or for as long as it waits for a lock, whichever is longer. It must then
// return ErrBusy.
func TestNoFreeSession(t *testing.T) {
	for _, c := range []struct {
		wait, free, hangUp time.Duration // 0 means that the client does not wait, or that the event never happens
		took               time.Duration
		want               string
	}{
		{took: 500 * time.Millisecond, want: "busy"},
		{free: 400 * time.Millisecond, took: 400 * time.Millisecond, want: "has it"},
		{wait: 3 * time.Second, took: 3 * time.Second, want: "busy"},
		{wait: 3 * time.Second, free: 2 * time.Second, took: 2 * time.Second, want: "has it"},
		{wait: 3 * time.Second, hangUp: time.Second, took: time.Second, want: "cancelled"},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			inSessions(t, c.wait, func(t *testing.T, db *sessions, a, _ lock.Locker) {
				db.few = make(chan struct{}, 1)
				db.few <- struct{}{}
				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				if c.free > 0 {
					time.AfterFunc(c.free, func() { <-db.few })
				}
				if c.hangUp > 0 {
					time.AfterFunc(c.hangUp, hangUp)
				}
				began := time.Now()
				lease, err := a.Acquire(ctx, "{1}")
				if took := time.Since(began); kindOf(err) != c.want || took != c.took {
					t.Errorf("%v after %v, want %s after %v", err, took, c.want, c.took)
				}
				if err == nil {
					mustRelease(t, lease)
				}
			})
		})
	}
}

// TestTurnCountsAsWaiting checks that the time in the local queue of a process counts towards the time
// for which a client waits for the lock.
func TestTurnCountsAsWaiting(t *testing.T) {
	const first, second = 2 * time.Second, 6 * time.Second
	wait := func(t *testing.T, l lock.Locker, key string, d time.Duration) func() {
		began, done := time.Now(), make(chan struct{})
		go func() {
			defer close(done)
			_, err := l.Acquire(lock.WaitAtMost(t.Context(), d), key)
			if took := time.Since(began); !errors.Is(err, lock.ErrBusy) || took != d {
				t.Errorf("%v after %v, want busy after %v", err, took, d)
			}
		}()
		synctest.Wait()
		return func() { <-done }
	}
	play := func(t *testing.T, a, b lock.Locker, key string) {
		lease := mustAcquire(t, t.Context(), a, key)
		one := wait(t, b, key, first)
		two := wait(t, b, key, second)
		one()
		two()
		mustRelease(t, lease)
	}
	inSessions(t, time.Minute, func(t *testing.T, _ *sessions, a, b lock.Locker) { play(t, a, b, "{1}") })
	for _, strategy := range append([]string{"watchdog", "redlock", "handoff"}, sessionLocks...) {
		t.Run(strategy, func(t *testing.T) {
			simulate(t, func(s *simulation) {
				long := func(e *lock.Env) { e.Wait = time.Minute }
				play(s.T, s.actor(strategy, long), s.actor(strategy, long), theKey)
			})
		})
	}
}
