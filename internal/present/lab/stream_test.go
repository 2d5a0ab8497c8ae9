package lab

import "testing"

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
