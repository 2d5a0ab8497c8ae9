package order_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"grablab/internal/order"
)

// lockWait is long enough for a waiter that must eventually get its lock.
const lockWait = 10 * time.Second

// sessionOrRefusal checks that a store without sessions returns an error that says what to
// do.
func sessionOrRefusal(t *trial) {
	tx, err := t.Begin(t.ctx)
	if errors.Is(err, order.ErrUnsupported) {
		if len(err.Error()) < len(order.ErrUnsupported.Error())+20 {
			t.failf("%q does not say why, and what to do", err)
		}
		return
	}
	t.must(err)
	t.must(tx.Close(t.ctx))
}

// session is a session of a check. It is closed when the check ends, unless it was closed
// before.
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

// session opens a session. It ends the check if the store has no sessions.
func (t *trial) session() *session {
	tx, err := t.Begin(t.ctx)
	if errors.Is(err, order.ErrUnsupported) {
		panic(ended{})
	}
	t.must(err)
	x := &session{Tx: tx}
	t.open = append(t.open, x)
	return x
}

// lockFunc locks the row or the name of an order in a session.
type lockFunc func(ctx context.Context, x order.Tx, id int64, wait time.Duration) (bool, error)

func byRow(ctx context.Context, x order.Tx, id int64, wait time.Duration) (bool, error) {
	return x.LockRow(ctx, id, wait)
}

func byName(ctx context.Context, x order.Tx, id int64, wait time.Duration) (bool, error) {
	return x.LockName(ctx, fmt.Sprintf("grab:storetest:{%d}", id), wait)
}

// locks checks that x gets the lock within wait.
func (t *trial) locks(x order.Tx, by lockFunc, id int64, wait time.Duration) {
	t.answered(true, x, by, id, wait)
}

// busy checks that x does not get the lock within wait.
func (t *trial) busy(x order.Tx, by lockFunc, id int64, wait time.Duration) {
	t.answered(false, x, by, id, wait)
}

func (t *trial) answered(want bool, x order.Tx, by lockFunc, id int64, wait time.Duration) {
	if ok, err := by(t.ctx, x, id, wait); ok != want || err != nil {
		t.failf("lock order %d for %v: %v, %v, want %v", id, wait, ok, err, want)
	}
}

func rowLock(t *trial) {
	a, b := t.session(), t.session()
	id, other := t.create(1), t.create(1)
	t.locks(a, byRow, id, 0)
	t.locks(a, byRow, id, 0) // a session can lock its row again
	t.busy(b, byRow, id, 0)
	t.busy(b, byRow, id, time.Nanosecond) // rounded up to a second
	// b has locked nothing, so its read is a plain one and does not wait.
	if o, err := b.Read(t.ctx, id, 0); err != nil || o.ID != id {
		t.failf("read of a row that another session has locked: %+v, %v", o, err)
	}
	t.locks(b, byRow, other, 0)
	t.busy(b, byRow, id, 0) // b must keep its other lock
	t.busy(a, byRow, other, 0)
	t.row(order.Order{ID: id}) // a plain read does not wait for the lock
	t.must(a.Close(t.ctx))
	t.locks(b, byRow, id, 0)
}

func rowLockOfNone(t *trial) {
	a, id := t.session(), t.create(1)
	for _, wait := range []time.Duration{0, time.Second} {
		_, err := a.LockRow(t.ctx, id+1_000_000, wait)
		t.expect("lock of no order", err, order.ErrNotFound)
	}
}

// handedOn checks that a waiter gets a lock of another session only when that session
// releases it.
func (t *trial) handedOn(lock func() (bool, error), letGo func() error) {
	waiting := make(chan error, 1)
	go func() {
		ok, err := lock()
		if !ok && err == nil {
			err = fmt.Errorf("not handed on within %v", lockWait)
		}
		waiting <- err
	}()
	select {
	case err := <-waiting:
		t.failf("did not wait for the lock of another session: %v", err)
	case <-time.After(20 * time.Millisecond): // usually long enough for the waiter to begin to wait
	}
	t.must(errors.Join(letGo(), <-waiting))
}

// rowLockHandedOn checks that a claim commits and thereby releases the row lock. The next session must then
// get the lock and see the claim.
func rowLockHandedOn(t *trial) {
	a, b, id := t.session(), t.session(), t.create(1)
	t.locks(a, byRow, id, 0)
	t.handedOn(
		func() (bool, error) { return b.LockRow(t.ctx, id, lockWait) },
		func() error { return a.Claim(t.ctx, claim(id, 1, 0), order.Naive) })
	o, err := b.Read(t.ctx, id, 0)
	if err != nil || o.Status != order.Grabbed || o.Driver != 1 {
		t.failf("the next holder reads %+v, %v", o, err)
	}
	t.expect("second claim", b.Claim(t.ctx, claim(id, 2, 0), order.Guarded), order.ErrTaken)
	t.drivers(id, 1)
}

// rowLockAfterClaim checks that a session can lock a row again after a claim has ended its transaction,
// whether the claim was written or refused. Other sessions must not get the row meanwhile.
func rowLockAfterClaim(t *trial) {
	a, b, id := t.session(), t.session(), t.create(1)
	for driver, want := range []error{nil, order.ErrTaken, order.ErrTaken} {
		t.locks(a, byRow, id, 0)
		t.busy(b, byRow, id, 0)
		t.expect("claim", a.Claim(t.ctx, claim(id, int64(driver)+1, 0), order.Guarded), want)
	}
	t.locks(b, byRow, id, 0)
}

// rowLockAndWriters checks that a writer without a session also waits for the row.
func rowLockAndWriters(t *trial) {
	a, id := t.session(), t.create(1)
	t.locks(a, byRow, id, 0)
	hasty, cancel := context.WithTimeout(t.ctx, 50*time.Millisecond)
	defer cancel()
	t.expect("hasty claim", t.Claim(hasty, claim(id, 1, 0), order.Naive), context.DeadlineExceeded, order.ErrNotWritten)
	t.handedOn(
		func() (bool, error) { return true, t.Claim(t.ctx, claim(id, 2, 0), order.Naive) },
		func() error { return a.Claim(t.ctx, claim(id, 3, 0), order.Naive) })
	t.drivers(id, 3, 2)
}

func nameLock(t *trial) {
	a, b, id := t.session(), t.session(), t.create(1)
	t.locks(a, byName, id, 0)
	t.locks(a, byName, -id, 0)
	t.busy(b, byName, id, 0)
	t.busy(b, byName, -id, time.Second)
	t.must(a.Claim(t.ctx, claim(id, 1, 0), order.Naive)) // a claim releases no name
	t.busy(b, byName, id, 0)
	t.must(a.Close(t.ctx))
	t.locks(b, byName, id, 0)
	t.locks(b, byName, -id, 0)
}

func nameLockHandedOn(t *trial) {
	a, b, id := t.session(), t.session(), t.create(1)
	t.locks(a, byName, id, 0)
	t.handedOn(
		func() (bool, error) { return byName(t.ctx, b, id, lockWait) },
		func() error { return a.Close(t.ctx) })
}

// sessionClaims checks that reads and claims in a session give the same answers as those of the
// store, with and without a locked row. Every reader must see the claims at once.
func sessionClaims(t *trial) {
	for _, lock := range []bool{false, true} {
		a, id := t.session(), t.create(1)
		if lock {
			t.locks(a, byRow, id, 0)
		}
		_, err := a.Read(t.ctx, id, 5)
		t.expect("fenced read", err, order.ErrUnsupported)
		o, err := a.Read(t.ctx, id, 0)
		if want := (order.Order{ID: id}); err != nil || o != want {
			t.failf("row locked %v: read: %+v, %v", lock, o, err)
		}
		if n, err := a.Held(t.ctx, id, 1); err != nil || n != 0 {
			t.failf("row locked %v: the driver has %d units before the claim, %v", lock, n, err)
		}
		t.must(a.Claim(t.ctx, claim(id, 1, 5), order.FenceWrite))
		if n, err := a.Held(t.ctx, id, 1); err != nil || n != 1 {
			t.failf("row locked %v: the driver has %d units after the claim, %v", lock, n, err)
		}
		t.row(order.Order{ID: id, Status: order.Grabbed, Driver: 1, Fence: 5})
		t.expect("retry", a.Claim(t.ctx, claim(id, 1, 5), order.FenceWrite), order.ErrTaken)
		t.expect("stale claim", a.Claim(t.ctx, claim(id, 1, 4), order.FenceWrite), order.ErrStale)
		t.expect("guarded claim", a.Claim(t.ctx, claim(id, 2, 0), order.Guarded), order.ErrTaken)
		t.drivers(id, 1)
	}
}

// sessionClaimCancelled checks that a session that has locked the row writes nothing for a client that has
// gone.
func sessionClaimCancelled(t *trial) {
	a, id := t.session(), t.create(1)
	t.locks(a, byRow, id, 0)
	gone, cancel := context.WithCancel(t.ctx)
	cancel()
	t.expect("claim of a client that has gone", a.Claim(gone, claim(id, 1, 0), order.Naive), context.Canceled, order.ErrNotWritten)
	t.row(order.Order{ID: id})
	t.drivers(id)
}

// sessionCancelled checks that a waiter that gives up gets an error and leaves no lock
// behind. The database may need a moment to notice that the waiter has gone.
func sessionCancelled(t *trial) {
	for _, by := range []lockFunc{byRow, byName} {
		a, b, id := t.session(), t.session(), t.create(1)
		t.locks(a, by, id, 0)
		hasty, cancel := context.WithTimeout(t.ctx, 50*time.Millisecond)
		_, err := by(hasty, b, id, lockWait)
		cancel()
		_ = b.Close(t.ctx) // can fail, because the end of the wait may have ended the session
		t.expect("hasty waiter", err, context.DeadlineExceeded)
		t.must(a.Close(t.ctx))
		t.locks(t.session(), by, id, lockWait)
	}
}
