package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

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
		return &mutexes{wait: env.Wait, token: env.Token, doors: map[string]*door{}}, nil
	},
}

// mutexes are the mutexes of one process. They belong to the Locker and not to
// the package, so that two of them behave as two processes.
type mutexes struct {
	wait  time.Duration
	token func() string

	mu    sync.Mutex
	doors map[string]*door // of the keys that somebody holds or waits for
}

// door is a mutex as a channel of one slot: whoever fills the slot is inside.
// Unlike a sync.Mutex it can be given up while waiting.
type door struct {
	slot  chan struct{}
	users int // inside or waiting; guarded by mutexes.mu
}

func (m *mutexes) Acquire(ctx context.Context, key string) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := m.approach(key)
	if err := m.enter(ctx, d); err != nil {
		m.leave(key, d)
		return nil, err
	}
	return &mutexLease{mutexes: m, key: key, door: d, token: m.token()}, nil
}

func (m *mutexes) enter(ctx context.Context, d *door) error {
	select {
	case d.slot <- struct{}{}:
		return nil
	default:
	}
	if m.wait <= 0 {
		return ErrBusy
	}
	patience := time.NewTimer(m.wait)
	defer patience.Stop()
	select {
	case d.slot <- struct{}{}:
		return nil
	case <-patience.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *mutexes) approach(key string) *door {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.doors[key]
	if !ok {
		d = &door{slot: make(chan struct{}, 1)}
		m.doors[key] = d
	}
	d.users++
	return d
}

// leave forgets the door once nobody stands at it, so that the memory is that
// of the orders in use and not of all orders ever seen.
func (m *mutexes) leave(key string, d *door) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.users--; d.users == 0 {
		delete(m.doors, key)
	}
}

func (m *mutexes) Close() error { return nil }

type mutexLease struct {
	*mutexes
	key      string
	door     *door
	token    string
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
	<-l.door.slot
	l.leave(l.key, l.door)
	return nil
}
