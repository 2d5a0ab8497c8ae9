package lock_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A cutter is a proxy that can cut its connections.
type cutter struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	isCut   bool
	conns   []net.Conn
	running sync.WaitGroup
}

func newCutter(t *testing.T, target string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, target: target}
	c.running.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		c.running.Wait()
	})
	return c
}

func (c *cutter) addr() string { return c.listener.Addr().String() }

func (c *cutter) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.target)
		if err != nil || !c.keep(near, far) {
			_ = near.Close()
			continue
		}
		c.running.Go(func() { c.copy(far, near) })
		c.running.Go(func() { c.copy(near, far) })
	}
}

func (c *cutter) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = to.Close(), from.Close()
}

// keep registers a pair of connections. It returns false while the proxy is cut.
func (c *cutter) keep(near, far net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		_ = far.Close()
		return false
	}
	c.conns = append(c.conns, near, far)
	return true
}

// cut closes all connections, and makes the proxy close new ones immediately.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// mend makes the proxy accept connections again.
func (c *cutter) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = false
}
