package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/proc"

	"golang.org/x/sync/errgroup"
)

// startLocal starts the required servers on this machine in parallel. It stores their addresses and
// versions in s.
func startLocal(ctx context.Context, s *Stack, cfg Config) error {
	progs, err := findPrograms(cfg.Needs, cfg.Postgres)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	if cfg.Needs&lock.Redis != 0 && cfg.RunsRedis() != catalog.SingleRedis {
		cfg.Needs &^= lock.Redis
		g.Go(func() error { return s.startTopology(ctx, progs.redis, cfg.Topology) })
	}
	serve := func(srv server, addr *string, info *serverInfo) {
		g.Go(func() (err error) {
			*addr, *info, err = s.serve(ctx, srv, "")
			return err
		})
	}
	places := s.redisPlaces(cfg.Needs)
	redis, zooKeeper, etcd := make([]serverInfo, len(places)), serverInfo{}, serverInfo{}
	for i, p := range places {
		serve(redisServer(progs.redis, s.Dir, p.server), p.addr, &redis[i])
	}
	if cfg.Needs&lock.ZooKeeper != 0 {
		s.ZooKeeper = make([]string, 1)
		serve(zooKeeperServer(progs.zooKeeper, s.Dir), &s.ZooKeeper[0], &zooKeeper)
	}
	if cfg.Needs&lock.Etcd != 0 {
		s.Etcd = make([]string, 1)
		serve(etcdServer(progs.etcd, s.Dir), &s.Etcd[0], &etcd)
	}
	g.Go(func() (err error) {
		if cfg.Postgres {
			s.DSN, s.DatabaseVersion, err = s.servePostgres(ctx, progs.postgres)
		} else {
			s.DSN, s.DatabaseVersion, err = s.serveDatabase(ctx, progs.database)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	s.RedisVersion = versions(redis)
	if s.Topology != nil {
		s.RedisVersion = s.Topology.version()
	}
	s.ZooKeeperVersion, s.EtcdVersion = zooKeeper.version, etcd.version
	return nil
}

// redisServer describes how to start a Redis server without persistence, so a restart loses all
// data. It adds the given arguments to those that every server needs.
func redisServer(exe, dir, name string, more ...string) server {
	return server{
		name: name,
		exe:  exe,
		args: func(addr string) ([]string, error) {
			return append([]string{
				"--bind", "127.0.0.1", "--port", portOf(addr), "--protected-mode", "yes",
				"--save", "", "--appendonly", "no", "--dir", dir, "--dbfilename", name + ".rdb",
				"--daemonize", "no",
				"--repl-diskless-sync-delay", "0", // a master waits five seconds by default, for more replicas
			}, more...), nil
		},
		ask: askRedis,
	}
}

// server describes how to start a program that listens on a port.
type server struct {
	name string
	exe  string
	args func(addr string) ([]string, error)
	// quit is the signal that ends this server abruptly. 0 means SIGKILL.
	quit syscall.Signal
	// ask returns an error if the server at addr is not ready yet.
	ask func(ctx context.Context, addr string) (serverInfo, error)
}

// PortTries is how many ports to try for a server or an instance. One is not enough, because another process may take a
// free port before the server can use it.
const PortTries = 5

// serve starts a server and waits until the server is ready. If the argument at is empty, the server
// uses a free port.
func (s *Stack) serve(ctx context.Context, srv server, at string) (addr string, info serverInfo, err error) {
	for range PortTries {
		if addr = at; addr == "" {
			if addr, err = proc.FreeAddr(); err != nil {
				return "", info, err
			}
		}
		if info, err = s.serveAt(ctx, srv, addr); !errors.Is(err, ErrPortTaken) {
			break
		}
	}
	return addr, info, err
}

// ErrPortTaken means that a server or an instance cannot start, because its port is in use.
var ErrPortTaken = errors.New("another process uses its port")

// serveAt starts a server at addr and waits until it is ready. It returns ErrPortTaken if another
// process uses the port.
func (s *Stack) serveAt(ctx context.Context, srv server, addr string) (info serverInfo, err error) {
	args, err := srv.args(addr)
	if err != nil {
		return info, fmt.Errorf("stack: %s: %w", srv.name, err)
	}
	p := &Process{Name: srv.name, log: filepath.Join(s.Dir, srv.name+".log"), server: true, quit: srv.quit}
	if err := s.spawn(ctx, p, srv.exe, args, nil); err != nil {
		return info, err
	}
	err = await(ctx, p.Done(), func() (err error) {
		info, err = srv.ask(ctx, addr)
		return err
	})
	if err == nil {
		err = p.owns(addr)
	}
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.servers[srv.name] = srv
		return info, nil
	}
	_ = p.Stop(0)
	if errors.Is(err, errEnded) {
		err = fmt.Errorf("%w (%v)", err, cmp.Or(p.Wait(), errors.New("exit status 0")))
	}
	tail := p.LogTail()
	if strings.Contains(tail, "ddress already in use") {
		err = fmt.Errorf("%w: %w", ErrPortTaken, err)
	}
	return info, fmt.Errorf("stack: %s: %s: %w: make sure that this program starts on its own, or put another one on PATH\nits last lines:\n%s",
		srv.name, srv.exe, err, cmp.Or(tail, "(the program printed nothing)"))
}

// owns returns ErrPortTaken if another process listens at addr.
func (p *Process) owns(addr string) error {
	port, err := strconv.Atoi(portOf(addr))
	if ours, known := proc.Listens([]int{p.Pid()}, port); known && !ours {
		return fmt.Errorf("%w: another server answers at this address", ErrPortTaken)
	}
	return err
}

const pollInterval = 5 * time.Millisecond

var errEnded = errors.New("ended before it was ready")

// await polls ask until it returns nil. It returns an error if ended is closed or ctx ends first.
// ended may be nil.
func await(ctx context.Context, ended <-chan struct{}, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return errEnded
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

// run runs a program to completion. It returns an error if the program fails.
func (s *Stack) run(ctx context.Context, name, exe string, args []string) error {
	p := &Process{Name: name, log: filepath.Join(s.Dir, name+".log")} // not a server, so Ended does not report its end
	if err := s.spawn(ctx, p, exe, args, nil); err != nil {
		return err
	}
	if err := p.Complete(ctx); err != nil {
		return fmt.Errorf("stack: %s: %w\n%s", filepath.Base(exe), err, p.LogTail())
	}
	return nil
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}
