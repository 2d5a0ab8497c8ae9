package lab

import (
	"fmt"
)

// stream sends numbered server-sent events to its listeners. It is not safe for concurrent use.
type stream struct {
	number    uint64 // number of the last message
	listeners map[chan []byte]struct{}
	closed    bool
}

func newStream() *stream { return &stream{listeners: map[chan []byte]struct{}{}} }

// event formats data as a server-sent event.
func event(data []byte) []byte { return fmt.Appendf(nil, "event: tick\ndata: %s\n\n", data) }

// send sends a message to all listeners. If a listener is too slow, send closes its channel, and
// its page must reconnect.
func (s *stream) send(data []byte) {
	s.number++
	text := event(data)
	for c := range s.listeners {
		select {
		case c <- text:
		default:
			s.drop(c)
		}
	}
}

func (s *stream) drop(c chan []byte) {
	if _, ok := s.listeners[c]; ok {
		delete(s.listeners, c)
		close(c)
	}
}

// subscribe returns a channel for all later messages. The channel is closed if the stream ends or
// the listener is too slow.
func (s *stream) subscribe() chan []byte {
	c := make(chan []byte, 64)
	if s.closed {
		close(c)
	} else {
		s.listeners[c] = struct{}{}
	}
	return c
}

func (s *stream) close() {
	s.closed = true
	for c := range s.listeners {
		s.drop(c)
	}
}
