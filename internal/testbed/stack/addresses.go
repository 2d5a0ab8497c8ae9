package stack

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"grablab/internal/catalog"
)

// Addresses contains the addresses of the servers that an instance uses.
type Addresses struct {
	DSN       string   // the database: "sqlite:PATH", a DSN of go-sql-driver/mysql, or a PostgreSQL URL; may be empty
	Redis     string   // one address, or several separated by commas; empty if not needed or if Sentinel is set
	Redlock   []string // addresses of the Redlock nodes; NAME@ADDR means the master that the Sentinel at ADDR calls NAME
	ZooKeeper []string // addresses of the ensemble; nil if not needed
	Etcd      []string // addresses of the members; nil if not needed

	Sentinel       []string // addresses of the Sentinels that know the master; nil if Redis is set
	SentinelMaster string   // the master's name in the Sentinels
}

// Detour replaces a server's address with a proxy's, so that connections go through the proxy.
type Detour interface{ detour(*Addresses) }

// Via returns a copy of the addresses with the detours applied.
func (a Addresses) Via(detours ...Detour) Addresses {
	a.Redlock, a.ZooKeeper, a.Etcd = slices.Clone(a.Redlock), slices.Clone(a.ZooKeeper), slices.Clone(a.Etcd)
	for _, d := range detours {
		d.detour(&a)
	}
	return a
}

// Way is a Detour that replaces the address of Server with Addr.
type Way struct{ Server, Addr string }

func (w Way) detour(a *Addresses) {
	if place := a.place(w.Server); place != nil {
		*place = strings.Replace(*place, a.Of(w.Server), w.Addr, 1)
	}
}

// Of returns a server's address, or "" if the stack does not run that server. If Sentinels watch
// the server, the result is NAME@ADDR instead: the master's name and a Sentinel's address.
func (a Addresses) Of(server string) string {
	place := a.place(server)
	switch {
	case server == "redis" && len(a.Sentinel) > 0:
		return watchedName(a.SentinelMaster, a.Sentinel[0])
	case place == nil:
		return ""
	case server == "db":
		return dsnAddr(*place)
	default:
		return *place
	}
}

// Dial connects to a server. If Sentinels watch the server, it first asks a Sentinel for the
// master's address.
func (a Addresses) Dial(ctx context.Context, server string) (net.Conn, error) {
	addr, err := resolve(ctx, a.Of(server))
	if err != nil {
		return nil, fmt.Errorf("stack: %w", err)
	}
	if addr == "" {
		return nil, fmt.Errorf("%w: the stack has no server %q", ErrRefused, server)
	}
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "tcp", addr)
}

// place is a server name with a pointer to the server's address, so that Detours can change it.
type place struct {
	server string
	addr   *string
}

// places returns the servers that consist of one process. The database's pointer leads to its DSN.
func (a *Addresses) places() []place {
	var all []place
	if a.Redis != "" {
		all = append(all, place{"redis", &a.Redis})
	}
	for i := range a.Redlock {
		all = append(all, place{fmt.Sprintf("redlock-%d", i+1), &a.Redlock[i]})
	}
	if isServer(a.DSN) {
		all = append(all, place{"db", &a.DSN})
	}
	for i := range a.ZooKeeper {
		all = append(all, place{"zookeeper", &a.ZooKeeper[i]})
	}
	for i := range a.Etcd {
		all = append(all, place{"etcd", &a.Etcd[i]})
	}
	return all
}

// place returns a pointer to a server's address, or to the DSN for the database. If the stack does
// not run that server, it returns nil.
func (a *Addresses) place(server string) *string {
	return catalog.First(a.places(), func(p place) bool { return p.server == server }).addr
}

// IsPostgres reports whether the database is a PostgreSQL server.
func (a Addresses) IsPostgres() bool { return isPostgres(a.DSN) }

// isServer reports whether the DSN names a database server, as opposed to a file.
func isServer(dsn string) bool { return dsn != "" && !strings.HasPrefix(dsn, "sqlite:") }

// Servers returns the servers in this stack that faults can hit, such as "redis", "redlock-1",
// "db", "zookeeper" and "etcd".
func (s *Stack) Servers() []string {
	if s.Kind == External {
		return nil
	}
	return catalog.Map(s.places(), func(p place) string { return p.server })
}

// address returns a server's address, or an error if faults cannot be injected into this server.
func (s *Stack) address(server string) (string, error) {
	if s.Kind == External {
		return "", fmt.Errorf("%w: faults are never injected into servers of the external stack: use -stack local", ErrRefused)
	}
	if server == "redis" && s.Topology != nil {
		return "", fmt.Errorf("%w: this stack's Redis has several servers, but this fault needs a single one: use -redis-topology %s", ErrRefused, catalog.SingleRedis)
	}
	if addr := s.Of(server); addr != "" {
		return addr, nil
	}
	return "", fmt.Errorf("%w: the %s stack has no server %q", ErrRefused, s.Kind, server)
}

// dsnAddr returns the host and port in a database server's DSN.
func dsnAddr(dsn string) string {
	if isPostgres(dsn) {
		_, rest, _ := strings.Cut(dsn, "@")
		addr, _, _ := strings.Cut(rest, "/")
		return addr
	}
	_, rest, _ := strings.Cut(dsn, "@tcp(")
	addr, _, _ := strings.Cut(rest, ")")
	return addr
}
