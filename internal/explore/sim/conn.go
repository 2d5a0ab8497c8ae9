package sim

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"grablab/internal/tap"

	"github.com/alicebob/miniredis/v2/server"
)

// conn is a client's connection to a simulated Redis server. Write runs each command immediately,
// so the next Read finds the reply.
//
// A SUBSCRIBE runs after Write has returned, because it may have to wait for its turn. Write must
// not wait, because go-redis holds a mutex during the call. A goroutine that waits for a mutex
// stops the simulated clock.
type conn struct {
	stream
	node  *redisServer
	owner *instance
	peer  *server.Peer
	multi bool // whether the client has sent MULTI but not yet EXEC

	in     []byte       // the start of an incomplete command
	unread bytes.Reader // reader's input: the bytes of in
	reader bufio.Reader

	// mu also guards the following fields.
	subscribed bool
	queue      [][]string // a blocked SUBSCRIBE and all commands after it
}

// dial connects an instance to a simulated Redis server. The instance's go-redis client calls it.
func dial(n *redisServer, owner *instance) *conn {
	c := &conn{stream: stream{mu: &sync.Mutex{}}, node: n, owner: owner}
	c.peer = server.NewPeer(bufio.NewWriter((*sink)(c)))
	return c
}

var errProtocol = errors.New("sim: this is not a valid Redis request")

// Write runs all complete commands, and keeps an incomplete one for the next call.
func (c *conn) Write(b []byte) (int, error) {
	if c.isClosed() {
		return 0, net.ErrClosed
	}
	c.in = append(c.in, b...)
	c.unread.Reset(c.in)
	c.reader.Reset(&c.unread)
	for {
		command, err := server.ParseReply(&c.reader) // in the protocol, commands look like replies
		if err == io.EOF {
			return len(b), nil
		}
		words, ok := command.([]any)
		if err != nil || !ok {
			return 0, errors.Join(errProtocol, err)
		}
		args := make([]string, len(words))
		for i, w := range words {
			args[i], _ = w.(string)
		}
		c.in = c.in[len(c.in)-c.unread.Len()-c.reader.Buffered():]
		c.command(args)
	}
}

// command runs a client's command. It puts a SUBSCRIBE, and all commands after it, into the queue
// until the simulation lets the SUBSCRIBE run.
func (c *conn) command(args []string) {
	command := strings.ToLower(args[0])
	c.mu.Lock()
	if first := len(c.queue) == 0; !first || command == "subscribe" || command == "psubscribe" {
		c.queue = append(c.queue, args)
		c.mu.Unlock()
		w := c.owner.world
		text := func() string { return strings.Join(args, " ") }
		if first && (w == nil || !w.gate.subscribe(c.owner, &call{phase: tap.Acquire, target: c.node.name, deliver: c.subscribe, text: text})) {
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

// subscribe runs the queued commands, or closes the connection if the server is down.
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
		c.sendLocked(b)
	}
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
