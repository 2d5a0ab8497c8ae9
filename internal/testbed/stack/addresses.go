package stack

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Addresses are where an instance finds the servers.
type Addresses struct {
	DSN       string   // of the database: "sqlite:PATH", or as go-sql-driver/mysql reads it; "": none
	Redis     string   // address of the Redis, or addresses with commas; "": not needed, or known to Sentinel
	Redlock   []string // addresses of the Redlock nodes; NAME@ADDR is the master NAME of the Sentinel at ADDR
	ZooKeeper []string // addresses of its servers; nil: not needed
	Etcd      []string // addresses of its members; nil: not needed

	Sentinel       []string // addresses of the Sentinels that know the master; nil: Redis is its address
	SentinelMaster string   // the master's name there
}

// Detour leads an instance to a server by another way than straight.
type Detour interface{ detour(*Addresses) }

// Via returns the addresses with each detour in the place of its server.
func (a Addresses) Via(detours ...Detour) Addresses {
	a.Redlock, a.ZooKeeper, a.Etcd = slices.Clone(a.Redlock), slices.Clone(a.ZooKeeper), slices.Clone(a.Etcd)
	for _, d := range detours {
		d.detour(&a)
	}
	return a
}

// Way is a detour by an address that listens in the place of a server.
type Way struct{ Server, Addr string }

func (w Way) detour(a *Addresses) {
	for _, p := range a.places() {
		switch {
		case p.server != w.Server:
		case p.server == "db":
			*p.addr = strings.Replace(*p.addr, dsnAddr(*p.addr), w.Addr, 1)
		default:
			*p.addr = w.Addr
		}
	}
}

// Of is where a server is found, by its name: its address, or NAME@ADDR for the master NAME
// of the Sentinel at ADDR; "": nowhere.
func (a Addresses) Of(server string) string {
	if server == "redis" && len(a.Sentinel) > 0 {
		return watched(a.SentinelMaster, a.Sentinel[0])
	}
	for _, p := range a.places() {
		switch {
		case p.server != server:
		case server == "db":
			return dsnAddr(*p.addr)
		default:
			return *p.addr
		}
	}
	return ""
}

// Dial connects to a server, by its name, or to the master that its Sentinel names.
func (a Addresses) Dial(ctx context.Context, server string) (net.Conn, error) {
	addr := a.Of(server)
	if master, sentinel, ok := strings.Cut(addr, "@"); ok {
		var err error
		if addr, err = masterOf(ctx, sentinel, master); err != nil {
			return nil, fmt.Errorf("stack: %w", err)
		}
	}
	if addr == "" {
		return nil, fmt.Errorf("%w: there is no server %q", ErrRefused, server)
	}
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "tcp", addr)
}

// place is where the address of one server stands.
type place struct {
	server string
	addr   *string
}

// places are those of the servers that are one process each, in the order in
// which a stack names them. The address of the database is part of its DSN.
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

// isServer says whether the DSN names a server, and not a file.
func isServer(dsn string) bool { return dsn != "" && !strings.HasPrefix(dsn, "sqlite:") }

func isRedis(server string) bool {
	return server == "redis" || strings.HasPrefix(server, "redlock-")
}

// Servers names the servers that the stack has started, and that its faults can
// strike: "redis", "redlock-1", …, "db", "zookeeper", "etcd".
func (s *Stack) Servers() []string {
	if s.Kind == External {
		return nil
	}
	var names []string
	for _, p := range s.places() {
		names = append(names, p.server)
	}
	return names
}

// address is where a server of this stack listens, or why it cannot be struck.
func (s *Stack) address(server string) (string, error) {
	if s.Kind == External {
		return "", fmt.Errorf("%w: the external stack's servers are run by others, and are left alone; use -stack local", ErrRefused)
	}
	for _, p := range s.places() {
		switch {
		case p.server != server:
		case server == "db":
			return dsnAddr(*p.addr), nil
		default:
			return *p.addr, nil
		}
	}
	if server == "db" && s.DSN != "" {
		return "", fmt.Errorf("%w: the embedded stack's database is a file and no server; use -stack local", ErrRefused)
	}
	return "", fmt.Errorf("%w: the %s stack has started no server %q", ErrRefused, s.Kind, server)
}

// dsnAddr is the address in the DSN of a server that a stack has started.
func dsnAddr(dsn string) string {
	_, rest, _ := strings.Cut(dsn, "@tcp(")
	addr, _, _ := strings.Cut(rest, ")")
	return addr
}
