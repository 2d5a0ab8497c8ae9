package fleet

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"grablab/internal/history"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/wait"
	"grablab/internal/testbed/wire"
)

// wires are the proxies between an instance of a service and its servers. They stay while
// the instance and the ways behind them change.
type wires struct {
	proxies   []*wire.Proxy
	sentinels *wire.Sentinels // that name the proxy before the Redis; nil: none are asked
	at        stack.Addresses // of the proxies, and of a Sentinel
	holds     *control.Server // of the requests that pass

	statements    atomic.Int64 // that the database works at
	lastStatement atomic.Int64 // when it answered one, in ns of Unix

	mu            sync.Mutex
	to            stack.Addresses // where they lead
	order, driver int64           // the grab that the requests belong to; 0 if none
}

// newWires opens them, with Sentinels if the service asks one for its Redis. The Sentinel
// that a failover has started stands behind the proxy, and says where that leads to.
func newWires(st *stack.Stack, name string, sentinels bool, say func(string, ...any)) (*wires, error) {
	tell := func(text string) { say("%s: %s", name, text) }
	w := &wires{to: st.Addresses, holds: control.NewServer(name, 0, history.Discard)}
	var ways []stack.Detour
	for _, server := range st.Servers() {
		protocol := wire.RESP
		switch {
		case server == tap.DB:
			protocol = wire.MySQL
		case server != "redis" && !strings.HasPrefix(server, "redlock-"):
			continue // no service that we start can be told of it
		}
		p, err := wire.Listen(wire.Config{
			Server: server, Protocol: protocol, Say: tell,
			Dial: func(ctx context.Context) (net.Conn, error) { return w.leadsTo().Dial(ctx, server) },
		})
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		p.Use(w.tap)
		w.proxies = append(w.proxies, p)
		ways = append(ways, stack.Way{Server: server, Addr: p.Addr()})
	}
	w.at = st.Via(ways...)
	if sentinels {
		var err error
		if w.sentinels, err = wire.ListenSentinels(w.at.Redis, tell); err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.at.Sentinel, w.at.SentinelMaster = []string{w.sentinels.Addr()}, wire.SentinelMaster
	}
	return w, nil
}

func (w *wires) leadsTo() stack.Addresses {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to
}

// lead has connections made by other ways from now on, and ends those there are.
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

func (w *wires) close() error {
	w.holds.Close()
	var errs []error
	if w.sentinels != nil {
		errs = append(errs, w.sentinels.Close())
	}
	for _, p := range w.proxies {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// watch has the requests that come from now on belong to the grab of an order by a driver,
// 0 to any; of no order: to none.
func (w *wires) watch(order, driver int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order, w.driver = order, driver
}

// tap makes a request a call of the grab, which holds can meet.
func (w *wires) tap(ctx context.Context, e wire.Event, send func(context.Context) error) error {
	if e.Server == tap.DB {
		send = w.counted(send)
	}
	op, ok := w.call(e)
	if !ok {
		return send(ctx)
	}
	return w.holds.Do(ctx, op, send)
}

// counted is send with the statement counted.
func (w *wires) counted(send func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		w.statements.Add(1)
		defer func() {
			w.lastStatement.Store(time.Now().UnixNano())
			w.statements.Add(-1)
		}()
		return send(ctx)
	}
}

// random matches what a service draws anew for each grab: UUIDs, and hexadecimal tokens of
// 16 digits and more.
var random = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|[0-9a-fA-F]{16,}`)

var (
	digits    = regexp.MustCompile(`[0-9]+`)
	hexDigits = regexp.MustCompile(`[0-9a-fA-F]+`)
)

// withoutIDs returns a text with a star in place of the order's id, and with # in place of
// random parts. The id counts wherever no digit stands beside it, as in order_61, x61a or
// {00061}. It does not count within a random part or a hexadecimal number, which has at least
// 7 digits with letters between them.
func withoutIDs(text, order string) string {
	return hexDigits.ReplaceAllStringFunc(random.ReplaceAllString(text, "#"), func(h string) string {
		if len(h) >= 7 && len(digits.FindAllString(h, 2)) > 1 {
			return h
		}
		return digits.ReplaceAllStringFunc(h, func(n string) string {
			if strings.TrimLeft(n, "0") == order {
				return "*"
			}
			return n
		})
	})
}

// call returns the call that a request is in the watched grab. Its phase is the text of the
// request without ids. ok is false if no grab is watched, or if the request is noise.
func (w *wires) call(e wire.Event) (op tap.Op, ok bool) {
	name, kind := e.Server, "redis"
	if name == tap.DB {
		name, kind = "mysql", "mysql"
	}
	name, _, _ = strings.Cut(name, "-") // a grab asks the nodes of a quorum at once
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.order == 0 {
		return op, false
	}
	parts := []string{withoutIDs(e.Text, strconv.FormatInt(w.order, 10))}
	if kind == "mysql" && !strings.HasPrefix(e.Text, "PREPARE ") {
		parts = strings.Split(parts[0], wire.Joint)
	}
	parts = slices.DeleteFunc(parts, func(text string) bool { return isNoise(kind, text) })
	if len(parts) == 0 {
		return op, false
	}
	text := strings.Join(parts, wire.Joint)
	if after, ok := strings.CutPrefix(text, "EVAL "); ok { // a client sends a script again if the server does not know it
		text = "EVALSHA " + after
	}
	return tap.Op{Order: w.order, Driver: w.driver, Phase: tap.Phase(name + " " + text), Target: e.Server}, true
}

// Unreadable returns why a proxy of the instances could not read a connection, or the empty
// string if the proxies could read all of them.
func (f *Fleet) Unreadable() string {
	for _, in := range f.Instances {
		if in.wires == nil {
			continue
		}
		for _, p := range in.wires.proxies {
			if why := p.Unreadable(); why != "" {
				return in.Name() + ": " + why
			}
		}
	}
	return ""
}

// Watch says to which grab the requests belong that an instance of a service makes from
// now on: that of an order by a driver; of driver 0: by any. Of order 0: to none.
func (in *Instance) Watch(order, driver int64) { in.wires.watch(order, driver) }

// Lead has an instance of a service reach its servers by other ways from now on.
func (in *Instance) Lead(to stack.Addresses) { in.wires.lead(to) }

// Quiet returns once no instance of a service has had the database at work for that long:
// nothing more is written by then. false: not within a time.
func (f *Fleet) Quiet(ctx context.Context, long, within time.Duration) bool {
	quiet, err := wait.Until(ctx, long/10, within, func() (bool, error) {
		for _, in := range f.Instances {
			if in.wires.statements.Load() > 0 || time.Since(time.Unix(0, in.wires.lastStatement.Load())) < long {
				return false, nil
			}
		}
		return true, nil
	})
	return quiet && err == nil
}
