package fleet

import (
	"context"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

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
