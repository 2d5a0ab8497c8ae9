package fleet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"
	"grablab/internal/testbed/wire"
)

// wires contains the proxies between an instance of a user's service and its servers. They stay
// open while the instance restarts.
type wires struct {
	proxies  []*wire.Proxy
	at       stack.Addresses // addresses of the proxies
	database string          // the name of the database in calls: mysql or postgres
	holds    *control.Server // breakpoints for requests that pass through the proxies

	statements    atomic.Int64 // number of statements that the database is executing now
	rowWaitsSince atomic.Int64 // when rowWaits last became 1, in Unix nanoseconds
	lastStatement atomic.Int64 // when the database last replied, in Unix nanoseconds
	rowWaits      atomic.Int64 // number of these statements that may wait for a row lock

	mu           sync.Mutex
	to           stack.Addresses // servers behind the proxies
	order        int64           // the order that the instance is handling; 0 if none
	naming       naming
	idle         map[string]bool   // requests that the instance makes even while it handles no grabs
	busy         map[uint64]bool   // database connections that, since the end of their last transaction, have sent a request that is not in idle
	background   map[string]bool   // statements that the instance sends even while it handles no grabs, including those that write
	grabs        map[uint64]bool   // database connections that, since the end of their last transaction, have sent a statement that is not in background
	begun        map[uint64]string // database connections with an open transaction, and the statement that began it; it may belong to a background task
	manual       map[uint64]bool   // database connections without autocommit, and whether each has written since its last transaction ended
	lastCall     time.Time         // time of the last request for order
	questions    int               // number of pending requests for a result
	lastQuestion time.Time         // when the last request for a result was sent
}

// newWires opens the proxies.
func newWires(st *stack.Stack, name string, say func(string, ...any)) (*wires, error) {
	tell := func(text string) { say("%s: %s", name, text) }
	w := &wires{to: st.Addresses, database: "mysql", holds: control.NewServer(name, 0, history.Discard), naming: newNaming()}
	var ways []stack.Detour
	for _, server := range st.Servers() {
		protocol := wire.RESP
		switch {
		case server == tap.DB && st.IsPostgres():
			protocol, w.database = wire.Postgres, "postgres"
		case server == tap.DB:
			protocol = wire.MySQL
		case server != "redis" && !strings.HasPrefix(server, "redlock-"):
			continue // no placeholder passes this server's address to a service
		}
		p, err := wire.Listen(wire.Config{
			Server: server, Protocol: protocol, Say: tell,
			Dial: func(ctx context.Context) (net.Conn, error) { return w.leadsTo().Dial(ctx, server) },
		})
		if err != nil {
			w.close()
			return nil, err
		}
		p.Use(w.tap)
		w.proxies = append(w.proxies, p)
		ways = append(ways, stack.Way{Server: server, Addr: p.Addr()})
	}
	w.at = st.Via(ways...)
	return w, nil
}

func (w *wires) leadsTo() stack.Addresses {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to
}

// lead connects the proxies to other servers, and closes the connections to the old ones.
func (w *wires) lead(to stack.Addresses) {
	w.mu.Lock()
	was := w.to
	w.to = to
	w.mu.Unlock()
	for _, p := range w.proxies {
		if was.Of(p.Server()) != to.Of(p.Server()) {
			p.HangUp()
		}
	}
}

// checkReach returns an error if a process outside these process groups uses the proxies, because no signal
// reaches it.
func (w *wires) checkReach(groups []int) error {
	ports := catalog.Map(w.proxies, func(p *wire.Proxy) int { return int(netip.MustParseAddrPort(p.Addr()).Port()) })
	if pid := proc.Outsider(groups, ports...); pid != 0 {
		return fmt.Errorf("process %d of the service is a daemon, so this fault cannot hit it: start it in the foreground", pid)
	}
	return nil
}

func (w *wires) close() {
	w.holds.Close()
	for _, p := range w.proxies {
		p.Close()
	}
}

// watch sets the order and driver to which the instance's next requests belong. Driver 0 means any
// driver, and order 0 means none. names contains placeholders for other numbers in the requests.
func (w *wires) watch(order, driver int64, id string, names map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order, w.lastCall = order, time.Now()
	w.naming.driver, w.naming.id, w.naming.names = driver, id, names
}

// When a client asks for a grab's result, the service may query its servers. These constants help
// to tell such queries from the grab's own.
const (
	// quietForAsking is how long a service must be quiet before the program asks it for a result.
	quietForAsking = 300 * time.Millisecond
	// maxQuiet limits the wait for such a pause, because some services poll their servers
	// constantly.
	maxQuiet = time.Second
	// askFor is how long an instance may take to look up a result.
	askFor = 250 * time.Millisecond
)

// ask waits until the service sends no more requests for this order. Until answered is called or
// askFor has passed, later requests count as queries for the result, except for writes.
func (w *wires) ask(ctx context.Context, order int64) (answered func()) {
	_, _ = wait.Until(ctx, quietForAsking/20, maxQuiet, func() (bool, error) { // an error means only that the grab has ended
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.order != order || w.naming.driver == 0 || time.Since(w.lastCall) > quietForAsking, nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.questions++
	w.lastQuestion = time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.questions--
	}
}

// isAsked reports whether the instance is looking up a result.
func (w *wires) isAsked() bool { return w.questions > 0 && time.Since(w.lastQuestion) < askFor }

// tap forwards an instance's request to the server. If the request belongs to the watched order, a
// breakpoint can pause it.
func (w *wires) tap(ctx context.Context, e wire.Event, send func(context.Context) error) error {
	if e.Server == tap.DB {
		if e.Text = w.nameCommit(e); !w.isIdle(e) {
			send = w.counted(e, send)
		}
	}
	background, begun := w.ofBackground(e)
	if begun != "" {
		sent := func(context.Context) error { return nil }
		if begin, ok := w.call(wire.Event{Server: e.Server, Conn: e.Conn, Text: begun}); ok {
			if err := w.holds.Do(ctx, begin, sent); err != nil {
				return err
			}
		}
	}
	if background {
		return send(ctx)
	}
	op, ok := w.call(e)
	if !ok {
		return send(ctx)
	}
	return w.holds.Do(ctx, op, send)
}

// ofBackground reports whether a statement begins or ends a transaction that contains only statements of
// a background task, or only queries for a result. Such a task may begin many transactions during a grab,
// and their statements must not count as calls of the grab.
//
// When a transaction begins, it is unknown whether it belongs to a task or to a grab. If it then contains
// a statement of a grab, the statement that began it belongs to the grab too. ofBackground returns that
// statement as begun. Otherwise, begun is empty.
func (w *wires) ofBackground(e wire.Event) (background bool, begun string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Server != tap.DB || w.order == 0 || w.grabs == nil {
		return false, ""
	}
	text, ok := w.naming.normalize(e)
	switch {
	case !ok:
	case wire.Begins(text):
		delete(w.grabs, e.Conn)
		if delete(w.begun, e.Conn); w.background[text] || w.isAsked() {
			w.begun[e.Conn] = text
			return true, ""
		}
	case wire.Ends(text):
		background = !w.grabs[e.Conn] && (w.background[text] || w.isAsked())
		delete(w.grabs, e.Conn)
		delete(w.begun, e.Conn)
	case !w.background[text] && (mayAwaitRows(e.Text) || !w.isAsked()):
		begun = w.begun[e.Conn]
		delete(w.begun, e.Conn)
		w.grabs[e.Conn] = !strings.HasSuffix(text, wire.Joint+"COMMIT") && !strings.HasSuffix(text, wire.Joint+"ROLLBACK")
	}
	return background, begun
}

// nameCommit returns the text of a statement, but calls SET autocommit=1 a COMMIT if it commits something. For this, it
// follows the transactions of connections without autocommit.
func (w *wires) nameCommit(e wire.Event) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := strings.Split(e.Text, wire.Joint)
	for i, name := range names {
		wrote, manual := w.manual[e.Conn]
		switch {
		case name == wire.AutocommitOff && !manual:
			if w.manual == nil {
				w.manual = map[uint64]bool{}
			}
			w.manual[e.Conn] = false
		case name == wire.AutocommitOn:
			if delete(w.manual, e.Conn); wrote {
				names[i] = "COMMIT"
			} else { // this also ends a transaction that has only read
				delete(w.begun, e.Conn)
				delete(w.grabs, e.Conn)
			}
		case manual && (wire.Ends(name) || mayAwaitRows(name)):
			w.manual[e.Conn] = !wire.Ends(name)
		}
	}
	return strings.Join(names, wire.Joint)
}

// counted wraps send, so that w.statements and w.rowWaits count a statement while the database executes it.
func (w *wires) counted(e wire.Event, send func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		w.statements.Add(1)
		waits := mayAwaitRows(e.Text)
		if waits && w.rowWaits.Add(1) == 1 {
			w.rowWaitsSince.Store(time.Now().UnixNano())
		}
		defer func() {
			if waits {
				w.rowWaits.Add(-1)
			}
			w.lastStatement.Store(time.Now().UnixNano())
			w.statements.Add(-1)
		}()
		return send(ctx)
	}
}

// call describes a request for the watched order. ok is false if the request cannot affect who wins
// the order.
func (w *wires) call(e wire.Event) (op tap.Op, ok bool) {
	name := e.Server
	if name == tap.DB {
		name = w.database
	}
	name, _, _ = strings.Cut(name, "-") // use one name for all Redlock nodes, because a grab contacts them at the same time
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.order == 0 {
		return op, false
	}
	text, ok := w.naming.normalize(e)
	ends := wire.Begins(text) || wire.Ends(text) // ofBackground omits those of queries
	if !ok || w.isAsked() && !(e.Server == tap.DB && (mayAwaitRows(e.Text) || ends)) {
		return op, false
	}
	w.lastCall = time.Now()
	return tap.Op{Order: w.order, Driver: w.naming.driver, Phase: tap.Phase(name + " " + text), Target: e.Server}, true
}

// isIdle reports whether the instance sends this request even while it handles no grabs. The end of a
// transaction is idle only if all statements of the transaction are.
func (w *wires) isIdle(e wire.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.idle) == 0 {
		return false
	}
	text, ok := w.naming.normalize(e)
	if wire.Ends(text) {
		busy := w.busy[e.Conn]
		delete(w.busy, e.Conn)
		return !busy && w.idle[text]
	}
	if ok && !w.idle[text] {
		w.busy[e.Conn] = true
	}
	return ok && w.idle[text]
}

func (w *wires) recognize(grab, idle []control.Call) {
	for _, c := range grab {
		w.naming.learn(textOf(c.Phase))
	}
	w.idle, w.busy = map[string]bool{}, map[uint64]bool{}
	for _, c := range idle {
		w.idle[textOf(c.Phase)] = true
	}
}

func (w *wires) ignoreBackground(calls []control.Call) {
	w.background, w.grabs, w.begun = map[string]bool{}, map[uint64]bool{}, map[uint64]string{}
	for _, c := range calls {
		if text := textOf(c.Phase); c.Target == tap.DB && !strings.Contains(text, "*") {
			w.background[text] = true
		}
	}
}

// Proxied lists instances that have proxies between them and their servers. Only the instances of a user's service that
// the fleet starts have proxies.
type Proxied []*Instance

// Proxied returns the instances with proxies.
func (f *Fleet) Proxied() Proxied {
	return catalog.Filter(f.Instances, func(in *Instance) bool { return in.wires != nil })
}

// Asking implements load.Asking. It tells the proxies that a client is about to ask for a request's
// result. The client must call answered when it has the result.
func (f *Fleet) Asking(ctx context.Context, of load.Request) (answered func()) {
	for _, in := range f.Proxied() {
		if in.URL == of.Target {
			return in.wires.ask(ctx, of.Order)
		}
	}
	return func() {}
}

// each calls do for the proxies of each instance, with w.mu locked.
func (p Proxied) each(do func(w *wires)) {
	for _, in := range p {
		in.wires.mu.Lock()
		do(in.wires)
		in.wires.mu.Unlock()
	}
}

// Recognize tells the proxies which requests an instance makes to grab an order. idle contains the
// requests that it makes even while it handles no grabs, without those that may write.
func (p Proxied) Recognize(grab, idle []control.Call) {
	p.each(func(w *wires) { w.recognize(grab, idle) })
}

// IgnoreBackground tells the proxies which requests an instance makes even while it handles no grabs. A
// transaction that contains only such statements is not part of a grab.
func (p Proxied) IgnoreBackground(calls []control.Call) {
	p.each(func(w *wires) { w.ignoreBackground(calls) })
}

// Learn tells the proxies that the numbers or tokens in the keys of these calls differ between grabs. The names come from
// CommonName.
func (p Proxied) Learn(names ...string) {
	p.each(func(w *wires) {
		for _, name := range names {
			w.naming.learn(textOf(tap.Phase(name)))
		}
	})
}

// Unreadable explains why a proxy could not decode a connection. If all connections were decoded,
// it returns "".
func (p Proxied) Unreadable() string {
	for _, in := range p {
		for _, proxy := range in.wires.proxies {
			if why := proxy.Unreadable(); why != "" {
				return in.Name() + ": " + why
			}
		}
	}
	return ""
}

// EndedByItself describes an instance that has exited unexpectedly. If there is none, it
// returns "".
func (p Proxied) EndedByItself() string {
	for _, in := range p {
		if in.proc != nil && in.proc.ByItself() != "" {
			return in.proc.ByItself()
		}
	}
	return ""
}

// RouteTo connects the proxies of the instances to other servers, as [Setup.Routes] does. Instances without a route
// are connected to the servers themselves.
func (p Proxied) RouteTo(routes map[int]stack.Addresses) {
	for _, in := range p {
		in.wires.lead(in.servers(Setup{Routes: routes}))
	}
}

// AwaitQuiet waits until the instances have sent no database statement for the duration long. It
// returns false if that takes longer than within, or if there are no instances.
func (p Proxied) AwaitQuiet(ctx context.Context, long, within time.Duration) bool {
	if len(p) == 0 {
		return false
	}
	quiet, err := wait.Until(ctx, long/10, within, func() (bool, error) {
		for _, in := range p {
			if in.wires.statements.Load() > 0 || time.Since(time.Unix(0, in.wires.lastStatement.Load())) < long {
				return false, nil
			}
		}
		return true, nil
	})
	return quiet && err == nil
}

// Watch sets the order and driver to which the instance's next requests belong. Driver 0 means any
// driver, and order 0 means none. Without proxies, Watch does nothing.
func (in *Instance) Watch(order, driver int64) {
	if in.wires == nil {
		return
	}
	_, port, _ := net.SplitHostPort(in.addr)
	in.wires.watch(order, driver, in.fleet.Shape.OrderText(order), map[string]string{
		strconv.FormatInt(in.fleet.ProbeDriver(driver), 10): ownDriver, port: ownPort,
	})
}

// NameOfKey returns a key as it appears in the names of calls for the watched order.
func (in *Instance) NameOfKey(key string) string {
	in.wires.mu.Lock()
	defer in.wires.mu.Unlock()
	return in.wires.naming.ofKey(key)
}
