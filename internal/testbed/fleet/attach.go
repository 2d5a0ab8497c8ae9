package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/service/registry"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/target"

	"golang.org/x/sync/errgroup"
)

// ErrRefused means that the flags require something that the user's instances do not support.
var ErrRefused = errors.New("these settings cannot be used with these targets")

// Strategy is a locking strategy in the user instances' response to GET /strategies.
type Strategy struct {
	Name      string
	Available bool
}

// UnmarshalJSON accepts a strategy as an object with a name, or as the name alone. Without the field available, the
// strategy is available.
func (s *Strategy) UnmarshalJSON(text []byte) error {
	type object Strategy // without this method
	*s = Strategy{Available: true}
	if json.Unmarshal(text, &s.Name) != nil {
		if err := json.Unmarshal(text, (*object)(s)); err != nil {
			return err
		}
	}
	if s.Name == "" {
		return errors.New("the response to GET /strategies has a strategy without a name")
	}
	return nil
}

// Attach returns a fleet of instances that are already running. It asks each instance what its API
// supports.
func Attach(ctx context.Context, t target.Target) (*Fleet, error) {
	f := newFleet(t.Token)
	urls := t.URLs
	if len(urls) == 1 && registry.IsSource(urls[0]) {
		source, err := registry.Parse(urls[0])
		if err == nil {
			urls, err = source.Find(ctx)
		}
		if err != nil {
			return f, fmt.Errorf("fleet: -targets %w", err)
		}
	}
	for i, base := range urls {
		in := f.newInstance(i)
		in.URL = strings.TrimRight(base, "/")
		in.ID = strings.TrimPrefix(strings.TrimPrefix(in.URL, "http://"), "https://")
		f.Instances = append(f.Instances, in)
	}
	if err := f.findProcesses(t.PIDs); err != nil {
		return f, err
	}
	return f, f.Identify(ctx, t)
}

// ForeignStrategy is the strategy name for a service that cannot switch strategies.
const ForeignStrategy = "foreign"

// findProcesses finds the user instances' processes by process ID. It also makes sure that none of them
// stays paused when the program ends.
func (f *Fleet) findProcesses(pids []int) (err error) {
	for i, pid := range pids {
		if f.Instances[i].theirs, err = proc.Find(pid); err != nil {
			return fmt.Errorf("%w: -target-pid %d, of %s: %w", ErrRefused, pid, f.Instances[i].URL, err)
		}
	}
	if pids != nil {
		f.resumeAll, err = proc.ContinueAtEnd(pids)
	}
	return err
}

// Identify asks the user's instances what their API supports. If the flags require more, it returns
// ErrRefused.
func (f *Fleet) Identify(ctx context.Context, t target.Target) error {
	f.client.token, f.nextOrder, f.open = t.Token, t.FirstOrder, t.Open
	f.probes = cmp.Or(t.ProbeDrivers, f.probes)
	for i, in := range f.Instances {
		if err := f.meet(ctx, i, in); err != nil {
			return err
		}
	}
	f.distinguish(ctx)
	switch {
	case t.Shape != nil:
		f.Shape = t.Shape
	case !f.Known():
		f.Shape = target.Plain
	}
	if err := f.checkStrategies(t.Strategies); err != nil {
		return err
	}
	if f.Foreign && t.Token != "" && (f.open == nil || !f.open.ByCall()) {
		return fmt.Errorf("%w: -admin-token: the targets have no control API: to send a token with every grab, use -header", ErrRefused)
	}
	if f.Known() && t.Lease > 0 {
		return fmt.Errorf("%w: -lease: the targets' GET /healthz already reports how long a lock lasts: leave out this flag", ErrRefused)
	}
	opened := f.open != nil && f.open.ByCall() || f.nextOrder > 0 || !f.Foreign && f.open == nil
	if !opened {
		return fmt.Errorf("%w: it is unknown which orders are open: name the first open order with -first-order ID (first-order: ID in a target file), or describe with -open-orders how to open new ones", ErrRefused)
	}
	return nil
}

// meet stores what an instance reports about itself. If its strategies differ from those of the
// first instance, it returns ErrRefused.
func (f *Fleet) meet(ctx context.Context, index int, in *Instance) error {
	var health grab.Health
	err := f.client.call(in.traceAddress(ctx), http.MethodGet, in.URL+"/healthz", nil, &health)
	if _, ok := errors.AsType[*url.Error](err); ok {
		if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
			return fmt.Errorf("%w: target %s: %v: save its CA certificate in a file, and set the environment variable SSL_CERT_FILE to the path", ErrRefused, in.URL, err)
		}
		hint := cmp.Or(notHTTP(err), ": start it, or correct -targets. GET /healthz only shows whether the target runs, so any response will do")
		return fmt.Errorf("target %s does not answer: %w%s", in.URL, err, hint)
	}
	var strategies []Strategy
	if f.client.call(ctx, http.MethodGet, in.URL+"/strategies", nil, &strategies) != nil {
		strategies = nil // the response may be anything, because the call is optional
	}
	named := slices.ContainsFunc(f.Instances, func(o *Instance) bool { return o.ID == health.Instance })
	if health.Instance != "" && !named && !f.Started() && len(strategies) > 0 {
		in.ID = health.Instance
	}
	if index == 0 {
		f.Settings, f.Strategies, f.Foreign = health.Settings, strategies, len(strategies) == 0
	}
	if !slices.Equal(byName(strategies), byName(f.Strategies)) {
		return fmt.Errorf("%w: %s and %s have different strategies (GET /strategies): name instances of the same service", ErrRefused, f.Instances[0].URL, in.URL)
	}
	return nil
}

// notHTTP returns a hint if the response shows that the server does not use the expected protocol.
func notHTTP(err error) string {
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return ": use http:// instead of https://"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), strings.Contains(err.Error(), "malformed HTTP"):
		return ": check that an HTTP server listens on this port"
	}
	return ""
}

func byName(strategies []Strategy) []Strategy {
	return slices.SortedFunc(slices.Values(strategies), func(a, b Strategy) int { return strings.Compare(a.Name, b.Name) })
}

// Known reports whether the instances run grabsvc and have reported their settings.
func (f *Fleet) Known() bool { return !f.Ours && !f.Foreign && f.Settings.OnLost != "" }

// checkStrategies returns an error if the instances cannot use one of the strategies.
func (f *Fleet) checkStrategies(names []string) error {
	if len(names) == 0 {
		return nil
	}
	if f.Foreign {
		if slices.Equal(names, []string{ForeignStrategy}) {
			return nil
		}
		return fmt.Errorf("%w: -strategies: the targets have no API for switching strategies (GET /strategies, PUT /strategy): leave out this flag", ErrRefused)
	}
	known := f.Names()
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%w: the targets have no strategy %q%s", ErrRefused, name, catalog.Hint(name, known, "; they have "+strings.Join(known, ", ")))
		}
	}
	return nil
}

// Names returns the names of the instances' strategies.
func (f *Fleet) Names() []string {
	return catalog.Map(f.Strategies, func(s Strategy) string { return s.Name })
}

// openByCall opens orders with the HTTP call from the -open-orders flag, and returns the first
// order ID.
func (f *Fleet) openByCall(ctx context.Context, count int) (int64, error) {
	if f.Shape.NamesOrders() {
		return f.openNamed(ctx, count)
	}
	ids, says, err := f.callToOpen(ctx, count)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseInt(strings.Join(ids, " "), 10, 64)
	if err != nil || id < 1 || id > math.MaxInt64-int64(count) {
		return 0, fmt.Errorf("the response to %s has no order ID where -open-orders expects it: %s", f.open.Method+" "+f.open.Path.String(), says)
	}
	return id, nil
}

// openNamed opens orders whose IDs the service chooses, with as few calls as possible.
func (f *Fleet) openNamed(ctx context.Context, count int) (int64, error) {
	calls, each := 1, count
	if !f.open.OpensMany() {
		calls, each = count, 1
	}
	opened := make([][]string, calls)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range calls {
		g.Go(func() error {
			ids, says, err := f.callToOpen(ctx, each)
			if err == nil && len(ids) != each {
				err = fmt.Errorf("%s should open %d orders, but its response has %s where -open-orders expects them: %s", f.open.Method+" "+f.open.Path.String(), each, catalog.Plural(len(ids), "id", "ids"), says)
			}
			opened[i] = ids
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	first, err := f.Shape.IDs.Add(slices.Concat(opened...))
	if err != nil {
		err = fmt.Errorf("fleet: -open-orders: %w", err)
	}
	return first, err
}

// callToOpen makes one HTTP call that opens orders, and returns their IDs. It also returns the
// response, which the caller can append to an error message.
func (f *Fleet) callToOpen(ctx context.Context, count int) (ids []string, says string, err error) {
	path, body := f.open.Call(count)
	header := f.Shape.Fixed()
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	a, err := f.client.do(ctx, f.open.Method, f.Instances[0].URL+path, body, header)
	if err != nil {
		return nil, "", err
	}
	says = OneLine(string(a.Body))
	if f.open.DefaultBody {
		says += fmt.Sprintf(". The call has no body, so %s was sent: if it opens only one order, write its body, for example {}", body)
	}
	return f.open.ID.In(a.Header, a.Body), says, nil
}

// KeepsLedger reports whether the instances can list the winners of this order.
func (f *Fleet) KeepsLedger(ctx context.Context, id int64) bool {
	if f.Foreign {
		return false
	}
	var got struct {
		Grabs json.RawMessage `json:"grabs"`
	}
	err := f.client.call(ctx, http.MethodGet, fmt.Sprintf("%s/orders/%s", f.Instances[0].URL, f.Shape.OrderText(id)), nil, &got)
	return err == nil && (bytes.HasPrefix(got.Grabs, []byte("[")) || string(got.Grabs) == "null")
}

// traceAddress returns a context for a call to the instance, so that the call records the network
// address that it reaches.
func (in *Instance) traceAddress(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if addr, err := netip.ParseAddrPort(c.Conn.RemoteAddr().String()); err == nil {
			in.reached = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
		}
	}})
}

// addresses returns the instance's network address and the other addresses of its host.
func (in *Instance) addresses(ctx context.Context) []netip.Addr {
	all := []netip.Addr{in.reached.Addr()}
	if u, err := url.Parse(in.URL); err == nil {
		more, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
		for _, a := range more {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// distinguish groups URLs that may lead to the same instance. It compares network addresses instead
// of names, because different instances may report the same name.
func (f *Fleet) distinguish(ctx context.Context) {
	for i, b := range f.Instances {
		b.group = i
		for _, a := range f.Instances[:i] {
			why := mayBeOne(ctx, a, b)
			if why == "" {
				continue
			}
			if a.reached == b.reached {
				b.ID = a.ID
			}
			b.sameAs = append(b.sameAs, why)
			for from, in := b.group, 0; in <= i; in++ {
				if f.Instances[in].group == from {
					f.Instances[in].group = a.group
				}
			}
		}
	}
}

// mayBeOne explains why two URLs may lead to the same instance, or returns "" if they do not.
func mayBeOne(ctx context.Context, a, b *Instance) string {
	names := fmt.Sprintf("%s and %s", hostOf(a.URL), hostOf(b.URL))
	if a.reached == b.reached {
		return fmt.Sprintf("%s both reach %s, so they count as one instance", names, a.reached)
	}
	first, second := a.addresses(ctx), b.addresses(ctx)
	shared := slices.ContainsFunc(first, func(x netip.Addr) bool { return slices.Contains(second, x) })
	x, y := a.reached.Addr(), b.reached.Addr()
	if a.reached.Port() != b.reached.Port() || !shared && x.Is4() == y.Is4() && !(isHere(x) && isHere(y)) {
		return ""
	}
	return fmt.Sprintf("%s may be one instance, because %s and %s have the same port, and one program can listen on both", names, a.reached, b.reached)
}

func hostOf(base string) string {
	_, host, _ := strings.Cut(base, "://")
	return host
}

// isHere reports whether the address belongs to this machine.
func isHere(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	addrs, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == addr
	})
}

// OneInstance explains why all URLs may lead to a single instance, or returns "" if nothing
// suggests that.
func (f *Fleet) OneInstance(ids map[string]bool) string {
	var among []*Instance
	var why []string
	for _, in := range f.Instances {
		if ids[in.ID] {
			among, why = append(among, in), append(why, in.sameAs...)
		}
	}
	if len(why) == 0 || slices.ContainsFunc(among, func(in *Instance) bool { return in.group != among[0].group }) {
		return ""
	}
	return strings.Join(why, "; ") + ": give each instance its own address and port"
}
