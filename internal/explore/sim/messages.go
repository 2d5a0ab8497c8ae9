package sim

import (
	"bytes"
	"sync"

	"grablab/internal/explore/schedule"
)

// messages is what a node does with those that it publishes: at most once they reach
// a subscriber, and nothing is said of when.
type messages struct {
	mu   sync.Mutex
	as   schedule.Kind // of the step under way; any other: they are delivered
	met  int           // in that step
	held []heldMessage
}

type heldMessage struct {
	to   *conn
	text []byte
}

// begin has the messages of the next step be lost, late, or come twice.
func (m *messages) begin(as schedule.Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.as, m.met = as, 0
}

// end ends that, and says whether there were any.
func (m *messages) end() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.as = 0
	return m.met > 0
}

var messageHead = []byte("*3\r\n$7\r\nmessage\r\n")

// outOf is how often output of a node reaches a connection now.
func (m *messages) outOf(c *conn, text []byte) (times int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !bytes.HasPrefix(text, messageHead) {
		return 1
	}
	m.met++
	switch cut := c.owner.cut[schedule.Locks]; {
	case m.as == schedule.MessageLost:
		return 0
	case m.as == schedule.MessageTwice && !cut:
		return 2
	case m.as == 0 && !cut:
		return 1
	default:
		m.held = append(m.held, heldMessage{c, bytes.Clone(text)})
		return 0
	}
}

// arrive delivers what was held. It is false if nothing was.
func (m *messages) arrive() bool {
	return m.arriveWhere(func(c *conn) bool { return !c.owner.cut[schedule.Locks] }) > 0
}

// arriveAt delivers what was held for an instance.
func (m *messages) arriveAt(inst *instance) {
	m.arriveWhere(func(c *conn) bool { return c.owner == inst })
}

func (m *messages) arriveWhere(fits func(*conn) bool) int {
	m.mu.Lock()
	var now, later []heldMessage
	for _, h := range m.held {
		if fits(h.to) {
			now = append(now, h)
		} else {
			later = append(later, h)
		}
	}
	m.held = later
	m.mu.Unlock()
	for _, h := range now {
		h.to.deliver(h.text, 1)
	}
	return len(now)
}

func (m *messages) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.as, m.held = 0, nil
}

func (m *messages) late() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.held)
}
