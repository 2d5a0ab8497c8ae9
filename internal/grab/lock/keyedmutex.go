package lock

import (
	"context"
	"sync"
	"time"
)

// A keyedMutex has one mutex for each key in use. Lockers use it to let only one client per key and
// process wait for the server. For the strategy mutex, it is the lock itself. The zero value is ready
// to use.
type keyedMutex struct {
	mu    sync.Mutex
	byKey map[string]*slot // only keys that are locked or awaited
}

// A slot is a mutex that serves waiters in order and lets them give up. It consists of a channel of
// capacity 1, which is full while the mutex is locked.
type slot struct {
	full  chan struct{}
	users int // the number of holders and waiters; guarded by keyedMutex.mu
}

// lock locks a key's mutex. It returns ErrBusy if the mutex is not free within wait. The caller
// must call unlock once.
func (m *keyedMutex) lock(ctx context.Context, key string, wait time.Duration) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := m.use(key)
	if err := s.fill(ctx, wait); err != nil {
		m.leave(key, s)
		return nil, err
	}
	return func() {
		<-s.full
		m.leave(key, s)
	}, nil
}

// lockToWait locks a key's mutex, so that only one client of this process at a time waits on the
// servers. It does nothing if wait is 0, because the client then does not wait for the servers.
// left is the part of wait that remains.
func (m *keyedMutex) lockToWait(ctx context.Context, key string, wait time.Duration) (left time.Duration, unlock func(), err error) {
	if wait <= 0 {
		return 0, func() {}, nil
	}
	began := time.Now()
	unlock, err = m.lock(ctx, key, wait)
	return wait - time.Since(began), unlock, err
}

// fill locks the slot. It returns ErrBusy if it cannot do so within wait.
func (s *slot) fill(ctx context.Context, wait time.Duration) error {
	select {
	case s.full <- struct{}{}:
		return nil
	default:
	}
	if wait <= 0 {
		return ErrBusy
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case s.full <- struct{}{}:
		return nil
	case <-timeout.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *keyedMutex) use(key string) *slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.byKey[key]
	if !ok {
		s = &slot{full: make(chan struct{}, 1)}
		if m.byKey == nil {
			m.byKey = map[string]*slot{}
		}
		m.byKey[key] = s
	}
	s.users++
	return s
}

func (m *keyedMutex) leave(key string, s *slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(m.byKey, key)
	}
}
