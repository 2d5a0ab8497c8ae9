package lock

import (
	"context"
	"sync"
	"time"
)

// keyedMutex is a mutex for each key, inside one process. The zero value is ready.
// It remembers the keys in use, and not all keys ever seen.
type keyedMutex struct {
	mu    sync.Mutex
	byKey map[string]*slot // of the keys that are held or waited for
}

// slot is a mutex as a channel of one element: the client that fills it is the
// holder. Unlike a sync.Mutex it can be given up while waiting, and its waiters
// are served in the order of their arrival.
type slot struct {
	full  chan struct{}
	users int // holder and waiters; guarded by keyedMutex.mu
}

// lock waits for at most wait, then returns ErrBusy. The holder must call unlock once.
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

// lockToWait is lock for clients that are going to poll servers for as long as
// wait: one client of the process at a time does. left is how much longer it may.
// A client that tries only once waits for no other.
func (m *keyedMutex) lockToWait(ctx context.Context, key string, wait time.Duration) (left time.Duration, unlock func(), err error) {
	if wait <= 0 {
		return 0, func() {}, nil
	}
	began := time.Now()
	unlock, err = m.lock(ctx, key, wait)
	return wait - time.Since(began), unlock, err
}

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
