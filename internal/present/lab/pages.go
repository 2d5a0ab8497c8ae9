package lab

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"
)

// tickEvery is the time between two ticks.
const tickEvery = 100 * time.Millisecond

// pages sends state updates to all open pages. It is safe for concurrent use.
type pages struct {
	state *state

	mu      sync.Mutex
	stream  *stream
	began   int64  // start of the run to which seconds refers
	seconds int    // how many seconds of the run were sent
	last    []byte // the last tick without its number; an unchanged tick is not sent again
}

func newPages(s *state) *pages { return &pages{state: s, stream: newStream()} }

// tick sends the latest changes to all open pages.
func (p *pages) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream.closed {
		return
	}
	t, changed := p.state.tick(time.Now())
	if t.Tiles = changed; t.Began == p.began {
		t.Seconds = t.Seconds[min(p.seconds, len(t.Seconds)):]
	}
	text, err := json.Marshal(t)
	if err != nil || bytes.Equal(text, p.last) {
		return
	}
	p.last = text
	t.N = p.stream.number + 1
	if text, err = json.Marshal(t); err != nil {
		return
	}
	p.state.orders.markPublished(t.Tiles)
	if t.Began != p.began {
		p.began, p.seconds = t.Began, 0
	}
	p.seconds += len(t.Seconds)
	p.stream.send(text)
}

// subscribe returns a message with the whole state, a channel for later messages, and a function
// that ends the subscription.
func (p *pages) subscribe() (now []byte, next chan []byte, stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = p.stream.subscribe()
	stop = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stream.drop(next)
	}
	if p.stream.closed {
		return nil, next, stop
	}
	t, _ := p.state.tick(time.Now())
	t.N, t.Whole = p.stream.number, true
	if text, err := json.Marshal(t); err == nil {
		now = event(text)
	}
	return now, next, stop
}

// close ends the streams to all pages.
func (p *pages) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stream.close()
}
