package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Config of a proxy.
type Config struct {
	Server   string // what its events call the server
	Protocol Protocol
	// Dial makes a connection to the server. A client that comes when it fails is reset.
	Dial func(ctx context.Context) (net.Conn, error)
	Say  func(text string) // what is worth telling the user; nil: nothing is told
}

// Proxy listens on a port of its own, on the loopback interface. Its methods are safe
// for concurrent use.
type Proxy struct {
	cfg      Config
	listener net.Listener
	accepted chan struct{} // closes when no connection is accepted any more
	tap      atomic.Pointer[Tap]
	conns    atomic.Uint64

	mu     sync.Mutex
	links  map[*link]bool
	closed bool
}

// Listen opens a proxy, which is open until Close.
func Listen(cfg Config) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("wire: proxy to %s: %w", cfg.Server, err)
	}
	if cfg.Say == nil {
		cfg.Say = func(string) {}
	}
	p := &Proxy{cfg: cfg, listener: l, accepted: make(chan struct{}), links: map[*link]bool{}}
	go p.accept()
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Server is what its events call the server.
func (p *Proxy) Server() string { return p.cfg.Server }

// Use has requests go through a tap from now on; nil: through none.
func (p *Proxy) Use(t Tap) {
	if t == nil {
		p.tap.Store(nil)
		return
	}
	p.tap.Store(&t)
}

// HangUp resets all connections. New ones are taken.
func (p *Proxy) HangUp() {
	for _, l := range p.all() {
		l.reset()
		<-l.done
	}
}

// Close ends the proxy and its connections. A tap that waits has its context end.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	<-p.accepted
	p.HangUp()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

func (p *Proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) accept() {
	defer close(p.accepted)
	var begun sync.WaitGroup
	defer begun.Wait()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		begun.Go(func() { p.serve(client) }) // a server that is slow to accept holds up no other client
	}
}

// serve connects a client, and returns when the connection is on its way.
func (p *Proxy) serve(client net.Conn) {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &link{proxy: p, client: client, number: p.conns.Add(1), ctx: ctx, cancel: cancel, done: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		reset(client)
		return
	}
	p.links[l] = true
	p.mu.Unlock()
	go func() {
		l.run()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
		close(l.done)
	}()
}

func (l *link) say(format string, args ...any) {
	l.proxy.cfg.Say(fmt.Sprintf("connection %d to %s: ", l.number, l.proxy.cfg.Server) + fmt.Sprintf(format, args...))
}

// reset closes a connection by a RST: what was not yet sent is lost.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
