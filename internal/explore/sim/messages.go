package sim

import (
	"bytes"
	"slices"
	"sync"

	"grablab/internal/explore/schedule"
)

// messages decides whether a published message arrives immediately, late, twice or never. Messages
// can get lost, because Redis delivers them at most once.
//
// sink.Write calls copiesFor for each message. The steps of a schedule call the other methods while
// all goroutines are blocked, so only copiesFor locks mu.
type messages struct {
	mu   sync.Mutex
	as   schedule.Kind // the current step's kind if it disturbs messages; 0 for normal delivery
	met  int           // the number of messages published in that step
	held []heldMessage
}

type heldMessage struct {
	to   *conn
	text []byte
}

// end restores normal delivery. It returns false if no message was published, so that the step had
// no effect.
func (m *messages) end() bool {
	m.as = 0
	return m.met > 0
}

var messageHead = []byte("*3\r\n$7\r\nmessage\r\n")

// copiesFor returns how many copies of a message a connection receives now: 0, 1 or 2. It stores
// messages that arrive late.
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

// arrive delivers the delayed messages of the connections for which fits returns true. It returns
// the number of these messages.
func (m *messages) arrive(fits func(*conn) bool) int {
	before := len(m.held)
	m.held = slices.DeleteFunc(m.held, func(h heldMessage) bool {
		arrives := fits(h.to)
		if arrives {
			h.to.deliver(h.text, 1)
		}
		return arrives
	})
	return before - len(m.held)
}
