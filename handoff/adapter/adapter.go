// Package adapter lets existing code switch to handoff with few changes. It gives handoff the
// methods of other lock libraries. New code should use package handoff directly.
package adapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"grablab/handoff"
)

// ErrNotHeld means that the caller tried to release or extend a lock that it did not hold.
var ErrNotHeld = errors.New("adapter: the lock is not held")

// Locker is a sync.Locker for one key. It cannot report a lost lease, so use it only if a second
// holder does little harm. A Locker is safe for concurrent use.
type Locker struct {
	Locks *handoff.Locker
	Key   string

	held leases
}

// Lock waits for the lock. It panics if Redis cannot be reached.
func (l *Locker) Lock() {
	lease, err := l.Locks.Acquire(context.Background(), l.Key)
	if err != nil {
		panic(err)
	}
	l.held.add(lease)
}

// Unlock releases the lock. If that fails, the lock expires after its TTL. Unlock panics with
// ErrNotHeld if the lock is not held.
func (l *Locker) Unlock() {
	lease := l.held.take(l.Key)
	if lease == nil {
		panic(ErrNotHeld)
	}
	_ = lease.Release(context.Background())
}

// leases maps each key to the leases that are not unlocked yet. If a lease is lost and another
// caller gets the lock, the key has several leases. Unlock cannot tell who calls it, so it removes
// the oldest one: the current holder then keeps its lock while it works. If the current holder
// unlocks first, its lease remains until the earlier holder has unlocked too.
type leases struct {
	mu    sync.Mutex
	byKey map[string][]*handoff.Lease
}

func (l *leases) add(lease *handoff.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey == nil {
		l.byKey = map[string][]*handoff.Lease{}
	}
	l.byKey[lease.Key()] = append(l.byKey[lease.Key()], lease)
}

// take removes and returns a key's oldest lease. It returns nil if there is none.
func (l *leases) take(key string) (lease *handoff.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.byKey[key]
	if len(of) == 0 {
		return nil
	}
	l.byKey[key] = of[1:]
	if len(of) == 1 {
		delete(l.byKey, key)
	}
	return of[0]
}

// Mutex is a replacement for redsync's Mutex. It lacks Until, Valid and ValidContext, but renews the
// lock and serves waiting clients in order. It is not safe for concurrent use.
type Mutex struct {
	Locks *handoff.Locker
	Key   string
	// Wait is how long Lock waits before it returns handoff.ErrBusy. If it is 0, there is no limit.
	Wait time.Duration

	lease *handoff.Lease
}

// Name returns the key of the lock.
func (m *Mutex) Name() string { return m.Key }

// Value returns the current lease's unique name, or "" if the lock is not held.
func (m *Mutex) Value() string {
	if m.lease == nil {
		return ""
	}
	return m.lease.Token()
}

// Lock calls LockContext with context.Background().
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext waits for the lock until ctx is done, or returns handoff.ErrBusy after Wait.
func (m *Mutex) LockContext(ctx context.Context) error {
	return m.acquire(ctx, cmp.Or(m.Wait, math.MaxInt64))
}

// TryLock calls TryLockContext with context.Background().
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext acquires the lock if it is free. Otherwise, it returns handoff.ErrBusy.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.acquire(ctx, 0) }

func (m *Mutex) acquire(ctx context.Context, wait time.Duration) error {
	lease, err := m.Locks.AcquireWithin(ctx, m.Key, wait)
	if err == nil {
		m.lease = lease
	}
	return err
}

// Unlock calls UnlockContext with context.Background().
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext releases the lock. If the lease was already lost, it returns false and
// handoff.ErrLost. If the release fails, the lock expires after its TTL.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	if m.lease == nil {
		return false, ErrNotHeld
	}
	err := m.lease.Release(ctx)
	m.lease = nil
	return err == nil, err
}

// Extend calls ExtendContext with context.Background().
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext reports whether the lock is still held. It does not extend the lock, because
// handoff renews it automatically.
func (m *Mutex) ExtendContext(context.Context) (bool, error) {
	if m.lease == nil {
		return false, ErrNotHeld
	}
	select {
	case <-m.lease.Lost():
		return false, handoff.ErrLost
	default:
		return true, nil
	}
}

// Names provides locks by name, like certmagic's Locker. It is safe for concurrent use.
type Names struct {
	locks *handoff.Locker
	held  leases
}

// NewNames returns a Names that uses the given Locker.
func NewNames(locks *handoff.Locker) *Names { return &Names{locks: locks} }

// Lock waits for the lock called name until ctx is done.
func (n *Names) Lock(ctx context.Context, name string) error {
	lease, err := n.locks.Acquire(ctx, name)
	if err != nil {
		return err
	}
	n.held.add(lease)
	return nil
}

// Unlock releases the lock called name. It returns ErrNotHeld if this process does not hold the
// lock, and handoff.ErrLost if the lease was already lost.
func (n *Names) Unlock(ctx context.Context, name string) error {
	lease := n.held.take(name)
	if lease == nil {
		return fmt.Errorf("%w: %s", ErrNotHeld, name)
	}
	return lease.Release(ctx)
}
