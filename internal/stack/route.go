package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/rs/zerolog"
)

// Direction of the bytes that a fault of a route strikes.
type Direction int

// The directions.
const (
	BothWays Direction = iota
	ToServer           // requests
	ToClient           // replies
)

// streams are toxiproxy's names of the direction.
func (d Direction) streams() []string {
	switch d {
	case ToServer:
		return []string{"upstream"}
	case ToClient:
		return []string{"downstream"}
	default:
		return []string{"upstream", "downstream"}
	}
}

// Heal undoes a fault. Further calls do nothing and return the same.
type Heal func() error

// Heals undo several faults.
type Heals []Heal

// All undoes each of them, also if one fails.
func (h Heals) All() error {
	var errs []error
	for _, heal := range h {
		errs = append(errs, heal())
	}
	return errors.Join(errs...)
}

// Route is a proxy in this process between one instance and one server. It
// bears one fault at a time. Its methods are safe for concurrent use.
//
// The links of its connections, with what befalls the bytes on them, are
// toxiproxy's. Accepting and ending connections is not left to toxiproxy, whose
// links leave goroutines behind where a connection ends with bytes under way.
type Route struct {
	From, Server string // the instance and the server
	Addr         string // where it listens

	upstream string
	proxy    *toxiproxy.Proxy // holds the toxics; it is never started
	api      *toxiproxy.ApiServer

	mu       sync.Mutex // one fault, heal or close at a time
	bears    bool
	closed   bool
	listener net.Listener
	accepted chan struct{} // closes when no connection is accepted any more

	linksMu sync.Mutex
	links   []*link
	born    int // links so far
}

// Route opens a route from an instance, whose name is for messages alone, to a
// server of the stack. It lives until its Close or that of the stack.
func (s *Stack) Route(from, server string) (*Route, error) {
	upstream, err := s.address(server)
	if err != nil {
		return nil, err
	}
	return s.route(from, server, upstream)
}

func (s *Stack) route(from, server, upstream string) (*Route, error) {
	quiet := zerolog.Nop()
	r := &Route{From: from, Server: server, upstream: upstream}
	r.api = toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), quiet)
	r.proxy = toxiproxy.NewProxy(r.api, from+" "+server, "", upstream)
	if err := r.listen("127.0.0.1:0"); err != nil {
		return nil, err
	}
	r.Addr = r.listener.Addr().String()
	s.atClose(func() { _ = r.Close() })
	return r, nil
}

func (r *Route) detour(a *Addresses) {
	for _, p := range a.places() {
		if p.server == r.Server {
			*p.addr = strings.Replace(*p.addr, r.upstream, r.Addr, 1)
		}
	}
}

// Cut drops all bytes of a direction. Its heal ends the connections of the
// route, for bytes are missing from them.
func (r *Route) Cut(d Direction) (Heal, error) {
	return r.bear(func() error { return r.poison(d, dropToxic, nil) }, r.endLinks)
}

// Still has bytes wait, and the ends of connections with them, as TCP has them
// wait on a network that is down. With its heal they arrive.
func (r *Route) Still(d Direction) (Heal, error) {
	return r.bear(func() error { return r.poison(d, stillToxic, nil) }, r.cleanse)
}

// Delay has bytes arrive later, by latency give or take jitter. With its heal
// those arrive that are under way.
func (r *Route) Delay(latency, jitter time.Duration, d Direction) (Heal, error) {
	return r.bear(func() error {
		return r.poison(d, "latency", map[string]any{"latency": latency.Milliseconds(), "jitter": jitter.Milliseconds()})
	}, r.cleanse)
}

// Refuse resets the connections of the route and refuses new ones.
func (r *Route) Refuse() (Heal, error) {
	return r.bear(r.hangUp, func() error { return r.listen(r.Addr) })
}

// Close ends the route and its connections. What a fault has held back is lost.
func (r *Route) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return r.hangUp()
}

// Routes are several, to be struck as one.
type Routes []*Route

// Each has a fault strike all of them. What has struck is undone if one fails.
func (w Routes) Each(strike func(*Route) (Heal, error)) (Heal, error) {
	var done Heals
	for _, r := range w {
		heal, err := strike(r)
		if err != nil {
			return nil, errors.Join(err, done.All())
		}
		done = append(done, heal)
	}
	return done.All, nil
}

// Detours are the routes, for Addresses.Via.
func (w Routes) Detours() []Detour {
	detours := make([]Detour, len(w))
	for i, r := range w {
		detours[i] = r
	}
	return detours
}

// Close closes all of them.
func (w Routes) Close() error {
	var errs []error
	for _, r := range w {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// bear lets a fault strike, and returns what undoes it.
func (r *Route) bear(strike, undo func() error) (Heal, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, fmt.Errorf("stack: route from %s to %s: it is closed", r.From, r.Server)
	case r.bears:
		return nil, fmt.Errorf("stack: route from %s to %s: it bears another fault", r.From, r.Server)
	}
	if err := strike(); err != nil {
		return nil, errors.Join(err, r.cleanse())
	}
	r.bears = true
	return sync.OnceValue(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed {
			return nil
		}
		r.bears = false
		return undo()
	}), nil
}

// listenPatience is for how long an address may be in the way of its own past.
const listenPatience = 2 * time.Second

func (r *Route) listen(addr string) error {
	var err error
	for deadline := time.Now().Add(listenPatience); ; time.Sleep(pollInterval) {
		if r.listener, err = net.Listen("tcp", addr); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("stack: route from %s to %s: %w", r.From, r.Server, err)
		}
	}
	r.accepted = make(chan struct{})
	go r.accept(r.listener, r.accepted)
	return nil
}

// hangUp stops listening, and ends the connections with a reset.
func (r *Route) hangUp() error {
	if !closed(r.accepted) {
		_ = r.listener.Close()
		<-r.accepted
	}
	return r.endLinks()
}

// dialTimeout is for a server that is stopped and has as many callers waiting
// as it has room for.
const dialTimeout = time.Second

func (r *Route) accept(l net.Listener, done chan<- struct{}) {
	defer close(done)
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", r.upstream, dialTimeout)
		if err != nil {
			reset(client)
			continue
		}
		r.connect(client, server)
	}
}

// connect joins two connections with a link in each direction.
func (r *Route) connect(client, server net.Conn) {
	r.linksMu.Lock()
	defer r.linksMu.Unlock()
	r.links = slices.DeleteFunc(r.links, (*link).ended)
	r.born++
	k := &link{client: client, server: server, done: make(chan struct{})}
	r.links = append(r.links, k)
	var ways sync.WaitGroup
	ways.Add(2)
	go func() { ways.Wait(); close(k.done) }()
	r.start(fmt.Sprintf("%d up", r.born), stream.Upstream, client, server, ways.Done)
	r.start(fmt.Sprintf("%d down", r.born), stream.Downstream, server, client, ways.Done)
}

func (r *Route) start(name string, d stream.Direction, from, to net.Conn, done func()) {
	r.proxy.Toxics.StartLink(r.api, name, from, &drain{to: to, from: from, done: done}, d)
}

// poison puts a toxic into the links of a direction, those to come among them.
func (r *Route) poison(d Direction, kind string, attributes map[string]any) error {
	for _, way := range d.streams() {
		if err := addToxic(r.proxy.Toxics, kind, way, attributes); err != nil {
			return fmt.Errorf("stack: route from %s to %s: %w", r.From, r.Server, err)
		}
	}
	return nil
}

// cleanse takes the toxics away; what they hold goes on.
func (r *Route) cleanse() error {
	r.proxy.Toxics.ResetToxics(context.Background())
	return nil
}

// endLinks ends the connections and then takes the toxics away, so that what
// they hold arrives nowhere. No connection begins meanwhile: bytes would be
// missing from it.
func (r *Route) endLinks() error {
	r.linksMu.Lock()
	defer r.linksMu.Unlock()
	for _, k := range r.links {
		reset(k.client)
		reset(k.server)
	}
	err := r.cleanse()
	for _, k := range r.links {
		<-k.done
	}
	r.links = nil
	return err
}

// link is a connection through a route: one from the client, one to the server.
type link struct {
	client, server net.Conn
	done           chan struct{} // closes when both directions have ended
}

func (k *link) ended() bool { return closed(k.done) }

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// reset closes a connection without a farewell.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// drain is the end of a link. It takes bytes even where they can no longer
// arrive: toxiproxy's goroutines wait for ever on an end that has failed.
type drain struct {
	to, from net.Conn
	done     func()
}

func (d *drain) Write(p []byte) (int, error) {
	if _, err := d.to.Write(p); err != nil {
		_ = d.from.Close()
	}
	return len(p), nil
}

func (d *drain) Close() error {
	defer d.done()
	return d.to.Close()
}
