package stack

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

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
// has one fault at a time. Its methods are safe for concurrent use.
type Route struct {
	From, Server string // the instance and the server
	Addr         string // where it listens

	upstream           string // the server's address
	target             string // where connections are made to: upstream, unless redirected
	toServer, toClient flow

	mu         sync.Mutex // one fault, heal or close at a time
	faulted    bool
	closed     bool
	listener   net.Listener
	acceptDone chan struct{} // closes when no connection is accepted any more

	linksMu sync.Mutex
	links   []*link
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

// Cut drops all bytes of a direction. Its heal ends the connections of the
// route, for bytes are missing from them.
func (r *Route) Cut(d Direction) (Heal, error) {
	return r.inject(func() error { r.rule(d, rule{drop: true}); return nil }, r.endLinks)
}

// Stall has bytes wait, and the ends of connections with them, as TCP has them
// wait on a network that is down. With its heal they arrive.
func (r *Route) Stall(d Direction) (Heal, error) {
	return r.inject(func() error { r.rule(d, rule{hold: true}); return nil }, r.passAll)
}

// Delay has bytes arrive later, by latency give or take jitter. With its heal
// those arrive that are under way.
func (r *Route) Delay(latency, jitter time.Duration, d Direction) (Heal, error) {
	return r.inject(func() error { r.rule(d, rule{latency: latency, jitter: jitter}); return nil }, r.passAll)
}

// LoseReplies lets requests through, and whatever the server says next on a
// connection is lost: the connection is reset instead, so that the client learns
// at once that it gets no reply. The first request of a connection, by which Redis
// and ZooKeeper have it opened, is answered: else no other would be sent on it.
func (r *Route) LoseReplies() (Heal, error) {
	return r.inject(func() error { r.rule(BothWays, rule{lose: true}); return nil }, r.passAll)
}

// LoseCommits does so on those connections alone on which MySQL, or what speaks
// like it, has been asked for a COMMIT.
func (r *Route) LoseCommits() (Heal, error) {
	return r.inject(func() error { r.rule(BothWays, rule{lose: true, after: isCommit}); return nil }, r.passAll)
}

// isCommit says whether the bytes are a packet of MySQL that asks for a COMMIT: its
// length and number, the command, the text. A client sends nothing more before the
// reply has come, and so its packet is all that a read returns.
func isCommit(request []byte) bool {
	const header, query = 4, 0x03
	return len(request) > header && request[header] == query &&
		bytes.EqualFold(bytes.Trim(request[header+1:], " ;"), []byte("COMMIT"))
}

// Redirect ends the connections of the route, and has new ones begin at another
// server.
func (r *Route) Redirect(addr string) (Heal, error) {
	return r.inject(func() error { return r.leadTo(addr) }, func() error { return r.leadTo(r.upstream) })
}

// leadTo does not listen meanwhile, so that no connection is made to the old target.
func (r *Route) leadTo(addr string) error {
	if err := r.hangUp(); err != nil {
		return err
	}
	r.target = addr
	return r.listen(r.Addr)
}

// rule sets the fault on the bytes of a direction.
func (r *Route) rule(d Direction, to rule) {
	if d != ToClient {
		r.toServer.set(to)
	}
	if d != ToServer {
		r.toClient.set(to)
	}
}

// passAll lets all bytes pass again, those that were held first.
func (r *Route) passAll() error {
	r.rule(BothWays, rule{})
	return nil
}

// Refuse resets the connections of the route and refuses new ones.
func (r *Route) Refuse() (Heal, error) {
	return r.inject(r.hangUp, func() error { return r.listen(r.Addr) })
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

// Detours returns the routes for Addresses.Via.
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

// inject lets a fault strike, and returns what undoes it.
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

// listenTimeout is for how long to retry while the port of the previous listener
// is still in use.
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

// hangUp stops listening, and ends the connections with a reset.
func (r *Route) hangUp() error {
	if !closed(r.acceptDone) {
		_ = r.listener.Close()
		<-r.acceptDone
	}
	return r.endLinks()
}

// dialTimeout is for a stopped server whose accept backlog is full.
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

// connect makes one link of a client and a server connection, and copies bytes in
// both directions.
func (r *Route) connect(client, server net.Conn) {
	r.linksMu.Lock()
	defer r.linksMu.Unlock()
	r.links = slices.DeleteFunc(r.links, func(k *link) bool { return closed(k.done) })
	k := &link{client: client, server: server, done: make(chan struct{})}
	r.links = append(r.links, k)
	var both sync.WaitGroup
	both.Go(func() { r.toServer.carry(client, server, k.noteRequest) })
	both.Go(func() { r.toClient.carry(server, client, k.losesReply) })
	go func() { both.Wait(); close(k.done) }()
}

// endLinks ends the connections and then lets bytes pass again, so that what was
// held arrives nowhere. No connection begins meanwhile: bytes would be missing
// from it.
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

// link is a connection through a route: one from the client, one to the server.
type link struct {
	client, server net.Conn
	requests       atomic.Int64  // reads of what the client has sent
	asked          atomic.Bool   // a request after which replies are to be lost has passed
	done           chan struct{} // closes when both directions have ended
}

// noteRequest sees a request before the server does. None is lost.
func (k *link) noteRequest(now rule, request []byte) bool {
	k.requests.Add(1)
	if now.after != nil && now.after(request) {
		k.asked.Store(true)
	}
	return false
}

// losesReply lets a Redis say that it does not know a script: it has carried out
// nothing, and the client sends the whole of it.
func (k *link) losesReply(now rule, reply []byte) bool {
	lost := k.requests.Load() > 1
	if now.after != nil {
		lost = k.asked.Load()
	}
	return now.lose && lost && !bytes.HasPrefix(reply, []byte("-NOSCRIPT"))
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// reset closes a connection by a RST: what was not yet sent is lost.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
