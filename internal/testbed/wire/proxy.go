package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a proxy.
type Config struct {
	Server   string // name of the server in events
	Protocol Protocol
	// Pipe, if it is not nil, copies the data of a connection without a Protocol. It returns when
	// both directions have ended. Its context ends when the proxy resets the connection.
	Pipe func(ctx context.Context, client, server net.Conn)
	// Dial connects to the server. If it fails, the proxy resets the client's connection.
	Dial func(ctx context.Context) (net.Conn, error)
	Say  func(text string) // takes messages for the user; nil discards them
}

// Proxy listens on a loopback port and forwards connections to one server. It is safe for
// concurrent use, except that only one of Refuse, Reopen and Close may run at a time.
type Proxy struct {
	cfg        Config
	addr       string
	listener   net.Listener
	acceptDone chan struct{} // closes when the proxy accepts no more connections
	tap        atomic.Pointer[Tap]
	conns      atomic.Uint64

	mu     sync.Mutex
	links  map[*link]bool
	unread string // why the proxy could not read a connection; empty if it could read all so far
}

// Listen opens a proxy, which the caller must close.
func Listen(cfg Config) (*Proxy, error) {
	if cfg.Say == nil {
		cfg.Say = func(string) {}
	}
	p := &Proxy{cfg: cfg, addr: "127.0.0.1:0", links: map[*link]bool{}}
	return p, p.Reopen()
}

// listenTimeout limits how long Reopen tries to listen while its port is still in use.
const listenTimeout = 2 * time.Second

// Reopen makes the proxy accept connections again after Refuse.
func (p *Proxy) Reopen() (err error) {
	for deadline := time.Now().Add(listenTimeout); ; time.Sleep(10 * time.Millisecond) {
		if p.listener, err = net.Listen("tcp", p.addr); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wire: proxy to %s: %w", p.cfg.Server, err)
		}
	}
	p.addr, p.acceptDone = p.listener.Addr().String(), make(chan struct{})
	go p.accept(p.listener, p.acceptDone)
	return nil
}

// Addr returns the address at which the proxy listens.
func (p *Proxy) Addr() string { return p.addr }

// Server returns the server's name in events.
func (p *Proxy) Server() string { return p.cfg.Server }

// Unreadable explains why the proxy could not read a connection. It returns "" if it could read
// all.
func (p *Proxy) Unreadable() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unread
}

// Use installs a tap for all later requests. With a nil tap, they pass directly.
func (p *Proxy) Use(t Tap) {
	if t == nil {
		p.tap.Store(nil)
		return
	}
	p.tap.Store(&t)
}

// HangUp resets all connections. The proxy still accepts new ones.
func (p *Proxy) HangUp() { p.HangUpThen(func() {}) }

// HangUpThen resets all connections. Before any new connection can begin, it calls the function then.
func (p *Proxy) HangUpThen(then func()) {
	p.mu.Lock()
	links := slices.Collect(maps.Keys(p.links))
	for _, l := range links {
		l.reset()
	}
	then()
	p.mu.Unlock()
	for _, l := range links {
		<-l.done
	}
}

// Refuse resets all connections and refuses new ones until Reopen is called.
func (p *Proxy) Refuse() {
	_ = p.listener.Close()
	<-p.acceptDone
	p.HangUp()
}

// Close stops the proxy, closes its connections, and cancels the contexts of running taps.
func (p *Proxy) Close() { p.Refuse() }

func (p *Proxy) accept(from net.Listener, done chan<- struct{}) {
	defer close(done)
	for {
		client, err := from.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for example, too many open files
			p.noteUnreadable(fmt.Sprintf("a connection to %s could not be accepted: %v", p.cfg.Server, err))
			time.Sleep(10 * time.Millisecond)
		default:
			p.serve(client)
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &link{proxy: p, client: client, number: p.conns.Add(1), ctx: ctx, cancel: cancel, done: make(chan struct{})}
	p.mu.Lock()
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

// noteUnreadable records why the proxy cannot read a connection, and also tells the user.
func (l *link) noteUnreadable(err error) {
	l.proxy.noteUnreadable(fmt.Sprintf("connection %d to %s: %v", l.number, l.proxy.cfg.Server, err))
}

func (p *Proxy) noteUnreadable(why string) {
	p.mu.Lock()
	p.unread = cmp.Or(p.unread, why)
	p.mu.Unlock()
	p.cfg.Say(why)
}

// Reset closes a connection with a TCP reset (RST), which discards unsent data.
func Reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
