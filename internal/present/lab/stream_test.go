package lab

import "testing"

func TestStreamDropsSlowListeners(t *testing.T) {
	p := newPages(newState())
	_, slow, stop := p.subscribe()
	for range cap(slow) + 1 {
		p.send([]byte("x"))
	}
	n := 0
	for range slow { // ends because the channel is closed
		n++
	}
	if n != cap(slow) {
		t.Errorf("got %d messages, want %d", n, cap(slow))
	}
	stop() // does nothing for a listener that was dropped
	p.close()
	_, late, _ := p.subscribe()
	if _, open := <-late; open {
		t.Error("a closed stream sent a message")
	}
}
