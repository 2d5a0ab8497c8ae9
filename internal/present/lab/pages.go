package lab

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"
)

// tickEvery is the time between two ticks.
const tickEvery = 100 * time.Millisecond

// pages holds the latest state that all open pages show. It is safe for concurrent use.
type pages struct {
	state *state

	mu     sync.Mutex
	latest []byte        // the last tick as JSON
	newer  chan struct{} // closed once latest is out of date
}

func newPages(s *state) *pages {
	p := &pages{state: s, newer: make(chan struct{})}
	p.tick()
	return p
}

// tick updates the state that the pages show, if it has changed.
func (p *pages) tick() {
	text, err := json.Marshal(p.state.tick(time.Now()))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || bytes.Equal(text, p.latest) {
		return
	}
	p.latest = text
	close(p.newer)
	p.newer = make(chan struct{})
}

// current returns the latest state, and a channel that is closed once there is a newer one.
func (p *pages) current() (text []byte, newer <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest, p.newer
}
