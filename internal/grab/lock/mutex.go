package lock

import (
	"context"
	"sync/atomic"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// mutex is one mutex for each order inside one process, as the JVM's
// synchronized (orderId.intern()). It is worth nothing beyond its process: A takes
// the mutex of instance 1, B that of instance 2, both read an open order, both
// write (F2, internal/explore/testdata/F2.txt).
var mutex = Strategy{
	Name:     "mutex",
	Title:    "a mutex for each order, in one process",
	Family:   "process",
	Source:   "Java: synchronized (orderId.intern())",
	Guard:    order.Naive,
	Claims:   catalog.Always(catalog.Claim{Order: catalog.Unsafe, Exclusive: true}), // its process is all that it knows
	Excludes: catalog.PerProcess,
	Waiter:   "waits in its process",
	Breaks:   []string{"F2"},
	Promises: Promises{InOrder: catalog.PerProcess},
	New: func(env Env) (Locker, error) {
		return &mutexLocker{env: env}, nil
	},
}

// mutexLocker has its mutexes to itself, so that two of them behave as two processes.
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

// Release unlocks once: a second call must not unlock for the next holder.
func (l *mutexLease) Release(context.Context) error {
	if l.released.Swap(true) {
		return ErrLost
	}
	l.unlock()
	return nil
}
