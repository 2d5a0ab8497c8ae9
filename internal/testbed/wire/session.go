package wire

import (
	"sync"
	"sync/atomic"
)

// session is the state that both directions of a connection share.
type session struct {
	mu      sync.Mutex
	pending []request // requests without a reply, the oldest first

	mysql mysqlSession

	tlsQuestions atomic.Int32 // in PostgreSQL, the number of pending requests for encryption
}

func (s *session) push(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, r)
}

// first returns the oldest request without a reply. If there is none, ok is false.
func (s *session) first() (r request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return r, false
	}
	return s.pending[0], true
}

// pop returns the oldest request without a reply, and removes it. If there is none, ok is false.
func (s *session) pop() (r request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return r, false
	}
	r, s.pending = s.pending[0], s.pending[1:]
	return r, true
}

// confirm counts a confirmation for the oldest request. last is true if the request waits for no
// more confirmations, or if no request is left.
func (s *session) confirm() (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return true
	}
	s.pending[0].left--
	return s.pending[0].left <= 0
}

func (s *session) abandon() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.pending
	s.pending = nil
	return rest
}
