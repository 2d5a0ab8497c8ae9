package lock

import (
	"context"
	"sync/atomic"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// mutex locks each order within one process, like Java's synchronized (orderId.intern()). It does
// not protect a service with several instances, because each instance has its own mutexes.
var mutex = Strategy{
	Name:     "mutex",
	Title:    "an in-process mutex for each order",
	Family:   "process",
	Source:   "Java: synchronized (orderId.intern())",
	Guard:    order.Naive,
	Claims:   catalog.Always(catalog.Claim{Order: catalog.Unsafe, Exclusive: true}),
	Excludes: catalog.PerProcess,
	Waiter:   "waits in its process",
	Breaks:   []string{"F2"},
	Promises: Promises{InOrder: catalog.PerProcess},
	New: func(env Env) (Locker, error) {
		return &mutexLocker{env: env}, nil
	},
}

// A mutexLocker has its own set of mutexes, so two mutexLockers behave like two processes.
type mutexLocker struct {
	env     Env
	mutexes keyedMutex
}

func (m *mutexLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	unlock, err := m.mutexes.lock(ctx, key, m.env.wait(ctx))
	if err != nil {
		return nil, err
	}
	return &mutexLease{plainLease: plainLease{m.env.Token()}, unlock: unlock}, nil
}

func (m *mutexLocker) Close() error { return nil }

type mutexLease struct {
	plainLease
	unlock   func()
	released atomic.Bool
}

// Release unlocks the mutex once. A second call returns ErrLost, because the mutex may already
// belong to the next holder.
func (l *mutexLease) Release(context.Context) error {
	if l.released.Swap(true) {
		return ErrLost
	}
	l.unlock()
	return nil
}
