// Package stack is what runs underneath the instances: Redis, the Redlock nodes,
// the database, ZooKeeper and etcd. Start takes what the chosen strategies need
// and returns a Stack once all of it answers: its addresses, its versions, and
// what faults may do to its servers. Close ends it and leaves nothing behind.
//
// There are three kinds. The embedded stack runs in this process, the local one
// starts private servers, the external one uses servers that others run.
//
// Every process that a stack starts is known to a reaper (reaper.go), a process
// in a session of its own that ends them however this one dies. Between an
// instance and a server a proxy can stand (route.go), on which network faults act.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/testbed/proc"

	"github.com/alicebob/miniredis/v2"
)

var (
	// ErrRefused says that this kind of stack cannot do what is asked.
	ErrRefused = errors.New("stack: refused")
	// ErrMissing says that a program which the local stack runs is not installed.
	ErrMissing = errors.New("stack: program missing")
	// ErrUnreachable says that an external server does not answer.
	ErrUnreachable = errors.New("stack: no answer")
)

// Config of a stack. The zero value of an optional field is its default.
type Config struct {
	Kind string // Embedded, Local or External
	// Needs is what the chosen strategies run on. Nothing else is started but
	// the database, which keeps the ledger.
	Needs lock.Backend

	Addresses // external: of the servers that are there; those not needed are left alone

	// Logs is where the output of what is spawned is kept; "": in Dir, which goes.
	Logs string

	Log *slog.Logger // nil: silent
}

// The kinds of stack.
const (
	Embedded = "embedded" // in this process: needs nothing but Go
	Local    = "local"    // private server processes on free loopback ports
	External = "external" // servers that others run
)

var starts = map[string]func(context.Context, *Stack, Config) error{
	Embedded: startEmbedded,
	Local:    startLocal,
	External: startExternal,
}

// redlockNodes is how many an embedded or a local stack has.
const redlockNodes = 5

// refused says in one sentence why there is no such stack on the operating system; "":
// there is.
func refused(kind, goos string) string {
	if kind == Local && !proc.CanStop(goos) {
		return "-stack local starts servers that are made for Linux and macOS, and ends them by process groups, which " + goos +
			" does not have: use -stack embedded, or -stack external with servers that run elsewhere"
	}
	return ""
}

// Kinds lists the names of the kinds, the one that needs least first.
func Kinds() []string { return []string{Embedded, Local, External} }

// Stack is a running stack. Its exported fields do not change. Its methods are
// safe for concurrent use.
type Stack struct {
	Kind string
	Addresses

	// What the servers said that they are; "" where there is none.
	RedisVersion     string // "Redis 7.0.15", "miniredis 2.40.0 (embedded)"
	DatabaseVersion  string // "MariaDB 10.11.19", "SQLite 3.53.0 (embedded)"
	ZooKeeperVersion string // "ZooKeeper 3.8.0"
	EtcdVersion      string // "etcd 3.4.23"

	// Dir is a private folder, which goes with the stack.
	Dir string

	log    *slog.Logger
	logs   string
	reaper *reaper
	thread *thread

	mu      sync.Mutex
	procs   []*Process
	servers map[string]server               // local
	minis   map[string]*miniredis.Miniredis // embedded
	halt    []func()                        // what else runs in this process
	closed  bool
	err     error // of the Close that did the work
}

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 5 * time.Second
)

// Start starts what cfg needs, and returns once all of it answers. The stack
// outlives ctx; it runs until Close. After an error nothing is left.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	start, ok := starts[cfg.Kind]
	if !ok {
		return nil, fmt.Errorf("%w: no stack %q; there are %s", ErrRefused, cfg.Kind, strings.Join(Kinds(), ", "))
	}
	if why := refused(cfg.Kind, runtime.GOOS); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrRefused, why)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("stack: not ready after %v", startTimeout))
	defer cancel()
	reaper, err := startReaper()
	if err != nil {
		return nil, err
	}
	s := &Stack{
		Kind: cfg.Kind, Dir: reaper.dir, log: cfg.Log, logs: cmp.Or(cfg.Logs, reaper.dir), reaper: reaper, thread: newThread(),
		servers: map[string]server{}, minis: map[string]*miniredis.Miniredis{},
	}
	if err := start(ctx, s, cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// redisNames are the Redis servers that cfg needs, the single one first.
func redisNames(cfg Config) []string {
	var names []string
	if cfg.Needs&lock.Redis != 0 {
		names = append(names, "redis")
	}
	if cfg.Needs&lock.RedisQuorum != 0 {
		for i := range redlockNodes {
			names = append(names, fmt.Sprintf("redlock-%d", i+1))
		}
	}
	return names
}

// useRedis takes over what was started, in the order of redisNames.
func (s *Stack) useRedis(cfg Config, addrs []string, infos []serverInfo) {
	if cfg.Needs&lock.Redis != 0 {
		s.Redis, addrs = addrs[0], addrs[1:]
	}
	if cfg.Needs&lock.RedisQuorum != 0 {
		s.Redlock = addrs
	}
	s.RedisVersion = versions(infos)
}

// atClose has f called by Close, after the processes have ended, or at once if
// that has been.
func (s *Stack) atClose(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		f()
		return
	}
	s.halt = append(s.halt, f)
}

// Close ends every process of the stack and removes its folder. It returns once
// they are gone; further calls return the same.
func (s *Stack) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.err
	}
	s.closed = true

	// Servers are killed: their folder goes next, and they have no clients left.
	s.stopLocked(false, stopTimeout)
	s.stopLocked(true, 0)
	for _, mini := range s.minis {
		mini.Close()
	}
	for _, halt := range s.halt {
		halt()
	}
	s.thread.close()
	s.err = s.reaper.close()
	return s.err
}

// stopLocked ends processes side by side: the servers, or all others.
func (s *Stack) stopLocked(servers bool, grace time.Duration) {
	var wg sync.WaitGroup
	for _, p := range s.procs {
		if p.server == servers {
			wg.Go(func() { _ = p.Stop(grace) })
		}
	}
	wg.Wait()
}
