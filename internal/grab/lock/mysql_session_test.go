package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// sessions is a database that may refuse to begin one.
type sessions struct {
	order.Store
	refuses bool
}

func (s *sessions) Begin(ctx context.Context) (order.Tx, error) {
	if s.refuses {
		return nil, errors.New("refused")
	}
	return s.Store.Begin(ctx)
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
				if _, err := db.Create(t.Context(), 1); err != nil {
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
