package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// tickEvery is the time between two ticks.
const tickEvery = 100 * time.Millisecond

// pages sends state updates to all open pages, as server-sent events. It is safe for concurrent use.
type pages struct {
	state *state

	mu        sync.Mutex
	listeners map[chan []byte]struct{} // one for each page; nil once the lab ends
	last      []byte                   // the last tick; an unchanged tick is not sent again
}

func newPages(s *state) *pages { return &pages{state: s, listeners: map[chan []byte]struct{}{}} }

// event formats data as a server-sent event.
func event(data []byte) []byte { return fmt.Appendf(nil, "event: tick\ndata: %s\n\n", data) }

// tick sends the latest changes to all open pages.
func (p *pages) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, changed := p.state.tick(time.Now())
	t.Tiles = changed
	text, err := json.Marshal(t)
	if err != nil || bytes.Equal(text, p.last) {
		return
	}
	p.last = text
	p.state.orders.markPublished(t.Tiles)
	p.send(event(text))
}

// send sends a message to all pages. If a page is too slow, send closes its channel, so that the
// page must reconnect.
func (p *pages) send(message []byte) {
	for c := range p.listeners {
		select {
		case c <- message:
		default:
			p.drop(c)
		}
	}
}

func (p *pages) drop(c chan []byte) {
	if _, ok := p.listeners[c]; ok {
		delete(p.listeners, c)
		close(c)
	}
}

// subscribe returns the whole state as a message, a channel for later messages, and a function that
// ends the subscription. The channel closes if the lab ends or the page reads too slowly.
func (p *pages) subscribe() (now []byte, next chan []byte, stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = make(chan []byte, 64)
	if p.listeners == nil {
		close(next)
		return nil, next, func() {}
	}
	p.listeners[next] = struct{}{}
	t, _ := p.state.tick(time.Now())
	t.Whole = true
	if text, err := json.Marshal(t); err == nil {
		now = event(text)
	}
	return now, next, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drop(next)
	}
}

// close ends the streams to all pages.
func (p *pages) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.listeners {
		p.drop(c)
	}
	p.listeners = nil
}
