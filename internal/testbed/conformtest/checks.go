package conformtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/grab/lock"
)

// slack is how late a response may be. It is generous because the machine may be slow.
const (
	longTTL  = 20 * time.Second
	shortTTL = time.Second
	slack    = 2 * time.Second
	settling = shortTTL / 2 // a key that stays on the servers longer than this counts as leaked
)

// busy checks that a client gets ErrBusy at once, or after its waiting time, while another client
// holds the lock.
func busy(t *trial) {
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		holder, contender := t.pair(longTTL, wait)
		lease := t.acquire(holder)
		if lease.Token() == "" {
			t.fatalf("the lease has an empty token")
		}
		if took := t.excluded(t.ctx, "the holder", contender); took < wait || took > wait+slack {
			t.fatalf("with a wait of %v, Acquire returned ErrBusy only after %v", wait, took)
		}
		t.release(lease)
		t.nothingLeft(t.key)
	}
}

// triesOnce checks that an acquire with lock.TryOnce does not wait if another client holds the
// lock.
func triesOnce(t *trial) {
	holder, contender := t.pair(longTTL, 2*slack)
	once := lock.TryOnce(t.ctx)
	lease, err := holder.Acquire(once, t.key)
	t.must("acquire", err)
	if took := t.excluded(once, "the holder", contender); took > slack {
		t.fatalf("with TryOnce, Acquire returned ErrBusy only after %v", took)
	}
	t.release(lease)
}

// wakes checks that a waiting client gets the lock soon after the holder has released it.
func wakes(t *trial) {
	holder, contender := t.pair(longTTL, longTTL)
	for range 3 {
		lease := t.acquire(holder)
		waiter := t.waiter(t.ctx, contender)
		t.release(lease)
		got := within(t, slack, waiter, "the waiter did not get the lock within %v of the release", slack)
		t.must("the waiter", got.err)
		t.release(got.lease)
		holder, contender = contender, holder
	}
}

// releaseOnce checks that a second release of the same lease does not free another client's lock.
func releaseOnce(t *trial) {
	first, second := t.pair(longTTL, 0)
	a := t.acquire(first)
	t.release(a)
	b := t.acquire(second)
	if a.Token() == b.Token() {
		t.fatalf("two leases have the same token, %q", a.Token())
	}
	t.want("a second release", a.Release(t.ctx), lock.ErrLost)
	t.excluded(t.ctx, "the second holder", first)
	t.release(b)
}

// releaseLost checks the Release of a client that has lost its lock: it must return ErrLost and
// must not free the new holder's lock.
func releaseLost(t *trial) {
	first, second := t.pair(longTTL, 0)
	a := t.acquire(first)
	t.drop()
	b := t.acquire(second)
	t.want("release of the lost lease", a.Release(t.ctx), lock.ErrLost)
	t.excluded(t.ctx, "the new holder", first)
	t.release(b)
}

// expiry checks that the lock of a dead process becomes free after the TTL.
func expiry(t *trial) {
	holder, contender := t.pair(shortTTL, 0)
	t.acquire(holder)
	t.excluded(t.ctx, "a live holder", contender)
	t.stopAll()
	t.release(t.acquire(t.start(shortTTL, shortTTL+slack)))
}

// kept checks that the lock renews a lease until its holder releases it.
func kept(t *trial) {
	holder, contender := t.pair(shortTTL, 0)
	lease := t.acquire(holder)
	select {
	case <-lease.Lost():
		t.fatalf("the lease was reported as lost, although it could be renewed")
	case <-time.After(2 * shortTTL):
	}
	t.excluded(t.ctx, "the holder", contender)
	t.release(lease)
}

// lossKnown checks that a holder notices a lost lock, at the latest when it next renews the lease.
func lossKnown(t *trial) {
	const ttl = 3 * shortTTL
	holder, contender := t.pair(ttl, 0)
	lease := t.acquire(holder)
	t.excluded(t.ctx, "the holder", contender)
	t.drop()
	within(t, ttl*2/3, lease.Lost(), "the holder was not told about the loss within two thirds of the TTL")
	t.want("release of the lost lease", lease.Release(t.ctx), lock.ErrLost)
}

var errCut = errors.New("conformtest: the test dropped the reply")

// unconfirmed checks a lease whose renewals get no reply. The lease must count as lost once it has
// expired, but not earlier.
func unconfirmed(t *trial) {
	holder, contender := t.pair(shortTTL, 0)
	var cut atomic.Bool
	var silent atomic.Int32
	acquiring := onReply(t.ctx, func() error {
		if !cut.Load() {
			return nil
		}
		silent.Add(1)
		return errCut
	})
	began := time.Now()
	lease, err := holder.Acquire(acquiring, t.key)
	t.must("acquire", err)
	cut.Store(true)
	t.excluded(t.ctx, "the holder", contender)
	within(t, shortTTL+slack, lease.Lost(), "the holder was not told about the loss when the lease expired")
	if took := time.Since(began); took < shortTTL*2/3 {
		t.fatalf("the lease was reported as lost after %v, although its TTL is %v", took, shortTTL)
	}
	if silent.Load() == 0 {
		t.fatalf("the lock did not try to renew the lease")
	}
	if err := lease.Release(t.ctx); !errors.Is(err, lock.ErrLost) {
		t.must("release", err)
	}
}

// cancelledWaiting checks that a waiting client returns when it is cancelled, and that it leaves
// nothing behind on the servers.
func cancelledWaiting(t *trial) {
	holder, contender := t.pair(longTTL, longTTL)
	lease := t.acquire(holder)
	waiting, hangUp := context.WithCancel(t.ctx)
	defer hangUp()
	waiter := t.waiter(waiting, contender)
	hangUp()
	got := within(t, slack, waiter, "the waiter is still waiting, although its context was cancelled")
	t.want("the cancelled waiter", got.err, context.Canceled)
	t.release(lease)
	t.nothingLeft(t.key)
	_, err := contender.Acquire(waiting, t.key)
	t.want("an acquire with a cancelled context", err, context.Canceled)
}

// cancelledMidway checks that nothing stays behind on the servers if a client is cancelled just as
// it gets the lock.
func cancelledMidway(t *trial) {
	waiting, hangUp := context.WithCancel(t.ctx)
	defer hangUp()
	_, err := t.disturbed(waiting, longTTL, func() error { hangUp(); return nil })
	t.want("the acquire", err, context.Canceled)
}

// lostReply checks an acquire whose reply is lost. It must not return ErrBusy, because no other
// client holds the lock.
func lostReply(t *trial) {
	lease, err := t.disturbed(t.ctx, longTTL, func() error { return errCut })
	switch {
	case lease != nil:
		_ = lease.Release(t.ctx)
		t.fatalf("Acquire returned a lease, although the reply was lost")
	case errors.Is(err, lock.ErrBusy):
		t.fatalf("the reply was lost, but Acquire returned %v, which means that another client has the lock", err)
	}
}

// recovers checks that a process works again after two outages in which an acquire got no reply.
// While another client holds the lock, the process must get ErrBusy. After that client's release,
// it must get the lock.
func recovers(t *trial) {
	holder, contender := t.pair(longTTL, 600*time.Millisecond)
	for outage := range 2 {
		t.release(t.acquire(contender)) // get the lock once, to load scripts and open connections
		lease, err := contender.Acquire(onReply(t.ctx, func() error { return errCut }), t.key)
		if err == nil {
			_ = lease.Release(t.ctx)
			t.fatalf("Acquire returned a lease, although no reply arrived")
		}
		lease = t.acquire(holder)
		for _, waiter := range []<-chan acquired{t.waiter(t.ctx, contender), t.waiter(t.ctx, contender)} {
			got := <-waiter
			t.want(fmt.Sprintf("a waiter after outage %d", outage+1), got.err, lock.ErrBusy)
		}
		t.release(lease)
		t.release(t.acquire(contender))
	}
}

// lateReply checks that a client rejects a lock if the reply takes longer than the lease (F12 in
// docs/failure-modes.md). The client may then retry, but if it gets a lease, no other client may
// get the lock.
func lateReply(t *trial) {
	late := sync.OnceValue(func() time.Time { return time.Now().Add(shortTTL + shortTTL/10) })
	lease, _ := t.disturbed(t.ctx, shortTTL, func() error {
		time.Sleep(time.Until(late()))
		return nil
	})
	if lease == nil {
		return
	}
	if other, err := t.start(shortTTL, 0).Acquire(t.ctx, t.key); err == nil {
		_, _ = other.Release(t.ctx), lease.Release(t.ctx)
		t.fatalf("Acquire returned a lease that had already expired")
	}
	t.release(lease)
}

// disturbed acquires a lock, and calls reply after each server reply. The function can delay that
// reply or replace it with an error.
func (t *trial) disturbed(ctx context.Context, ttl time.Duration, reply func() error) (lock.Lease, error) {
	p := t.start(ttl, 0)
	t.release(t.acquire(p)) // acquire the lock once undisturbed, to load scripts and open connections
	var replies atomic.Int32
	lease, err := p.Acquire(onReply(ctx, func() error { replies.Add(1); return reply() }), t.key)
	if replies.Load() == 0 {
		t.fatalf("Acquire sent no request to a server")
	}
	return lease, err
}

const (
	contenders    = 1000
	contendedKeys = 50
	contendedWait = 5 * time.Second
	// contendedLimit is how long an acquire may take. On a busy machine, some of the many clients run late.
	contendedLimit = 3 * contendedWait
)

// contendedHold returns how long client i holds its key. The times differ, because otherwise the
// clients would release all keys at once.
func contendedHold(i int) time.Duration { return time.Duration(20+i*37%60) * time.Millisecond }

// contention lets 1,000 clients in two processes compete for a few keys. Each client must get a
// lease or ErrBusy in time, and no two clients may hold the same key at once.
func contention(t *trial) {
	var lockers [2]lock.Locker
	lockers[0], lockers[1] = t.pair(longTTL, contendedWait)
	t.keys = nil
	for key := range contendedKeys {
		t.addKey(fmt.Sprintf("contended%d", key))
	}
	var inside, had [contendedKeys]atomic.Int32
	acquireOnce := func(i int) error {
		key, began := i%contendedKeys, time.Now()
		lease, err := lockers[i/contendedKeys%2].Acquire(t.ctx, t.keys[key])
		if took := time.Since(began); took > contendedLimit {
			return fmt.Errorf("an Acquire took %v, although its wait was only %v", took, contendedWait)
		}
		if errors.Is(err, lock.ErrBusy) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		overlap := inside[key].Add(1) != 1
		had[key].Add(1)
		time.Sleep(contendedHold(i))
		inside[key].Add(-1)
		if err := lease.Release(t.ctx); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		if overlap {
			return errors.New("two clients held the lock on the same key at once")
		}
		return nil
	}
	var all sync.WaitGroup
	errs := make([]error, contenders)
	for i := range errs {
		all.Go(func() { errs[i] = acquireOnce(i) })
	}
	all.Wait()
	t.stopAll() // complete any clean-up that the locks still have to do
	if failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(failed) > 0 {
		t.fatalf("%d of %d clients failed; for example: %w", len(failed), contenders, failed[0])
	}
	for key := range had {
		if had[key].Load() == 0 {
			t.fatalf("no client got the lock on key %d", key)
		}
	}
}
