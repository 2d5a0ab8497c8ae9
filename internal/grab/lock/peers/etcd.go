package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"grablab/internal/grab/lock"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// newEtcdMutex makes the lock of etcd's own package concurrency. Two acquisitions
// that share a session share a key, and both succeed (F28): each has a session
// to itself for as long as it waits and holds.
func newEtcdMutex(env lock.Env) (lock.Locker, error) {
	if env.Etcd == nil {
		return nil, errors.New("peers: etcd-mutex needs an etcd")
	}
	s := &sessions{client: env.Etcd, ttl: int(env.TTL.Seconds())}
	return locker{acquire: s.acquire, close: s.close}, nil
}

// sessions is a pool: they are opened when first needed and then kept, so that
// the lock is measured and not the grant of an etcd lease.
type sessions struct {
	client *clientv3.Client
	ttl    int // s

	mu   sync.Mutex
	idle []*concurrency.Session
}

func (s *sessions) acquire(ctx context.Context, key string) (func(context.Context) error, error) {
	session, err := s.get()
	if err != nil {
		return nil, fmt.Errorf("peers: session of etcd: %w", err)
	}
	m := concurrency.NewMutex(session, key)
	if err := m.Lock(ctx); err != nil {
		s.put(session)
		return nil, err
	}
	return func(ctx context.Context) error {
		defer s.put(session)
		return m.Unlock(ctx)
	}, nil
}

func (s *sessions) get() (*concurrency.Session, error) {
	if session := s.take(); session != nil {
		return session, nil
	}
	return concurrency.NewSession(s.client, concurrency.WithTTL(s.ttl))
}

// take takes an idle session that has not expired; nil: there is none.
func (s *sessions) take() *concurrency.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.idle) > 0 {
		last := len(s.idle) - 1
		session := s.idle[last]
		s.idle = s.idle[:last]
		select {
		case <-session.Done():
		default:
			return session
		}
	}
	return nil
}

func (s *sessions) put(session *concurrency.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, session)
}

func (s *sessions) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, session := range s.idle {
		errs = append(errs, session.Close())
	}
	return errors.Join(errs...)
}
