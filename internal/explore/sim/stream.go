package sim

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// stream is the half of a client's connection that carries a simulated server's replies. It
// implements net.Conn except for Write and Close. Only one goroutine may call Read at a time.
type stream struct {
	mu       sync.Locker // guards all fields
	out      []byte
	closed   bool
	deadline time.Time
	news     chan struct{} // closed at the next change; nil unless a Read waits
	// pausedLocked returns nil while the client's process runs, and a channel that Read waits for
	// while the process is paused. The field is nil if pauses do not affect reads.
	pausedLocked func() <-chan struct{}
}

// Read blocks until the server has sent something.
func (s *stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var paused <-chan struct{}
		if s.pausedLocked != nil {
			paused = s.pausedLocked()
		}
		switch {
		case paused != nil:
		case len(s.out) > 0:
			n := copy(b, s.out)
			s.out = s.out[n:]
			return n, nil
		case s.closed:
			return 0, io.EOF
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		s.awaitLocked(paused)
	}
}

// awaitLocked unlocks mu while it waits for a change, for the deadline or for the end of a pause.
func (s *stream) awaitLocked(paused <-chan struct{}) {
	news := make(chan struct{})
	s.news = news
	var expired <-chan time.Time
	if paused == nil && !s.deadline.IsZero() {
		timer := time.NewTimer(time.Until(s.deadline))
		defer timer.Stop()
		expired = timer.C
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-news:
	case <-paused:
	case <-expired:
	}
}

// sendLocked makes the bytes available to the next Read.
func (s *stream) sendLocked(b []byte) {
	s.out = append(s.out, b...)
	s.notifyLocked()
}

func (s *stream) notifyLocked() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

func (s *stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	return nil
}

func (s *stream) SetDeadline(t time.Time) error    { return s.SetReadDeadline(t) }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
func (s *stream) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (s *stream) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
