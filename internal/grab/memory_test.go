package grab_test

import (
	"slices"
	"sync"
	"time"

	"grablab/internal/history"
)

// memory keeps events in memory. Its field now is the clock.
type memory struct {
	instance string
	now      func() time.Duration

	mu     sync.Mutex
	events []history.Event
}

// Record appends e.
func (m *memory) Record(e history.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.Seq, e.T, e.Instance = uint64(len(m.events)+1), m.now(), m.instance
	m.events = append(m.events, e)
}

// Events returns a copy of all events so far.
func (m *memory) Events() []history.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}
