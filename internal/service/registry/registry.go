// Package registry registers an instance in a service registry, and finds instances through a
// registry or DNS. Start reading at Eureka and Source.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"grablab/internal/catalog"
)

// portName is the port's name in a Kubernetes service. The port needs a name, because Kubernetes
// creates SRV records only for named ports.
const portName = "http"

// A Source says where to find instance addresses, such as eureka:GRABSVC.
type Source struct {
	text string
	find func(context.Context) ([]string, error) // returns the base URLs of the instances
}

// IsSource reports whether text begins with a kind of source, such as "eureka:".
func IsSource(text string) bool {
	kind, _, named := strings.Cut(text, ":")
	return named && slices.Contains([]string{"eureka", "dns", "k8s"}, kind)
}

// Parse parses a source, such as eureka:APP, eureka:APP@URL, dns:NAME, dns:HOST:PORT or
// k8s:SERVICE.
func Parse(text string) (Source, error) {
	kind, name, _ := strings.Cut(text, ":")
	s := Source{text: text}
	switch kind {
	case "eureka":
		app, server, named := strings.Cut(name, "@")
		if !named {
			server = DefaultEureka
		}
		e, err := ParseEureka(server)
		if err != nil {
			return s, err
		}
		name, s.find = app, func(ctx context.Context) ([]string, error) { return e.Instances(ctx, app) }
	case "dns":
		s.find = func(ctx context.Context) ([]string, error) { return lookupSRV(ctx, "", "", name) }
		if host, port, err := net.SplitHostPort(name); err == nil {
			if _, err := strconv.ParseUint(port, 10, 16); err != nil {
				return s, fmt.Errorf("%q: the port must be a number, as in dns:grabsvc.example:8004", text)
			}
			name, s.find = host, func(ctx context.Context) ([]string, error) { return lookupHost(ctx, host, port) }
		}
	case "k8s":
		s.find = func(ctx context.Context) ([]string, error) { return lookupSRV(ctx, portName, "tcp", name) }
	}
	if s.find == nil || name == "" || strings.ContainsAny(name, "/ ,:") {
		return s, fmt.Errorf("%q must be a source of instances: eureka:APP, eureka:APP@URL, dns:NAME, dns:HOST:PORT or k8s:SERVICE", text)
	}
	return s, nil
}

// Find returns the base URLs of all instances, sorted and without duplicates. If there are no
// instances, it returns an error.
func (s Source) Find(ctx context.Context) ([]string, error) {
	urls, err := s.find(ctx)
	if err == nil && len(urls) == 0 {
		err = errors.New("the registry lists no instances: start an instance, or check the name")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.text, err)
	}
	slices.Sort(urls)
	return slices.Compact(urls), nil
}

// lookupSRV returns the base URLs in a name's SRV records. The service and the protocol may be
// empty.
func lookupSRV(ctx context.Context, service, protocol, name string) ([]string, error) {
	_, records, err := net.DefaultResolver.LookupSRV(ctx, service, protocol, name)
	return catalog.Map(records, func(r *net.SRV) string { return baseURL("http", strings.TrimSuffix(r.Target, "."), int(r.Port)) }), err
}

// lookupHost returns a base URL for each IP address of a host.
func lookupHost(ctx context.Context, host, port string) ([]string, error) {
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	return catalog.Map(addrs, func(addr string) string { return "http://" + net.JoinHostPort(addr, port) }), err
}

func baseURL(scheme, host string, port int) string {
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
}
