package lab

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxMessages is the number of messages that a stream keeps for listeners that reconnect. With one
// message per tickEvery, they cover a minute.
const maxMessages = 600

// stream numbers messages and sends them to its listeners as server-sent events. The caller
// prevents concurrent calls.
type stream struct {
	id        string // distinguishes this stream from that of another lab
	number    uint64 // of the last message
	messages  []message
	listeners map[chan []byte]struct{}
	closed    bool
}

type message struct {
	number uint64
	text   []byte
}

func newStream() *stream {
	return &stream{id: rand.Text()[:8], listeners: map[chan []byte]struct{}{}}
}

// event formats data as the event with the last number.
func (s *stream) event(data []byte) []byte {
	return fmt.Appendf(nil, "id: %s.%d\nevent: tick\ndata: %s\n\n", s.id, s.number, data)
}

// send sends data as the next message. It drops a listener that does not keep up: the listener's
// channel closes, and the page connects again.
func (s *stream) send(data []byte) {
	s.number++
	text := s.event(data)
	s.messages = append(s.messages, message{s.number, text})
	if extra := len(s.messages) - maxMessages; extra > 0 {
		s.messages = slices.Delete(s.messages, 0, extra)
	}
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

// missed returns the messages since the one with the given event id. It returns false if the stream
// does not have all of them.
func (s *stream) missed(id string) (text []byte, ok bool) {
	stream, number, _ := strings.Cut(id, ".")
	since, err := strconv.ParseUint(number, 10, 64)
	if err != nil || stream != s.id {
		return nil, false
	}
	if since == s.number {
		return nil, true
	}
	i := slices.IndexFunc(s.messages, func(m message) bool { return m.number == since+1 })
	if i < 0 {
		return nil, false
	}
	for _, m := range s.messages[i:] {
		text = append(text, m.text...)
	}
	return text, true
}

func (s *stream) close() {
	s.closed = true
	for c := range s.listeners {
		s.drop(c)
	}
}
