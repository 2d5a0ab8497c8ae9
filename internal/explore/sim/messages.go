package sim

import (
	"bytes"
	"sync"

	"grablab/internal/explore/schedule"
)

// messages decides whether a published message arrives immediately, later, twice or never. Real
// Redis may lose a message too, because it delivers each message at most once.
//
// Its other methods run only while all goroutines are blocked, so only copiesFor needs the lock.
type messages struct {
	mu   sync.Mutex
	as   schedule.Kind // the kind of the current step; 0 for normal delivery
	met  int           // the number of messages published in that step
	held []heldMessage
}

type heldMessage struct {
	to   *conn
	text []byte
}

// begin sets how the messages of the next step are delivered.
func (m *messages) begin(as schedule.Kind) {
	m.as, m.met = as, 0
}

// end restores normal delivery. It reports whether the step published any message.
func (m *messages) end() bool {
	m.as = 0
	return m.met > 0
}

var messageHead = []byte("*3\r\n$7\r\nmessage\r\n")

// copiesFor returns how many copies of this output a connection receives now: 0, 1 or 2. It stores
// output that must arrive later.
func (m *messages) copiesFor(c *conn, text []byte) (times int) {
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

// arrive delivers the delayed messages. It returns false if there are none.
func (m *messages) arrive() bool {
	return m.arriveWhere(func(c *conn) bool { return !c.owner.cut[schedule.Locks] }) > 0
}

// arriveAt delivers the delayed messages to an instance.
func (m *messages) arriveAt(inst *instance) {
	m.arriveWhere(func(c *conn) bool { return c.owner == inst })
}

func (m *messages) arriveWhere(fits func(*conn) bool) int {
	var now, later []heldMessage
	for _, h := range m.held {
		if fits(h.to) {
			now = append(now, h)
		} else {
			later = append(later, h)
		}
	}
	m.held = later
	for _, h := range now {
		h.to.deliver(h.text, 1)
	}
	return len(now)
}
