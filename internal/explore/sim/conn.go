package sim

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// conn is a client's connection to a simulated Redis server. Write runs each command immediately,
// so its reply is ready for the next Read.
//
// A SUBSCRIBE runs after Write has returned, because it may have to wait for its turn. Write must
// not wait, because go-redis holds a mutex during the call. A goroutine that waits for a mutex
// stops the simulated clock.
type conn struct {
	node  *redisServer
	owner *instance
	peer  *server.Peer
	in    []byte
	multi bool // whether the client has sent MULTI but not yet EXEC

	mu         sync.Mutex
	out        []byte
	output     chan struct{} // closed when output arrives; nil unless a Read is waiting
	deadline   time.Time
	closed     bool
	subscribed bool
	queue      [][]string // a waiting SUBSCRIBE and all commands after it
}

func dial(n *redisServer, owner *instance) *conn {
	c := &conn{node: n, owner: owner}
	c.peer = server.NewPeer(bufio.NewWriter((*sink)(c)))
	return c
}

var errProtocol = errors.New("sim: this is not a valid Redis request")

// Write runs all complete commands. It keeps an incomplete command for the next call.
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
	command := strings.ToLower(args[0])
	c.mu.Lock()
	if first := len(c.queue) == 0; !first || command == "subscribe" || command == "psubscribe" {
		c.queue = append(c.queue, args)
		c.mu.Unlock()
		w := c.owner.world
		if first && (w == nil || !w.gate.subscribing(c.owner, c.node.node, c.subscribe, args)) {
			c.subscribe()
		}
		return
	}
	c.mu.Unlock()
	switch command {
	case "multi":
		c.multi = true
	case "exec", "discard":
		c.multi = false
	}
	c.node.dispatch(c.peer, args, c.multi)
}

// subscribe runs the queued commands. If the server is down, it closes the connection instead.
func (c *conn) subscribe() {
	c.mu.Lock()
	queue := c.queue
	c.queue = nil
	closed, first := c.closed, !c.subscribed
	c.subscribed = c.subscribed || !closed
	c.mu.Unlock()
	if closed {
		return
	}
	if first {
		c.node.mu.Lock()
		c.node.subscribers = append(c.node.subscribers, c)
		c.node.mu.Unlock()
	}
	if c.node.down.Load() {
		c.Close()
		return
	}
	for _, args := range queue {
		c.node.dispatch(c.peer, args, false)
	}
}

// Read blocks until output is available.
func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) == 0 {
		if c.closed {
			return 0, io.EOF
		}
		if err := c.awaitLocked(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.out)
	c.out = c.out[n:]
	return n, nil
}

// awaitLocked unlocks mu and waits until the server has written to the connection. It locks mu
// again before it returns.
func (c *conn) awaitLocked() error {
	output := make(chan struct{})
	c.output = output
	var expired <-chan time.Time
	if !c.deadline.IsZero() {
		timer := time.NewTimer(time.Until(c.deadline))
		defer timer.Stop()
		expired = timer.C
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-output:
		return nil
	case <-expired:
		return os.ErrDeadlineExceeded
	}
}

func (c *conn) notifyLocked() {
	if c.output != nil {
		close(c.output)
		c.output = nil
	}
}

// sink is the io.Writer through which the simulated server sends output to a client.
type sink conn

func (s *sink) Write(b []byte) (int, error) {
	c := (*conn)(s)
	c.deliver(b, c.node.messages.copiesFor(c, b))
	return len(b), nil
}

func (c *conn) deliver(b []byte, times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range times {
		c.out = append(c.out, b...)
	}
	c.notifyLocked()
}

// Close closes the connection and ends its subscriptions.
func (c *conn) Close() error {
	c.mu.Lock()
	unsubscribe := c.subscribed && !c.closed
	c.closed = true
	c.notifyLocked()
	c.mu.Unlock()
	if unsubscribe {
		c.node.dispatch(c.peer, []string{"UNSUBSCRIBE"}, false)
		c.node.dispatch(c.peer, []string{"PUNSUBSCRIBE"}, false)
		c.node.mu.Lock()
		c.node.subscribers = slices.DeleteFunc(c.node.subscribers, func(other *conn) bool { return other == c })
		c.node.mu.Unlock()
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

func (c *conn) LocalAddr() net.Addr  { return &net.UnixAddr{} }
func (c *conn) RemoteAddr() net.Addr { return &net.UnixAddr{} }

// readCommand returns the first command in b and the remaining bytes. args is nil if the command is
// incomplete.
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

// readCount reads a line that contains a number after the byte mark. It returns -1 if the line is
// incomplete.
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
