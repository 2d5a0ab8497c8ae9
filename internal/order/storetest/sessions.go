package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"grablab/internal/order"
)

// patience is how long a waiter waits that must get its lock in the end.
const patience = 20 * time.Second

// sessionOrRefusal: a store that has no sessions says so, and what to do.
func sessionOrRefusal(ctx context.Context, s order.Store) error {
	tx, err := s.Begin(ctx)
	if errors.Is(err, order.ErrUnsupported) {
		if len(err.Error()) < len(order.ErrUnsupported.Error())+20 {
			return fmt.Errorf("%q does not say why, and what to do", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return tx.Close(ctx)
}

// session is closed at the end of a check, unless it has been.
type session struct {
	order.Tx
	closed bool
}

func (x *session) Close(ctx context.Context) error {
	if x.closed {
		return nil
	}
	x.closed = true
	return x.Tx.Close(ctx)
}

// withSessions opens an order and two sessions, if the store has them.
func withSessions(ctx context.Context, s order.Store, check func(id int64, a, b *session) error) error {
	id, err := one(ctx, s)
	if err != nil {
		return err
	}
	tx, err := s.Begin(ctx)
	if errors.Is(err, order.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	a := &session{Tx: tx}
	if tx, err = s.Begin(ctx); err != nil {
		return errors.Join(err, a.Close(ctx))
	}
	b := &session{Tx: tx}
	return errors.Join(check(id, a, b), b.Close(ctx), a.Close(ctx))
}

// got compares the answer of a lock.
func got(want bool) func(what string, ok bool, err error) error {
	return func(what string, ok bool, err error) error {
		if ok != want || err != nil {
			return fmt.Errorf("%s: %v, %v, want %v", what, ok, err, want)
		}
		return nil
	}
}

var (
	locked = got(true)
	busy   = got(false)
)

func rowLock(ctx context.Context, s order.Store) error {
	return withSessions(ctx, s, func(id int64, a, b *session) error {
		other, err := one(ctx, s)
		if err != nil {
			return err
		}
		lock := func(tx order.Tx, id int64, wait time.Duration) (string, bool, error) {
			ok, err := tx.LockRow(ctx, id, wait)
			return fmt.Sprintf("lock order %d for %v", id, wait), ok, err
		}
		return errors.Join(
			locked(lock(a, id, 0)),
			locked(lock(a, id, 0)), // it has it already
			busy(lock(b, id, 0)),
			busy(lock(b, id, time.Second)),
			locked(lock(b, other, 0)),
			busy(lock(b, id, 0)), // and does not lose the other by it
			busy(lock(a, other, 0)),
			row(ctx, s, order.Order{ID: id}), // a plain read waits for nobody
			a.Close(ctx),
			locked(lock(b, id, 0)))
	})
}

func rowLockOfNone(ctx context.Context, s order.Store) error {
	return withSessions(ctx, s, func(id int64, a, _ *session) error {
		for _, wait := range []time.Duration{0, time.Second} {
			_, err := a.LockRow(ctx, id+1_000_000, wait)
			if err := expect("lock of no order", err, order.ErrNotFound); err != nil {
				return err
			}
		}
		return nil
	})
}

// handedOn: a waiter does not get what somebody else has, until they let go.
func handedOn(lock func(wait time.Duration) (bool, error), letGo func() error) error {
	type answer struct {
		ok  bool
		err error
	}
	waiting := make(chan answer, 1)
	go func() {
		ok, err := lock(patience)
		waiting <- answer{ok, err}
	}()
	select {
	case a := <-waiting:
		return fmt.Errorf("got what somebody else had locked: %+v", a)
	case <-time.After(20 * time.Millisecond): // long enough to be waiting, mostly
	}
	err := letGo()
	a := <-waiting
	return errors.Join(err, locked("waiter", a.ok, a.err))
}

// rowLockHandedOn: a claim commits, and so lets the next one in, who sees it.
func rowLockHandedOn(ctx context.Context, s order.Store) error {
	return withSessions(ctx, s, func(id int64, a, b *session) error {
		ok, err := a.LockRow(ctx, id, 0)
		if err := locked("a", ok, err); err != nil {
			return err
		}
		err = handedOn(
			func(wait time.Duration) (bool, error) { return b.LockRow(ctx, id, wait) },
			func() error { return a.Claim(ctx, claim(id, 1, 0), order.Naive) })
		if err != nil {
			return err
		}
		o, err := b.Read(ctx, id, 0)
		if err != nil || o.Status != order.Grabbed || o.Driver != 1 {
			return fmt.Errorf("the next holder reads %+v, %v", o, err)
		}
		return errors.Join(
			expect("second claim", b.Claim(ctx, claim(id, 2, 0), order.Guarded), order.ErrTaken),
			drivers(ctx, s, id, 1))
	})
}

// rowLockAndWriters: a writer without a session waits for the row too.
func rowLockAndWriters(ctx context.Context, s order.Store) error {
	return withSessions(ctx, s, func(id int64, a, _ *session) error {
		ok, err := a.LockRow(ctx, id, 0)
		if err := locked("a", ok, err); err != nil {
			return err
		}
		hasty, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		err = s.Claim(hasty, claim(id, 1, 0), order.Naive)
		if err := errors.Join(expect("hasty claim", err, context.DeadlineExceeded), expect("hasty claim", err, order.ErrNotWritten)); err != nil {
			return err
		}
		err = handedOn(
			func(time.Duration) (bool, error) {
				err := s.Claim(ctx, claim(id, 2, 0), order.Naive)
				return err == nil, err
			},
			func() error { return a.Claim(ctx, claim(id, 3, 0), order.Naive) })
		return errors.Join(err, drivers(ctx, s, id, 3, 2))
	})
}

// lockName names a lock after an order, so that checks do not meet.
func lockName(ctx context.Context, tx order.Tx, id int64, wait time.Duration) (string, bool, error) {
	name := fmt.Sprintf("grab:storetest:{%d}", id)
	ok, err := tx.LockName(ctx, name, wait)
	return fmt.Sprintf("lock %s for %v", name, wait), ok, err
}

func nameLock(ctx context.Context, s order.Store) error {
	return withSessions(ctx, s, func(id int64, a, b *session) error {
		return errors.Join(
			locked(lockName(ctx, a, id, 0)),
			locked(lockName(ctx, a, -id, 0)),
			busy(lockName(ctx, b, id, 0)),
			busy(lockName(ctx, b, -id, time.Second)),
			a.Claim(ctx, claim(id, 1, 0), order.Naive), // which lets go of no name
			busy(lockName(ctx, b, id, 0)),
			a.Close(ctx),
			locked(lockName(ctx, b, id, 0)),
			locked(lockName(ctx, b, -id, 0)))
	})
}

func nameLockHandedOn(ctx context.Context, s order.Store) error {
	return withSessions(ctx, s, func(id int64, a, b *session) error {
		if err := locked(lockName(ctx, a, id, 0)); err != nil {
			return err
		}
		return handedOn(
			func(wait time.Duration) (bool, error) {
				_, ok, err := lockName(ctx, b, id, wait)
				return ok, err
			},
			func() error { return a.Close(ctx) })
	})
}

// sessionClaims: read and claim over a session, with and without a row locked,
// answer as those of the store, and are seen by all at once.
func sessionClaims(ctx context.Context, s order.Store) error {
	for _, lock := range []bool{false, true} {
		err := withSessions(ctx, s, func(id int64, a, _ *session) error {
			if lock {
				ok, err := a.LockRow(ctx, id, 0)
				if err := locked("a", ok, err); err != nil {
					return err
				}
			}
			o, err := a.Read(ctx, id, 5)
			if want := (order.Order{ID: id, Fence: 5}); err != nil || o != want {
				return fmt.Errorf("fenced read: %+v, %v", o, err)
			}
			if _, err := a.Read(ctx, id, 4); !errors.Is(err, order.ErrStale) {
				return expect("stale read", err, order.ErrStale)
			}
			again, err := a.Read(ctx, id, 0)
			if err != nil || again != o {
				return fmt.Errorf("read again: %+v, %v, want %+v", again, err, o)
			}
			return errors.Join(
				a.Claim(ctx, claim(id, 1, 5), order.Fenced),
				row(ctx, s, order.Order{ID: id, Status: order.Grabbed, Driver: 1, Fence: 5}),
				expect("retry", a.Claim(ctx, claim(id, 1, 5), order.Fenced), order.ErrTaken),
				expect("stale claim", a.Claim(ctx, claim(id, 1, 4), order.FenceWrite), order.ErrStale),
				expect("guarded claim", a.Claim(ctx, claim(id, 2, 0), order.Guarded), order.ErrTaken),
				drivers(ctx, s, id, 1))
		})
		if err != nil {
			return fmt.Errorf("with the row locked %v: %w", lock, err)
		}
	}
	return nil
}

// sessionRollsBack: what a session raised under its row lock, and did not
// claim, is undone with it.
func sessionRollsBack(ctx context.Context, s order.Store) error {
	return withSessions(ctx, s, func(id int64, a, _ *session) error {
		ok, err := a.LockRow(ctx, id, 0)
		if err := locked("a", ok, err); err != nil {
			return err
		}
		_, err = a.Read(ctx, id, 5)
		return errors.Join(
			err,
			row(ctx, s, order.Order{ID: id}),
			a.Close(ctx),
			row(ctx, s, order.Order{ID: id}))
	})
}

// sessionCancelled: who gives up waiting is told so, and leaves no lock behind.
// The database may take a moment to notice that he has gone.
func sessionCancelled(ctx context.Context, s order.Store) error {
	for _, lock := range []func(ctx context.Context, tx order.Tx, id int64, wait time.Duration) (bool, error){
		func(ctx context.Context, tx order.Tx, id int64, wait time.Duration) (bool, error) {
			return tx.LockRow(ctx, id, wait)
		},
		func(ctx context.Context, tx order.Tx, id int64, wait time.Duration) (bool, error) {
			_, ok, err := lockName(ctx, tx, id, wait)
			return ok, err
		},
	} {
		err := withSessions(ctx, s, func(id int64, a, b *session) error {
			ok, err := lock(ctx, a, id, 0)
			if err := locked("holder", ok, err); err != nil {
				return err
			}
			hasty, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err = lock(hasty, b, id, patience)
			_ = b.Close(ctx) // it may have been lost with the wait
			if err := errors.Join(expect("hasty waiter", err, context.DeadlineExceeded), a.Close(ctx)); err != nil {
				return err
			}
			return withSessions(ctx, s, func(_ int64, c, _ *session) error {
				ok, err := lock(ctx, c, id, patience)
				return locked("the next", ok, err)
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
