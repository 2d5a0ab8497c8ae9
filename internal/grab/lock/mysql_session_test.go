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

// sessions is a database that may refuse to begin one, or have few.
type sessions struct {
	order.Store
	refuses bool
	few     chan struct{} // one for each session that is out; nil: there are enough
}

func (s *sessions) Begin(ctx context.Context) (order.Tx, error) {
	if s.refuses {
		return nil, errors.New("refused")
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

// pinned is a session that is out.
type pinned struct {
	order.Tx
	of *sessions
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

// inSessions plays with two processes over one database with one order.
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

// A client that gets no session leaves the others of its process a way.
func TestRefusedSession(t *testing.T) {
	inSessions(t, 0, func(t *testing.T, db *sessions, a, _ lock.Locker) {
		db.refuses = true
		if _, err := a.Acquire(t.Context(), "{1}"); err == nil || errors.Is(err, lock.ErrBusy) {
			t.Errorf("without a session: %v, want the cause", err)
		}
		db.refuses = false
		mustRelease(t, mustAcquire(t, t.Context(), a, "{1}"))
	})
}

// A client waits no longer than it may, though the database counts in seconds.
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

// Many more want one key than there are sessions: they leave the sessions to other keys,
// whose clients come in between, and each gets the key in its turn.
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
					t.Errorf("a waiter of the key that many want: %v", err)
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
					t.Errorf("another key, which nobody has: %v after %v", err, time.Since(began))
				}
			}
		}
		began := time.Now()
		mustRelease(t, first)
		served.Wait()
		if took := time.Since(began); took != many*work {
			t.Errorf("%d waiters took %v in their turns, want %v", many, took, many*work)
		}
	})
}
