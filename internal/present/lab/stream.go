package lab

import (
	"fmt"
)

// stream numbers messages and sends them to its listeners as server-sent events. The caller
// prevents concurrent calls.
type stream struct {
	number    uint64 // of the last message
	listeners map[chan []byte]struct{}
	closed    bool
}

func newStream() *stream { return &stream{listeners: map[chan []byte]struct{}{}} }

// event formats data as an event.
func event(data []byte) []byte { return fmt.Appendf(nil, "event: tick\ndata: %s\n\n", data) }

// send sends data as the next message. It drops a listener that does not keep up: the listener's
// channel closes, and the page connects again.
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

// subscribe returns a channel for the messages to come. It closes with the stream, or if the
// listener does not keep up.
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
