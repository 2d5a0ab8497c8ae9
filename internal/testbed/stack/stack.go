// Package stack provides the servers that the instances use: Redis, the Redlock nodes, the database,
// ZooKeeper and etcd. Start takes the servers that the chosen strategies need, and returns a Stack once
// all of these servers respond. The Stack knows their addresses and versions, and its methods inject
// faults into the servers. Close stops everything.
//
// There are three kinds of stack. The embedded stack runs in this process, the local stack starts
// private servers, and the external stack uses servers that others run.
//
// No process is left behind, no matter how this process dies. A reaper (reaper.go), which runs in its
// own session, watches every process that a stack starts and ends it. On macOS, a process that was
// started only a few milliseconds before this process is killed stays. A proxy (route.go) between an
// instance and a server simulates network faults.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"

	"github.com/alicebob/miniredis/v2"
)

var (
	// ErrRefused means that this kind of stack does not support the operation.
	ErrRefused = errors.New("stack: refused")
	// ErrMissing means that a program is not installed.
	ErrMissing = errors.New("stack: program missing")
	// ErrUnreachable means that an external server does not respond.
	ErrUnreachable = errors.New("stack: no answer")
)

// Config configures a stack.
type Config struct {
	Kind string // Embedded, Local or External
	// Needs lists the servers that the strategies need. Except for External, a database is always
	// included.
	Needs lock.Backend
	// Postgres makes a local stack run PostgreSQL instead of MariaDB or MySQL.
	Postgres bool
	// Topology selects a group of Redis servers of a local stack, such as a Cluster. If it is empty,
	// there is a single Redis server.
	Topology catalog.Topology

	Addresses // for External, the servers to use; the stack contacts no other servers

	// Logs is the directory for the output of the instances. If it is empty, they use the stack's own
	// directory, like the servers. Close deletes that directory.
	Logs string
}

// RunsRedis returns the topology of the Redis servers. The default is a single server.
func (c Config) RunsRedis() catalog.Topology { return cmp.Or(c.Topology, catalog.SingleRedis) }

// These are the kinds of stacks.
const (
	Embedded = "embedded" // in this process; needs only Go
	Local    = "local"    // private server processes on free loopback ports
	External = "external" // servers that others run
)

var starts = map[string]func(context.Context, *Stack, Config) error{
	Embedded: startEmbedded,
	Local:    startLocal,
	External: startExternal,
}

const redlockNodes = 5

// Kinds returns the kinds of stacks. The first one requires the fewest installed programs.
func Kinds() []string { return []string{Embedded, Local, External} }

// Stack is a group of running servers. It is safe for concurrent use, and its exported fields do
// not change.
type Stack struct {
	Kind string
	Addresses

	// These are the versions that the servers report, or "" for a server that does not run.
	RedisVersion     string // such as "Redis 7.0.15" or "miniredis 2.40.0 (embedded)"
	DatabaseVersion  string // such as "MariaDB 10.11.19" or "SQLite 3.53.0 (embedded)"
	ZooKeeperVersion string // such as "ZooKeeper 3.8.0"
	EtcdVersion      string // such as "etcd 3.4.23"

	// Topology is the Redis Cluster, or the master with its replica and Sentinels. It is nil for a
	// single Redis server.
	Topology *Topology

	// Dir is the stack's temporary folder, which Close removes.
	Dir string

	logs   string
	reaper *reaper

	mu      sync.Mutex
	procs   []*Process
	servers map[string]server               // the server processes of a local stack
	minis   map[string]*miniredis.Miniredis // the servers of an embedded stack
	halt    []func()                        // functions that stop other parts in this process
	closed  bool
	err     error // the result of the first Close
}

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 5 * time.Second
)

// Start starts the servers in cfg and waits until they respond. They run until Close is called,
// even if ctx ends. If Start fails, it leaves no process and no file behind.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	start, ok := starts[cfg.Kind]
	if !ok {
		return nil, fmt.Errorf("%w: unknown stack %q: use one of %s", ErrRefused, cfg.Kind, strings.Join(Kinds(), ", "))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("stack: the servers were not ready within %v", startTimeout))
	defer cancel()
	reaper, err := startReaper()
	if err != nil {
		return nil, err
	}
	s := &Stack{
		Kind: cfg.Kind, Dir: reaper.dir, logs: cmp.Or(cfg.Logs, reaper.dir), reaper: reaper,
		servers: map[string]server{}, minis: map[string]*miniredis.Miniredis{},
	}
	if err := start(ctx, s, cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// redisPlaces returns the single Redis servers to start. Whoever starts a server stores its address.
func (s *Stack) redisPlaces(needs lock.Backend) (all []place) {
	if needs&lock.Redis != 0 {
		all = append(all, place{"redis", &s.Redis})
	}
	if needs&lock.RedisQuorum != 0 {
		s.Redlock = make([]string, redlockNodes)
		for i := range s.Redlock {
			all = append(all, place{fmt.Sprintf("redlock-%d", i+1), &s.Redlock[i]})
		}
	}
	return all
}

// atClose makes Close call f after all processes have ended.
func (s *Stack) atClose(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		f()
		return
	}
	s.halt = append(s.halt, f)
}

// Close stops every process and removes the folder. A second call does nothing and returns the same
// error.
func (s *Stack) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.err
	}
	s.closed = true

	// Stop the other processes first. After that, no client uses the servers, so they can be killed
	// at once.
	s.stopLocked(false, stopTimeout)
	s.stopLocked(true, 0)
	for _, mini := range s.minis {
		mini.Close()
	}
	for _, halt := range s.halt {
		halt()
	}
	s.err = s.reaper.close()
	return s.err
}

// stopLocked stops the servers if the argument servers is true, and all other processes otherwise.
func (s *Stack) stopLocked(servers bool, grace time.Duration) {
	var wg sync.WaitGroup
	for _, p := range s.procs {
		if p.server == servers {
			wg.Go(func() { _ = p.Stop(grace) })
		}
	}
	wg.Wait()
}
