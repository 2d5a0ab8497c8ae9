package stack

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"grablab/internal/testbed/wire"
)

// Direction selects whether a fault affects requests, replies or both.
type Direction int

// These are the directions in which data passes through a proxy.
const (
	BothWays Direction = iota
	ToServer           // requests
	ToClient           // replies
)

// rule says what a proxy does with data in one direction. The zero rule just forwards everything.
type rule struct {
	drop            bool // whether bytes are lost; a connection close still arrives
	hold            bool // whether bytes and connection closes wait until the rule changes
	latency, jitter time.Duration

	// lose makes the proxy drop one reply and reset its connection. after selects the request whose
	// reply is dropped. If after is nil, that is the second request.
	lose  bool
	after func(request []byte) bool
}

// flow forwards data in one direction, for all connections of a proxy, according to its current
// rule.
type flow struct {
	mu      sync.Mutex
	rule    rule
	changed chan struct{} // closes when the rule changes; nil if nothing waits for a change
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

// pass waits until the rule lets data through, and returns that rule. A delay starts when the data
// arrives. If ctx ends first, pass returns a rule that drops the data.
func (f *flow) pass(ctx context.Context, came time.Time) rule {
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
		case <-ctx.Done():
			return rule{drop: true}
		}
	}
}

type chunk struct {
	data []byte
	came time.Time
}

// backlog is how many chunks of data a connection buffers before the proxy stops reading.
const backlog = 1024

// carry copies data from one connection to another. If lost returns true for a chunk, it resets
// both connections instead.
func (f *flow) carry(ctx context.Context, from, to net.Conn, lost func(rule, []byte) bool) {
	chunks := make(chan chunk, backlog)
	var ended time.Time // when from ended; set before chunks is closed
	go func() {
		defer close(chunks)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				chunks <- chunk{bytes.Clone(buf[:n]), time.Now()}
			}
			if err != nil {
				ended = time.Now()
				return
			}
		}
	}()
	for c := range chunks {
		now := f.pass(ctx, c.came)
		switch {
		case now.drop:
			continue
		case lost(now, c.data):
			wire.Reset(to)
			wire.Reset(from)
			continue
		}
		if _, err := to.Write(c.data); err != nil {
			_ = from.Close() // this also ends the reads
		}
	}
	f.pass(ctx, ended)
	_ = to.Close()
}
