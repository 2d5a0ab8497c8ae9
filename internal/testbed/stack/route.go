package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/wire"
)

// Heal undoes a fault. A second call does nothing and returns the same error.
type Heal func() error

// Heals collects the Heals of several faults.
type Heals []Heal

// All undoes all faults. It continues even if one of them cannot be undone.
func (h Heals) All() error {
	return errors.Join(catalog.Map(h, func(heal Heal) error { return heal() })...)
}

// Route is a proxy between a client and a server. Package fault calls its methods to inject network
// faults. A Route has at most one fault at a time. It is safe for concurrent use.
type Route struct {
	From, Server string // the instance and the server
	Addr         string // where the route listens

	proxy              *wire.Proxy
	target             atomic.Pointer[string] // address to which new connections go
	toServer, toClient flow

	mu      sync.Mutex // allows only one fault, heal or close at a time
	faulted bool
	closed  bool
}

// dialTimeout is the proxy's connection timeout. It is necessary because a paused server may never
// respond.
const dialTimeout = time.Second

// Route opens a proxy to a server, which stays open until the stack closes. Messages use from as
// the name of the client.
func (s *Stack) Route(from, server string) (*Route, error) {
	upstream, err := s.address(server)
	if err != nil {
		return nil, err
	}
	r := &Route{From: from, Server: server}
	r.target.Store(&upstream)
	dialer := net.Dialer{Timeout: dialTimeout}
	r.proxy, err = wire.Listen(wire.Config{
		Server: server, Pipe: r.pipe,
		Dial: func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", *r.target.Load()) },
	})
	if err != nil {
		return nil, err
	}
	r.Addr = r.proxy.Addr()
	s.atClose(r.Close)
	return r, nil
}

func (r *Route) detour(a *Addresses) { Way{r.Server, r.Addr}.detour(a) }

// Cut drops all data in a direction until the fault is healed. The heal also closes the
// connections, because they have lost data.
func (r *Route) Cut(d Direction) (Heal, error) {
	return r.follow(d, rule{drop: true}, r.endLinks)
}

// Stall holds back all data and connection closes until the fault is healed, like TCP during a
// network failure.
func (r *Route) Stall(d Direction) (Heal, error) {
	return r.follow(d, rule{hold: true}, r.passAll)
}

// Delay delays all data by latency until the fault is healed.
func (r *Route) Delay(latency time.Duration, d Direction) (Heal, error) {
	return r.follow(d, rule{latency: latency}, r.passAll)
}

// LoseReplies makes the proxy forward requests but reset the connection instead of forwarding the
// next reply. The first reply of a connection passes, because clients need it to connect.
func (r *Route) LoseReplies() (Heal, error) {
	return r.follow(BothWays, rule{lose: true}, r.passAll)
}

// LoseCommits is like LoseReplies, but loses only a MySQL server's replies to COMMIT.
func (r *Route) LoseCommits() (Heal, error) {
	return r.follow(BothWays, rule{lose: true, after: isCommit}, r.passAll)
}

// isCommit reports whether the request is a single MySQL packet with a COMMIT.
func isCommit(request []byte) bool {
	const header, query = 4, 0x03
	return len(request) > header && request[header] == query &&
		bytes.EqualFold(bytes.Trim(request[header+1:], " ;"), []byte("COMMIT"))
}

// follow sets the rule for one direction or both. The returned Heal calls undo, which must restore
// the old rule.
func (r *Route) follow(d Direction, to rule, undo func()) (Heal, error) {
	return r.inject(func() { r.rule(d, to) }, func() error { undo(); return nil })
}

// Redirect closes all connections and sends new ones to the server at addr.
func (r *Route) Redirect(addr string) { r.proxy.HangUpThen(func() { r.target.Store(&addr) }) }

func (r *Route) rule(d Direction, to rule) {
	if d != ToClient {
		r.toServer.set(to)
	}
	if d != ToServer {
		r.toClient.set(to)
	}
}

// passAll lets all data pass again, including data that was held back.
func (r *Route) passAll() { r.rule(BothWays, rule{}) }

// endLinks closes the connections and discards delayed data. New connections must wait until this
// is done, because their data could otherwise be discarded too.
func (r *Route) endLinks() { r.proxy.HangUpThen(r.passAll) }

// Refuse resets all connections and refuses new ones until the fault is healed.
func (r *Route) Refuse() (Heal, error) { return r.inject(r.proxy.Refuse, r.proxy.Reopen) }

// Close closes the route and its connections, and discards delayed data.
func (r *Route) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.proxy.Close()
	}
}

// Each injects a fault into each target. If this fails for one target, it undoes the fault in the
// others. A fault that needs no healing has the Heal nil.
func Each[T any](targets []T, strike func(T) (Heal, error)) (Heal, error) {
	var done Heals
	for _, target := range targets {
		heal, err := strike(target)
		if heal != nil {
			done = append(done, heal)
		}
		if err != nil {
			return nil, errors.Join(err, done.All())
		}
	}
	return done.All, nil
}

// Routes is a group of routes that always get the same faults.
type Routes []*Route

// Each injects a fault into all routes, like the function Each.
func (w Routes) Each(strike func(*Route) (Heal, error)) (Heal, error) { return Each(w, strike) }

// Detours returns the routes as a list for Addresses.Via.
func (w Routes) Detours() []Detour {
	return catalog.Map(w, func(r *Route) Detour { return r })
}

// Close closes all routes.
func (w Routes) Close() {
	for _, r := range w {
		r.Close()
	}
}

// inject begins a fault and returns the function that ends it. It returns an error if the route is
// closed or already has a fault.
func (r *Route) inject(strike func(), undo func() error) (Heal, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, fmt.Errorf("stack: route from %s to %s: it is closed", r.From, r.Server)
	case r.faulted:
		return nil, fmt.Errorf("stack: route from %s to %s: another fault is still active on this route: heal that fault first", r.From, r.Server)
	}
	strike()
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

func (r *Route) pipe(ctx context.Context, client, server net.Conn) {
	var l link
	var both sync.WaitGroup
	both.Go(func() { r.toServer.carry(ctx, client, server, l.noteRequest) })
	both.Go(func() { r.toClient.carry(ctx, server, client, l.losesReply) })
	both.Wait()
}

type link struct {
	requests atomic.Int64 // number of reads from the client
	asked    atomic.Bool  // whether a request has passed whose reply is to be lost
}

// noteRequest records a request, so that losesReply can find the matching reply. It always returns
// false, because a proxy never drops requests.
func (l *link) noteRequest(now rule, request []byte) bool {
	l.requests.Add(1)
	if now.after != nil && now.after(request) {
		l.asked.Store(true)
	}
	return false
}

// losesReply reports whether the proxy must drop a reply. It never drops NOSCRIPT, because the
// client reacts to it by sending the whole script.
func (l *link) losesReply(now rule, reply []byte) bool {
	lost := l.requests.Load() > 1
	if now.after != nil {
		lost = l.asked.Load()
	}
	return now.lose && lost && !bytes.HasPrefix(reply, []byte("-NOSCRIPT"))
}

// Direction selects whether a fault affects requests, replies or both.
type Direction int

// These are the directions in which data passes through a proxy.
const (
	BothWays Direction = iota
	ToServer           // requests
	ToClient           // replies
)

// rule says what a proxy does with data in one direction. The zero rule just forwards everything.
type rule struct {
	drop    bool          // whether bytes are lost; a connection close still arrives
	hold    bool          // whether bytes and connection closes wait until the rule changes
	latency time.Duration // how long all data is delayed

	// lose makes the proxy drop one reply and reset its connection. after selects the request whose
	// reply is dropped. If after is nil, that is the second request.
	lose  bool
	after func(request []byte) bool
}

// flow forwards data in one direction, for all connections of a proxy, according to its current
// rule.
type flow struct {
	mu      sync.Mutex
	rule    rule
	changed chan struct{} // closes when the rule changes; nil if nothing waits for a change
}

func (f *flow) set(to rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule = to
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

func (f *flow) get() (now rule, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.rule, f.changed
}

// pass waits until the rule lets data through, and returns that rule. A delay starts when the data
// arrives. If ctx ends first, pass returns a rule that drops the data.
func (f *flow) pass(ctx context.Context, came time.Time) rule {
	for {
		now, changed := f.get()
		var due <-chan time.Time
		switch {
		case now.hold:
		case now.latency == 0:
			return now
		default:
			due = time.After(time.Until(came.Add(now.latency)))
		}
		select {
		case <-due:
			return now
		case <-changed:
		case <-ctx.Done():
			return rule{drop: true}
		}
	}
}

type chunk struct {
	data []byte
	came time.Time
}

// backlog is how many chunks of data a connection buffers before the proxy stops reading.
const backlog = 1024

// carry copies data from one connection to another. If lost returns true for a chunk, it resets
// both connections instead.
func (f *flow) carry(ctx context.Context, from, to net.Conn, lost func(rule, []byte) bool) {
	chunks := make(chan chunk, backlog)
	var ended time.Time // when from ended; set before chunks is closed
	go func() {
		defer close(chunks)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				chunks <- chunk{bytes.Clone(buf[:n]), time.Now()}
			}
			if err != nil {
				ended = time.Now()
				return
			}
		}
	}()
	for c := range chunks {
		now := f.pass(ctx, c.came)
		switch {
		case now.drop:
			continue
		case lost(now, c.data):
			wire.Reset(to)
			wire.Reset(from)
			continue
		}
		if _, err := to.Write(c.data); err != nil {
			_ = from.Close() // this also ends the reads
		}
	}
	f.pass(ctx, ended)
	_ = to.Close()
}
