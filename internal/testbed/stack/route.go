package stack

import (
	"bytes"
	"errors"
	"fmt"
	"grablab/internal/testbed/wait"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Heal undoes a fault. Further calls do nothing and return the same error.
type Heal func() error

// Heals collects the functions that undo several faults.
type Heals []Heal

// All undoes all faults, even if undoing one of them fails.
func (h Heals) All() error {
	var errs []error
	for _, heal := range h {
		errs = append(errs, heal())
	}
	return errors.Join(errs...)
}

// Route is a proxy in this process between one instance and one server. It can have only one fault
// at a time. Its methods are safe for concurrent use.
type Route struct {
	From, Server string // the instance and the server
	Addr         string // where the route listens

	upstream           string // the server's address
	target             string // address to which connections are made: upstream, unless redirected
	toServer, toClient flow

	mu         sync.Mutex // allows only one fault, heal or close at a time
	faulted    bool
	closed     bool
	listener   net.Listener
	acceptDone chan struct{} // closes once no more connections are accepted

	linksMu sync.Mutex
	links   []*link
}

// Route opens a route from an instance to a server of the stack. The name of the instance appears
// only in messages. The route lives until it or the stack is closed.
func (s *Stack) Route(from, server string) (*Route, error) {
	upstream, err := s.address(server)
	if err != nil {
		return nil, err
	}
	return s.route(from, server, upstream)
}

func (s *Stack) route(from, server, upstream string) (*Route, error) {
	r := &Route{From: from, Server: server, upstream: upstream, target: upstream}
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

// Cut drops all bytes of a direction. The returned Heal ends the connections of the route, because bytes are
// missing from them.
func (r *Route) Cut(d Direction) (Heal, error) {
	return r.inject(func() error { r.rule(d, rule{drop: true}); return nil }, r.endLinks)
}

// Stall makes bytes and the ends of connections wait, just as TCP does if the network is down.
// After the heal, they arrive.
func (r *Route) Stall(d Direction) (Heal, error) {
	return r.inject(func() error { r.rule(d, rule{hold: true}); return nil }, r.passAll)
}

// Delay makes bytes arrive later by latency, plus or minus up to jitter. After the heal, bytes that
// are still under way arrive at once.
func (r *Route) Delay(latency, jitter time.Duration, d Direction) (Heal, error) {
	return r.inject(func() error { r.rule(d, rule{latency: latency, jitter: jitter}); return nil }, r.passAll)
}

// LoseReplies lets requests through, but loses the next reply on each connection. It resets the
// connection instead, so the client learns at once that no reply will come. The first reply on a
// connection passes, because Redis and ZooKeeper clients send no other request before it.
func (r *Route) LoseReplies() (Heal, error) {
	return r.inject(func() error { r.rule(BothWays, rule{lose: true}); return nil }, r.passAll)
}

// LoseCommits works like LoseReplies, but only on connections on which the client of a
// MySQL-compatible server has sent a COMMIT.
func (r *Route) LoseCommits() (Heal, error) {
	return r.inject(func() error { r.rule(BothWays, rule{lose: true, after: isCommit}); return nil }, r.passAll)
}

// isCommit reports whether the bytes are a MySQL packet with a COMMIT: its length and number, the
// command and the text. A client sends nothing more before the reply arrives, so a read returns
// exactly one packet.
func isCommit(request []byte) bool {
	const header, query = 4, 0x03
	return len(request) > header && request[header] == query &&
		bytes.EqualFold(bytes.Trim(request[header+1:], " ;"), []byte("COMMIT"))
}

// Redirect ends the connections of the route and connects new ones to another server.
func (r *Route) Redirect(addr string) (Heal, error) {
	return r.inject(func() error { return r.leadTo(addr) }, func() error { return r.leadTo(r.upstream) })
}

// leadTo changes the target of the route. Meanwhile it does not listen, so that no connection is
// made to the old target.
func (r *Route) leadTo(addr string) error {
	if err := r.hangUp(); err != nil {
		return err
	}
	r.target = addr
	return r.listen(r.Addr)
}

// rule sets the rule for the bytes of one direction or of both.
func (r *Route) rule(d Direction, to rule) {
	if d != ToClient {
		r.toServer.set(to)
	}
	if d != ToServer {
		r.toClient.set(to)
	}
}

// passAll lets all bytes pass again, starting with those that were held back.
func (r *Route) passAll() error {
	r.rule(BothWays, rule{})
	return nil
}

// Refuse resets the connections of the route and refuses new ones.
func (r *Route) Refuse() (Heal, error) {
	return r.inject(r.hangUp, func() error { return r.listen(r.Addr) })
}

// Close ends the route and its connections. Bytes that a fault has held back are lost.
func (r *Route) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return r.hangUp()
}

// Routes are several routes that get the same fault at the same time.
type Routes []*Route

// Each injects a fault into all routes. If that fails for one route, Each undoes the faults on the
// previous ones.
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

// Detours returns the routes for Addresses.Via.
func (w Routes) Detours() []Detour {
	detours := make([]Detour, len(w))
	for i, r := range w {
		detours[i] = r
	}
	return detours
}

// Close closes all routes, even if closing one of them fails.
func (w Routes) Close() error {
	var errs []error
	for _, r := range w {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// inject applies a fault to the route and returns the function that undoes it.
func (r *Route) inject(strike, undo func() error) (Heal, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, fmt.Errorf("stack: route from %s to %s: it is closed", r.From, r.Server)
	case r.faulted:
		return nil, fmt.Errorf("stack: route from %s to %s: it bears another fault", r.From, r.Server)
	}
	if err := strike(); err != nil {
		return nil, err
	}
	r.faulted = true
	return sync.OnceValue(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed {
			return nil
		}
		r.faulted = false
		return undo()
	}), nil
}

// listenTimeout is how long listen retries while the port of the previous listener is still in use.
const listenTimeout = 2 * time.Second

func (r *Route) listen(addr string) error {
	var err error
	for deadline := time.Now().Add(listenTimeout); ; time.Sleep(pollInterval) {
		if r.listener, err = net.Listen("tcp", addr); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("stack: route from %s to %s: %w", r.From, r.Server, err)
		}
	}
	r.acceptDone = make(chan struct{})
	go r.accept(r.listener, r.acceptDone)
	return nil
}

// hangUp stops listening and resets all connections of the route.
func (r *Route) hangUp() error {
	if !wait.IsOver(r.acceptDone) {
		_ = r.listener.Close()
		<-r.acceptDone
	}
	return r.endLinks()
}

// dialTimeout limits the time to connect, because a stopped server with a full accept backlog never
// answers.
const dialTimeout = time.Second

func (r *Route) accept(l net.Listener, done chan<- struct{}) {
	defer close(done)
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", r.target, dialTimeout)
		if err != nil {
			reset(client)
			continue
		}
		r.connect(client, server)
	}
}

// connect links a client connection to a server connection and copies bytes in both directions.
func (r *Route) connect(client, server net.Conn) {
	r.linksMu.Lock()
	defer r.linksMu.Unlock()
	r.links = slices.DeleteFunc(r.links, func(k *link) bool { return wait.IsOver(k.done) })
	k := &link{client: client, server: server, done: make(chan struct{})}
	r.links = append(r.links, k)
	var both sync.WaitGroup
	both.Go(func() { r.toServer.carry(client, server, k.noteRequest) })
	both.Go(func() { r.toClient.carry(server, client, k.losesReply) })
	go func() { both.Wait(); close(k.done) }()
}

// endLinks ends the connections and then lets bytes pass again, so bytes that were held back arrive
// nowhere. It holds linksMu, because a connection that begins meanwhile would lack bytes.
func (r *Route) endLinks() error {
	r.linksMu.Lock()
	defer r.linksMu.Unlock()
	for _, k := range r.links {
		reset(k.client)
		reset(k.server)
	}
	_ = r.passAll()
	for _, k := range r.links {
		<-k.done
	}
	r.links = nil
	return nil
}

// link is one connection through a route. It consists of a connection from the client and another
// to the server.
type link struct {
	client, server net.Conn
	requests       atomic.Int64  // number of reads from the client
	asked          atomic.Bool   // whether a request has passed after which replies are lost
	done           chan struct{} // closes when both directions have ended
}

// noteRequest examines a request before it reaches the server. It always returns false, because no
// request is lost.
func (k *link) noteRequest(now rule, request []byte) bool {
	k.requests.Add(1)
	if now.after != nil && now.after(request) {
		k.asked.Store(true)
	}
	return false
}

// losesReply reports whether to lose a reply. A NOSCRIPT reply always passes: the server has
// executed nothing, and the client then sends the whole script.
func (k *link) losesReply(now rule, reply []byte) bool {
	lost := k.requests.Load() > 1
	if now.after != nil {
		lost = k.asked.Load()
	}
	return now.lose && lost && !bytes.HasPrefix(reply, []byte("-NOSCRIPT"))
}

// reset closes a connection with a RST, so bytes that were not yet sent are lost.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
