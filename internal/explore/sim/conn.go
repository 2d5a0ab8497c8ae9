package sim

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// conn is a client's connection to a node: Write runs the commands and has
// their replies ready, so that nobody ever waits on it but a subscriber.
//
// A SUBSCRIBE is on its way when Write returns, and what is sent after it
// queues behind it: go-redis holds a mutex while it sends one, and whoever
// waited on that would never let a bubble settle.
type conn struct {
	node  *node
	owner *instance
	peer  *server.Peer
	in    []byte
	multi bool // between MULTI and EXEC

	mu       sync.Mutex
	out      []byte
	arrived  chan struct{} // closed by the next output; nil: nobody waits
	deadline time.Time
	closed   bool
	listens  bool
	queue    [][]string // behind a SUBSCRIBE that is on its way
	onItsWay bool
}

func dial(n *node, owner *instance) *conn {
	c := &conn{node: n, owner: owner}
	c.peer = server.NewPeer(bufio.NewWriter((*sink)(c)))
	return c
}

var errProtocol = errors.New("sim: not what a Redis client sends")

// Write takes whole commands, as go-redis flushes them.
func (c *conn) Write(b []byte) (int, error) {
	if c.isClosed() {
		return 0, net.ErrClosed
	}
	c.in = append(c.in, b...)
	for len(c.in) > 0 {
		args, rest, err := readCommand(c.in)
		if err != nil {
			return 0, err
		}
		if args == nil {
			break
		}
		c.in = rest
		c.command(args)
	}
	if len(c.in) == 0 {
		c.in = nil
	}
	return len(b), nil
}

func (c *conn) command(args []string) {
	subscribes := strings.EqualFold(args[0], "subscribe") || strings.EqualFold(args[0], "psubscribe")
	c.mu.Lock()
	if c.onItsWay || subscribes {
		c.queue = append(c.queue, args)
		first := !c.onItsWay
		c.onItsWay = true
		c.mu.Unlock()
		if first && !c.owner.listening(c, args) {
			c.arrive()
		}
		return
	}
	c.mu.Unlock()
	switch strings.ToLower(args[0]) {
	case "multi":
		c.multi = true
	case "exec", "discard":
		c.multi = false
	}
	c.node.dispatch(c.peer, args, c.multi)
}

// arrive runs what is queued. A node that is down hangs up.
func (c *conn) arrive() {
	c.mu.Lock()
	queue := c.queue
	c.queue, c.onItsWay = nil, false
	gone, first := c.closed, !c.listens
	c.listens = c.listens || !gone
	c.mu.Unlock()
	if gone {
		return
	}
	if first {
		c.node.hear(c)
	}
	if c.node.down {
		c.Close()
		return
	}
	for _, args := range queue {
		c.node.dispatch(c.peer, args, false)
	}
}

// Read waits for output.
func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) == 0 {
		if c.closed {
			return 0, io.EOF
		}
		if err := c.await(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.out)
	c.out = c.out[n:]
	return n, nil
}

// await is called with mu held, and gives it up while it waits.
func (c *conn) await() error {
	arrived := make(chan struct{})
	c.arrived = arrived
	var expired <-chan time.Time
	if !c.deadline.IsZero() {
		timer := time.NewTimer(time.Until(c.deadline))
		defer timer.Stop()
		expired = timer.C
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-arrived:
		return nil
	case <-expired:
		return os.ErrDeadlineExceeded
	}
}

// notify is called with mu held.
func (c *conn) notify() {
	if c.arrived != nil {
		close(c.arrived)
		c.arrived = nil
	}
}

// sink is where the server writes.
type sink conn

func (s *sink) Write(b []byte) (int, error) {
	c := (*conn)(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, b...)
	c.notify()
	return len(b), nil
}

// Close ends the subscriptions of the connection with it.
func (c *conn) Close() error {
	c.mu.Lock()
	was, listens := c.closed, c.listens
	c.closed = true
	c.notify()
	c.mu.Unlock()
	if !was && listens {
		c.node.dispatch(c.peer, []string{"UNSUBSCRIBE"}, false)
		c.node.dispatch(c.peer, []string{"PUNSUBSCRIBE"}, false)
		c.node.forget(c)
	}
	return nil
}

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *conn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return nil }
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return nowhere{} }
func (c *conn) RemoteAddr() net.Addr { return nowhere{} }

type nowhere struct{}

func (nowhere) Network() string { return "bubble" }
func (nowhere) String() string  { return "bubble" }

// readCommand takes one command off b. It returns nil if b has only a part of one.
func readCommand(b []byte) (args []string, rest []byte, err error) {
	n, b, err := readCount(b, '*')
	if err != nil || n < 0 {
		return nil, nil, err
	}
	args = make([]string, 0, n)
	for range n {
		var size int
		if size, b, err = readCount(b, '$'); err != nil || size < 0 || len(b) < size+2 {
			return nil, nil, err
		}
		args = append(args, string(b[:size]))
		b = b[size+2:]
	}
	return args, b, nil
}

// readCount reads a line of a mark and a number; -1: it is not all there.
func readCount(b []byte, mark byte) (int, []byte, error) {
	for i := range b {
		if b[i] != '\n' {
			continue
		}
		if b[0] != mark || i < 2 {
			return 0, nil, errProtocol
		}
		n, err := strconv.Atoi(string(b[1 : i-1]))
		if err != nil || n < 0 {
			return 0, nil, errProtocol
		}
		return n, b[i+1:], nil
	}
	return -1, nil, nil
}

// listening has the schedule decide when a subscription arrives.
func (inst *instance) listening(c *conn, args []string) bool {
	x := inst.execution
	return x != nil && x.subscribing(inst, c.node, c.arrive, args)
}
