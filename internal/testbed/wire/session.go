package wire

import (
	"sync"
	"sync/atomic"
)

// session is the state that both directions of a connection share.
type session struct {
	mu      sync.Mutex
	pending []request // requests without a reply, the oldest first
	head    int       // index of the oldest request in pending

	mysql mysqlSession

	tlsQuestions atomic.Int32 // in PostgreSQL, the number of requests for encryption that the server has not answered yet
}

// push adds a request for which a reply is expected.
func (s *session) push(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head > 1024 && s.head > len(s.pending)/2 || s.head == len(s.pending) {
		n := copy(s.pending, s.pending[s.head:])
		clear(s.pending[n:])
		s.pending, s.head = s.pending[:n], 0
	}
	s.pending = append(s.pending, r)
}

// first returns the oldest request without a reply. ok is false if there is none.
func (s *session) first() (r request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head == len(s.pending) {
		return r, false
	}
	return s.pending[s.head], true
}

// pop removes and returns the oldest request without a reply. It returns false if there is none.
func (s *session) pop() (r request, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head == len(s.pending) {
		return r, false
	}
	s.head++
	return s.pending[s.head-1], true
}

// confirm counts one confirmation of the oldest request. last is true if the request needs no more
// confirmations.
func (s *session) confirm() (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[s.head].left--
	return s.pending[s.head].left <= 0
}

// abandon removes and returns all waiting requests.
func (s *session) abandon() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.pending[s.head:]
	s.pending, s.head = nil, 0
	return rest
}
