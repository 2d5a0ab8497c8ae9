package lab

import (
	"fmt"
	"strings"
	"testing"
)

// TestStreamResumes checks that a listener that reconnects gets exactly the messages it missed, or
// is told that the stream no longer has them.
func TestStreamResumes(t *testing.T) {
	s := newStream()
	const sent = maxMessages + 5
	for n := range sent {
		s.send(fmt.Append(nil, "m", n+1))
	}
	for last := range sent + 1 {
		text, ok := s.missed(fmt.Sprintf("%s.%d", s.id, last))
		if want := last >= sent-maxMessages; ok != want {
			t.Fatalf("after message %d: complete %v, want %v", last, ok, want)
		}
		if n := strings.Count(string(text), "event: tick"); ok && n != sent-last {
			t.Errorf("after message %d: %d messages, want %d", last, n, sent-last)
		}
	}
	for _, id := range []string{"", "other.3", s.id + ".x"} {
		if _, ok := s.missed(id); ok {
			t.Errorf("%q: got messages for an unknown id", id)
		}
	}
}

func TestStreamDropsSlowListeners(t *testing.T) {
	s := newStream()
	slow := s.subscribe()
	for range cap(slow) + 1 {
		s.send([]byte("x"))
	}
	n := 0
	for range slow { // ends because the channel is closed
		n++
	}
	if n != cap(slow) {
		t.Errorf("got %d messages, want %d", n, cap(slow))
	}
	s.close()
	if _, open := <-s.subscribe(); open {
		t.Error("a closed stream sent a message")
	}
}
