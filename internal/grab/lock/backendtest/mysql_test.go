package backendtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/testbed/conformtest"
	"grablab/internal/testbed/stack/stacktest"
)

// database returns a connection pool for the shared server, limited to conns connections.
func database(t *testing.T, conns int) *order.SQL {
	t.Helper()
	at := serversOf(t, stacktest.With(t, needs))
	db, err := order.Connect(t.Context(), at.DSN, order.Options{MaxConns: conns})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func newLocker(t *testing.T, strategy string, env lock.Env) lock.Locker {
	t.Helper()
	st, err := lock.Find(strategy)
	must(t, err)
	env.Now, env.Rand, env.Token = time.Now, func() float64 { return 0.5 }, conformtest.Token
	if env.TTL == 0 {
		env.TTL = 20 * time.Second
	}
	l, err := st.New(env)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

func acquire(t *testing.T, l lock.Locker, key string) lock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key)
	must(t, err)
	return lease
}

// newOrder opens an order and returns its lock's key.
func newOrder(t *testing.T, db *order.SQL) (id int64, key string) {
	t.Helper()
	id, err := db.Create(t.Context(), 1, 1)
	must(t, err)
	return id, keyOf(id)
}

// keyOf returns the key of an order's lock.
func keyOf(id int64) string { return fmt.Sprintf("grab:backendtest:{%d}", id) }

// rowsOf returns the Rows through which the lease's holder writes.
func rowsOf(db *order.SQL, lease lock.Lease) order.Rows {
	if tx, ok := lease.(lock.TxLease); ok {
		return tx.Rows()
	}
	return db
}

func claim(ctx context.Context, rows order.Rows, id, driver int64, lease lock.Lease, g order.Guard) error {
	return rows.Claim(ctx, order.Claim{
		Order: id, Driver: driver, Token: lease.Token(), Fence: lease.Fence(), Instance: "test", Strategy: "test",
	}, g)
}

// winners returns the drivers in an order's ledger.
func winners(t *testing.T, db *order.SQL, id int64) (drivers []int64) {
	t.Helper()
	grabs, err := db.Ledger(t.Context(), id, 1)
	must(t, err)
	for _, g := range grabs {
		drivers = append(drivers, g.Driver)
	}
	return drivers
}

// killSessions makes the server end the given sessions, and waits until they and their locks are gone.
func killSessions(t *testing.T, by *order.SQL, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		_, err := by.DB().ExecContext(t.Context(), fmt.Sprint("KILL ", id))
		must(t, err)
	}
	for _, id := range ids {
		_, err := soon(func() (left []string, err error) {
			var one int64
			err = by.DB().QueryRowContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE id = ?", id).Scan(&one)
			if errors.Is(err, sql.ErrNoRows) {
				return nil, nil
			}
			return []string{fmt.Sprint("session ", id)}, err
		})
		must(t, err)
	}
}

// sessionsBeside returns the server's sessions, except for the known ones and the one that asks.
func sessionsBeside(t *testing.T, known map[int64]bool, db *order.SQL) (ids []int64) {
	t.Helper()
	rows, err := db.DB().QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()")
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		must(t, rows.Scan(&id))
		if !known[id] {
			ids = append(ids, id)
		}
	}
	must(t, rows.Err())
	return ids
}

// TestSessionDropped makes the server end A's session. B locks and writes, and then A writes. A's write
// must fail if it uses the session of the lock. It succeeds on another connection (F32).
func TestSessionDropped(t *testing.T) {
	for strategy, want := range map[string][]int64{
		"mysql-getlock": {2}, "mysql-forupdate": {2}, "mysql-getlock-pooled": {2, 1}, "mysql-getlock-split": {2, 1},
	} {
		t.Run(strategy, func(t *testing.T) {
			other := database(t, 4)
			known := map[int64]bool{}
			for _, id := range sessionsBeside(t, nil, other) {
				known[id] = true
			}
			db := database(t, 4)
			id, key := newOrder(t, other)
			a := acquire(t, newLocker(t, strategy, lock.Env{Orders: db}), key)
			row, err := rowsOf(db, a).Read(t.Context(), id, 0)
			if err != nil || row.Status != order.Open {
				t.Fatalf("A reads %+v (%v), want an open order", row, err)
			}

			killSessions(t, other, sessionsBeside(t, known, other)...)
			b := acquire(t, newLocker(t, strategy, lock.Env{Orders: other}), key)
			must(t, claim(t.Context(), rowsOf(other, b), id, 2, b, order.Naive))
			must(t, b.Release(t.Context()))

			err = claim(t.Context(), rowsOf(db, a), id, 1, a, order.Naive)
			if lost := len(want) == 1; lost != errors.Is(err, order.ErrNotWritten) || lost != (err != nil) {
				t.Errorf("A's late claim: %v", err)
			}
			if err := a.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("A's release: %v, want %v", err, lock.ErrLost)
			}
			if got := winners(t, other, id); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("the ledger says %v, want %v", got, want)
			}
		})
	}
}

// TestPooledConnectionServesTwo checks whether a second acquire in the same process succeeds while the
// lock is held. It must do so only with the broken variant, which reuses the pooled connection (F31).
func TestPooledConnectionServesTwo(t *testing.T) {
	for strategy, both := range map[string]bool{"mysql-getlock": false, "mysql-getlock-split": false, "mysql-getlock-pooled": true} {
		t.Run(strategy, func(t *testing.T) {
			db := database(t, 4)
			_, key := newOrder(t, db)
			l := newLocker(t, strategy, lock.Env{Orders: db})
			a := acquire(t, l, key)
			b, err := l.Acquire(t.Context(), key)
			if both != (err == nil) || !both && !errors.Is(err, lock.ErrBusy) {
				t.Errorf("a second acquire while the first is held: %v", err)
			}
			if err == nil {
				must(t, b.Release(t.Context()))
			}
			must(t, a.Release(t.Context()))
		})
	}
}

// TestPooledReleaseElsewhere checks whether a release frees the lock if the lock's connection is busy.
// The broken variant releases on another connection, so that the lock stays (F31).
func TestPooledReleaseElsewhere(t *testing.T) {
	for strategy, leaks := range map[string]bool{"mysql-getlock": false, "mysql-getlock-split": false, "mysql-getlock-pooled": true} {
		t.Run(strategy, func(t *testing.T) {
			db, other := database(t, 4), database(t, 4)
			_, key := newOrder(t, other)
			a := acquire(t, newLocker(t, strategy, lock.Env{Orders: db}), key)
			// The next caller gets the only idle connection.
			busy, err := db.DB().Conn(t.Context())
			must(t, err)
			defer busy.Close()

			if err := a.Release(t.Context()); leaks != errors.Is(err, lock.ErrLost) {
				t.Errorf("release: %v", err)
			}
			b, err := newLocker(t, strategy, lock.Env{Orders: other}).Acquire(t.Context(), key)
			if leaks != errors.Is(err, lock.ErrBusy) {
				t.Errorf("after the release: %v", err)
			}
			if err == nil {
				must(t, b.Release(t.Context()))
			}
		})
	}
}

// TestWaitOfLessThanASecond checks that a client can wait for less than a second, although
// databases wait in whole seconds.
func TestWaitOfLessThanASecond(t *testing.T) {
	for _, strategy := range []string{"mysql-getlock", "mysql-forupdate"} {
		t.Run(strategy, func(t *testing.T) {
			db := database(t, 4)
			_, key := newOrder(t, db)
			a := acquire(t, newLocker(t, strategy, lock.Env{Orders: db}), key)
			b := newLocker(t, strategy, lock.Env{Orders: db, Wait: 200 * time.Millisecond})
			least := time.Hour
			for range 3 { // retry, because the machine may be slow
				began := time.Now()
				if _, err := b.Acquire(t.Context(), key); !errors.Is(err, lock.ErrBusy) {
					t.Fatalf("Acquire: %v, want %v", err, lock.ErrBusy)
				}
				least = min(least, time.Since(began))
			}
			if least < 200*time.Millisecond || least > 900*time.Millisecond {
				t.Errorf("the acquire gave up after %v, want about 200ms", least)
			}
			must(t, a.Release(t.Context()))
		})
	}
}

// TestHandedOnInTheDatabase checks that a release immediately wakes a waiter in the database. The
// waiter's SQL statement would otherwise wait for up to a second.
func TestHandedOnInTheDatabase(t *testing.T) {
	for _, strategy := range []string{"mysql-getlock", "mysql-forupdate"} {
		t.Run(strategy, func(t *testing.T) {
			db := database(t, 4)
			_, key := newOrder(t, db)
			env := lock.Env{Orders: db, Wait: 20 * time.Second}
			first, second := newLocker(t, strategy, env), newLocker(t, strategy, env)
			least := time.Hour
			for range 5 {
				a := acquire(t, first, key)
				got := make(chan time.Time, 1)
				go func() {
					if b, err := second.Acquire(t.Context(), key); err == nil {
						got <- time.Now()
						_ = b.Release(t.Context())
					}
				}()
				time.Sleep(50 * time.Millisecond)
				released := time.Now()
				must(t, a.Release(t.Context()))
				least = min(least, (<-got).Sub(released))
			}
			if least > 300*time.Millisecond {
				t.Errorf("the waiter got the lock %v after the release, want at most 300ms", least)
			}
		})
	}
}

// TestMoreAcquirersThanSessions has more clients acquire locks than there are sessions. While all
// sessions are in use, they must get ErrBusy, but a read must still succeed. Once sessions are free,
// some clients must get their locks.
func TestMoreAcquirersThanSessions(t *testing.T) {
	const acquirers, conns = 1000, 8
	for _, strategy := range []string{"mysql-getlock", "mysql-forupdate"} {
		t.Run(strategy, func(t *testing.T) {
			db := database(t, conns)
			first, err := db.Create(t.Context(), acquirers, 1)
			must(t, err)
			key := func(i int) string { return keyOf(first + int64(i)) }
			l := newLocker(t, strategy, lock.Env{Orders: db, Wait: 300 * time.Millisecond})

			var held []lock.Lease
			for i := range conns * 3 / 4 {
				held = append(held, acquire(t, l, key(i)))
			}
			var all sync.WaitGroup
			errs := make([]error, acquirers)
			for i := range acquirers {
				all.Go(func() {
					lease, err := l.Acquire(t.Context(), key(i))
					if err == nil {
						err = errors.Join(errors.New("got a lock although all sessions were in use"), lease.Release(t.Context()))
					}
					errs[i] = err
				})
			}
			if _, err := db.Read(t.Context(), first, 0); err != nil {
				t.Errorf("a read meanwhile: %v", err)
			}
			all.Wait()
			for i, err := range errs {
				if !errors.Is(err, lock.ErrBusy) {
					t.Fatalf("acquirer %d: %v, want %v", i, err, lock.ErrBusy)
				}
			}
			for _, lease := range held {
				must(t, lease.Release(t.Context()))
			}
			for i := range acquirers {
				all.Go(func() {
					lease, err := l.Acquire(t.Context(), key(i%conns))
					if err == nil {
						err = lease.Release(t.Context())
					}
					errs[i] = err
				})
			}
			all.Wait()
			had := 0
			for i, err := range errs {
				if err == nil {
					had++
				} else if !errors.Is(err, lock.ErrBusy) {
					t.Fatalf("acquirer %d: %v", i, err)
				}
			}
			if had < conns {
				t.Errorf("%d clients got a lock once the sessions were free, want at least %d", had, conns)
			}
		})
	}
}
