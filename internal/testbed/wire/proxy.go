package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Config holds the settings of a proxy.
type Config struct {
	Server   string // name of the server in events
	Protocol Protocol
	// Dial connects to the server. If it fails, the proxy resets the client's connection.
	Dial func(ctx context.Context) (net.Conn, error)
	Say  func(text string) // takes messages for the user; nil discards them
}

// Proxy listens on a port of the loopback interface and forwards connections to one server. Its
// methods are safe for concurrent use.
type Proxy struct {
	cfg        Config
	listener   net.Listener
	acceptDone chan struct{} // closes when the proxy accepts no more connections
	tap        atomic.Pointer[Tap]
	conns      atomic.Uint64

	mu     sync.Mutex
	links  map[*link]bool
	closed bool
	unread string // why the first unreadable connection could not be read; empty if the proxy could read all
}

// Listen opens a proxy, which stays open until Close.
func Listen(cfg Config) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("wire: proxy to %s: %w", cfg.Server, err)
	}
	if cfg.Say == nil {
		cfg.Say = func(string) {}
	}
	p := &Proxy{cfg: cfg, listener: l, acceptDone: make(chan struct{}), links: map[*link]bool{}}
	go p.accept()
	return p, nil
}

// Addr returns the address at which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Server returns the name that the server has in events.
func (p *Proxy) Server() string { return p.cfg.Server }

// Unreadable returns why the proxy could not read the first unreadable connection since Listen. It
// returns the empty string if the proxy could read all connections.
func (p *Proxy) Unreadable() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unread
}

// Use makes requests pass through t from now on. If t is nil, they pass through no tap.
func (p *Proxy) Use(t Tap) {
	if t == nil {
		p.tap.Store(nil)
		return
	}
	p.tap.Store(&t)
}

// HangUp resets all connections. The proxy still accepts new ones.
func (p *Proxy) HangUp() {
	for _, l := range p.all() {
		l.reset()
		<-l.done
	}
}

// Close ends the proxy and its connections. The contexts of waiting taps end too.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	<-p.acceptDone
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
	defer close(p.acceptDone)
	var dialing sync.WaitGroup
	defer dialing.Wait()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		dialing.Go(func() { p.serve(client) }) // a slow connect must not delay other clients
	}
}

// serve starts a link for a client that has connected.
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

// noteUnreadable records why the proxy cannot read the link, and tells the user.
func (l *link) noteUnreadable(err error) {
	why := fmt.Sprintf("connection %d to %s: %v", l.number, l.proxy.cfg.Server, err)
	l.proxy.mu.Lock()
	if l.proxy.unread == "" {
		l.proxy.unread = why
	}
	l.proxy.mu.Unlock()
	l.proxy.cfg.Say(why)
}

// reset closes a connection with a RST. Data that was not sent yet is lost.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
