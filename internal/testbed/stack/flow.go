package stack

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Direction of the bytes that a fault of a route strikes.
type Direction int

// The directions.
const (
	BothWays Direction = iota
	ToServer           // requests
	ToClient           // replies
)

// rule says what befalls bytes. The zero rule lets them pass.
type rule struct {
	drop            bool // they are lost; the end of a connection is not
	hold            bool // they wait until the rule changes, and so does the end
	latency, jitter time.Duration

	// lose: a reply is lost, and its connection reset. Not before such a request has
	// passed on that connection; nil: the second one.
	lose  bool
	after func(request []byte) bool
}

// flow is one direction of a route, with the rule that all of its connections
// are under. The zero flow is ready.
type flow struct {
	mu      sync.Mutex
	rule    rule
	changed chan struct{} // closes with the next change; nil: no one waits for it
}

func (f *flow) set(to rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule = to
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

func (f *flow) get() (now rule, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.rule, f.changed
}

// pass returns once it is settled what becomes of bytes that came in at some time,
// with the rule that says it.
func (f *flow) pass(came time.Time) rule {
	for {
		now, changed := f.get()
		var due <-chan time.Time
		switch {
		case now.hold:
		case now.latency == 0:
			return now
		default:
			late := now.latency + time.Duration((2*rand.Float64()-1)*float64(now.jitter))
			due = time.After(time.Until(came.Add(late)))
		}
		select {
		case <-due:
			return now
		case <-changed:
		}
	}
}

// chunk is what one read has returned.
type chunk struct {
	data []byte
	came time.Time
}

// backlog is how many chunks of a connection may be under way.
const backlog = 1024

// carry brings what comes from one connection to the other, and then its end. lost
// says of bytes that are not dropped whether they are lost with both connections.
func (f *flow) carry(from, to net.Conn, lost func(rule, []byte) bool) {
	chunks := make(chan chunk, backlog)
	go func() {
		defer close(chunks)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				chunks <- chunk{bytes.Clone(buf[:n]), time.Now()}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		now := f.pass(c.came)
		switch {
		case now.drop:
			continue
		case lost(now, c.data):
			reset(to)
			reset(from)
			continue
		}
		if _, err := to.Write(c.data); err != nil {
			_ = from.Close() // and with it the reads
		}
	}
	f.pass(time.Now())
	_ = to.Close()
}
