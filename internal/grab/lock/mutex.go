package lock

import (
	"context"
	"sync/atomic"

	"grablab/internal/order"
)

// mutex is the JVM's synchronized (orderId.intern()): right inside one process
// and worth nothing beyond it. A takes the mutex of instance 1, B that of
// instance 2, both read an open order, both write (F2).
var mutex = Strategy{
	Name:     "mutex",
	Title:    "a mutex for each order, in one process",
	Family:   "process",
	Source:   "Java: synchronized (orderId.intern())",
	Guard:    order.Naive,
	Expect:   everywhere(Unsafe),
	Excludes: Process,
	Survives: Faults, // it has no lease to lose; its process is all it knows
	Breaks:   []string{"F2"},
	New: func(env Env) (Locker, error) {
		return &mutexLocker{env: env}, nil
	},
}

// mutexLocker has its doors to itself, so that two of them behave as two
// processes.
type mutexLocker struct {
	env   Env
	doors doors
}

func (m *mutexLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	exit, err := m.doors.enter(ctx, key, m.env.wait(ctx))
	if err != nil {
		return nil, err
	}
	return &mutexLease{token: m.env.Token(), exit: exit}, nil
}

func (m *mutexLocker) Close() error { return nil }

type mutexLease struct {
	token    string
	exit     func()
	released atomic.Bool
}

func (l *mutexLease) Token() string         { return l.token }
func (l *mutexLease) Fence() uint64         { return 0 }
func (l *mutexLease) Lost() <-chan struct{} { return nil }

// Release opens the door once. A second call must not let out whoever is
// inside by then.
func (l *mutexLease) Release(context.Context) error {
	if l.released.Swap(true) {
		return ErrLost
	}
	l.exit()
	return nil
}
