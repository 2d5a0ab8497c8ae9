package lockbench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"grablab/internal/grab/lock"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcdMutex is the lock of etcd's own package concurrency. Two that share a
// session share a key, and both are let in (F28): each worker has one to itself.
var etcdMutex = Contestant{
	Name: "etcd-mutex", Title: "etcd's concurrency.Mutex, a session for each worker", Peer: true, Needs: lock.Etcd, Excludes: lock.Global,
	open: func(t tools) (contender, error) {
		s := &sessions{client: t.Etcd, ttl: int(t.TTL.Seconds())}
		return contender{take: s.take, close: s.close}, nil
	},
}

// sessions are opened as workers first need them, and then kept: what is
// measured is the lock, and not the grant of a lease.
type sessions struct {
	client *clientv3.Client
	ttl    int // s

	mu   sync.Mutex
	idle []*concurrency.Session
}

func (s *sessions) take(ctx context.Context, key string) (release, error) {
	session, err := s.get()
	if err != nil {
		return nil, fmt.Errorf("lockbench: session of etcd: %w", err)
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
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		defer s.mu.Unlock()
		session := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return session, nil
	}
	s.mu.Unlock()
	return concurrency.NewSession(s.client, concurrency.WithTTL(s.ttl))
}

// put takes a session back, if it still stands.
func (s *sessions) put(session *concurrency.Session) {
	select {
	case <-session.Done():
		return
	default:
	}
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
