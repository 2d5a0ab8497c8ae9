package sim

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"grablab/internal/explore/schedule"
	"grablab/internal/grab/lock"

	"github.com/go-zookeeper/zk"
)

// ensemble returns the settings with which an instance's current process connects to the simulated
// ZooKeeper server.
func (s *zkServer) ensemble(inst *instance) *lock.Ensemble {
	process := inst.processes.Load()
	return &lock.Ensemble{
		Servers: []string{"127.0.0.1:2181"}, // a literal address needs no DNS lookup
		Around: func(ctx context.Context, path string, call func() error) error {
			return s.around(ctx, inst, path, call)
		},
		Dial:   func(string, string, time.Duration) (net.Conn, error) { return s.dial(inst, process) },
		Buffer: 64 << 10,
	}
}

// zkPath is the path of a request that creates no node. Such a path may contain another driver's
// token. The simulation takes any token in a string for the caller's own, so zkPath is a separate
// type.
type zkPath string

// around blocks a call until the simulation releases it. ZooKeeper calls need this wrapper, because
// they take no context.
func (s *zkServer) around(ctx context.Context, inst *instance, path string, ask func() error) error {
	w := inst.world
	if w == nil {
		return ask()
	}
	sent := []any{zkPath(path)}
	if strings.HasSuffix(path, "-") { // the server appends a sequence number
		sent[0] = path
	}
	asked := zkRequest{inst, path}
	c := &call{
		target: s.name, node: s.node, sent: [][]any{sent}, lost: zk.ErrConnectionClosed,
		text: func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return cmp.Or(s.answers[asked], path+": no reply")
		},
	}
	return w.gate.through(context.WithoutCancel(ctx), inst, c, func(context.Context) error {
		s.mu.Lock()
		if c.outcome == schedule.ReplyLost {
			s.losing[inst] = true
		}
		delete(s.answers, asked)
		s.under += c.fingerprint()
		s.mu.Unlock()
		err := ask()
		s.mu.Lock()
		s.under -= c.fingerprint()
		s.mu.Unlock()
		return err
	})
}

// zkConn is a client's connection to the simulated server. While the client's process is paused,
// the server does not read from it.
type zkConn struct {
	stream  // the server's mu guards it
	server  *zkServer
	owner   *instance // nil if the connection belongs to no schedule
	process int64
	over    <-chan struct{} // closed when the schedule ends
	session *zkSession      // nil until the client has a session
	in      []byte          // the server's mu guards it
}

var errZKOver = errors.New("sim: the server no longer listens")

// dial connects a process of an instance. After the process has died, the server ignores it.
func (s *zkServer) dial(inst *instance, process int64) (net.Conn, error) {
	c := &zkConn{stream: stream{mu: &s.mu}, server: s, owner: inst}
	c.stream.pausedLocked = c.pausedLocked
	if inst != nil {
		w := inst.world
		if w == nil {
			return nil, errZKOver
		}
		time.Sleep(time.Duration(inst.number) * offset) // keep the timers of different clients apart
		c.process, c.over = process, w.ended
	}
	if s.down.Load() {
		return nil, errDown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return c, nil
}

func (c *zkConn) stopped() bool {
	select {
	case <-c.over:
		return false
	default:
		return c.owner != nil && (c.owner.stopped.Load() || c.owner.processes.Load() != c.process)
	}
}

// Write appends b to the input and executes all complete requests.
func (c *zkConn) Write(b []byte) (int, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.in = append(c.in, b...)
	c.takeInLocked()
	return len(b), nil
}

// takeInLocked executes all complete requests and keeps an incomplete one for later.
func (c *zkConn) takeInLocked() {
	for len(c.in) >= 4 && !c.closed && !c.stopped() {
		end := 4 + int(binary.BigEndian.Uint32(c.in))
		if len(c.in) < end {
			return
		}
		r := &juteReader{c.in[4:end]}
		c.in = c.in[end:]
		if c.session == nil {
			c.server.connectLocked(c, r)
		} else {
			c.server.requestLocked(c, r)
		}
	}
}

// pausedLocked handles the input that arrived during a pause. If the process is still paused, it
// returns a channel that is closed when the schedule ends.
func (c *zkConn) pausedLocked() <-chan struct{} {
	c.takeInLocked()
	if c.stopped() {
		return c.over
	}
	return nil
}

func (c *zkConn) sendLocked(message jute) {
	c.stream.sendLocked(append(jute{}.int(int32(len(message))), message...))
}

// sendDeletedLocked tells the client that a node that it watched was deleted.
func (c *zkConn) sendDeletedLocked(path string) {
	const connected = 3
	c.sendLocked(jute{}.int(-1).long(-1).int(0).int(int32(zk.EventNodeDeleted)).int(connected).text(path))
}

// closeLocked closes the connection and removes its watches, but does not end the session.
func (c *zkConn) closeLocked() {
	if c.closed {
		return
	}
	c.closed = true
	own := func(other *zkConn) bool { return other == c }
	c.server.conns = slices.DeleteFunc(c.server.conns, own)
	for path, conns := range c.server.watches {
		if c.server.watches[path] = slices.DeleteFunc(conns, own); len(c.server.watches[path]) == 0 {
			delete(c.server.watches, path)
		}
	}
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
	}
	if c.stopped() {
		c.server.closedUnread = append(c.server.closedUnread, c)
	}
	c.notifyLocked()
}

func (c *zkConn) Close() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.closeLocked()
	return nil
}

// jute builds a message in Jute, the serialization format of ZooKeeper.
type jute []byte

func (b jute) int(n int32) jute  { return binary.BigEndian.AppendUint32(b, uint32(n)) }
func (b jute) long(n int64) jute { return binary.BigEndian.AppendUint64(b, uint64(n)) }
func (b jute) bytes(v []byte) jute {
	if v == nil {
		return b.int(-1)
	}
	return append(b.int(int32(len(v))), v...)
}
func (b jute) text(s string) jute { return append(b.int(int32(len(s))), s...) }

// juteReader reads a message field by field. It panics if the message is too short.
type juteReader struct{ rest []byte }

func (r *juteReader) take(n int) []byte {
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *juteReader) int() int32  { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *juteReader) long() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }
func (r *juteReader) bool() bool  { return r.take(1)[0] != 0 }
func (r *juteReader) bytes() []byte {
	n := r.int()
	if n < 0 {
		return nil
	}
	return slices.Clone(r.take(int(n)))
}
func (r *juteReader) text() string { return string(r.bytes()) }

func (r *juteReader) texts() []string {
	all := make([]string, max(r.int(), 0))
	for i := range all {
		all[i] = r.text()
	}
	return all
}
