package lockbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/rpc"
	"runtime"
	"slices"
	"strings"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/stack"

	"golang.org/x/sync/errgroup"
)

// WorkerCommand is the name of the hidden command that runs a worker process.
const WorkerCommand = "bench-worker"

const (
	leaseTTL = 30 * time.Second
	// acquireTimeout is how long a worker waits for a lock.
	acquireTimeout = 10 * time.Second
	// pollEarly is how long before a job a worker process stops sleeping and polls the clock, so
	// that it starts exactly on time.
	pollEarly = 2 * time.Millisecond
	// settleTime is how long a worker waits for commands that a lock still sends after its release.
	settleTime = 2 * time.Millisecond
	// sqlConns is the connection pool size. Locks may use only three quarters of the pool, which is
	// enough for all workers.
	sqlConns = 44
)

// The following types are net/rpc messages to worker processes, sent over a Unix socket. Times are
// CLOCK_MONOTONIC, which all processes share.

// Servers is the first message to a worker process. It contains the process's name and the server
// addresses.
type Servers struct {
	Node string
	stack.Addresses
}

// Job tells a worker process what to do.
type Job struct {
	Subject string // name of the lock to measure
	// Workers is the number of workers. With 0 workers, the process only reports how many commands
	// it has sent.
	Workers int
	First   int // number of this process's first worker, counted over all processes
	Keys    []string
	Held    time.Duration // how long a worker keeps the lock each time
	At      time.Duration // when the workers start
	// Times is how many times each worker acquires the lock. If it is 0, each worker loops until
	// the time Until.
	Times int
	Until time.Duration
}

// Report is the answer to a Job.
type Report struct {
	Holds []Hold
	Sent  uint64 // commands and statements sent since the subject was opened
}

// Hold is one period in which a worker had the lock.
type Hold struct {
	Worker, Key int
	GaveUp      int           // failed Acquire calls before this one, each retried at once
	Asked       time.Duration // when the worker first called Acquire
	Acquired    time.Duration // when Acquire returned
	Released    time.Duration // when Release was called
	Done        time.Duration // when Release returned
}

// WorkerMain runs a worker process. It serves a single client on the socket in the first argument.
func WorkerMain(_ context.Context, args []string, _, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "lockbench: the path of the socket is missing")
		return 2
	}
	if err := serve(args[0]); err != nil {
		fmt.Fprintln(stderr, "lockbench:", err)
		return 1
	}
	return 0
}

// serve executes the parent process's calls on socket until the connection ends.
func serve(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	conn, err := l.Accept()
	_ = l.Close() // refuse all other clients; Close also removes the socket file
	if err != nil {
		return err
	}
	w := &worker{open: map[string]*openLock{}}
	defer w.close()
	server := rpc.NewServer()
	if err := server.RegisterName("Worker", w); err != nil {
		return err
	}
	server.ServeConn(conn)
	return nil
}

// worker executes the jobs of this process, one at a time. The workers of a job are its goroutines.
type worker struct {
	servers Servers
	open    map[string]*openLock // opened locks by subject name
}

// openLock is a lock that is ready for use. It has its own clients, so that the worker can count
// its commands.
type openLock struct {
	lock.Locker
	sent     instance.Sent
	closeEnv func() error
}

// Serve receives the addresses of the servers. The client calls it before the first job.
func (w *worker) Serve(s Servers, _ *struct{}) error {
	w.servers = s
	return nil
}

// Do executes a job and writes its results to r.
func (w *worker) Do(j Job, r *Report) error {
	o, err := w.subject(j.Subject)
	if err != nil {
		return err
	}
	if j.Workers == 0 {
		time.Sleep(settleTime)
	} else if r.Holds, err = work(o, j); err != nil {
		return err
	}
	r.Sent = o.sent.Redis.Load() + o.sent.DB.Load()
	return nil
}

// subject returns the lock with this name, and opens it on first use.
func (w *worker) subject(name string) (*openLock, error) {
	if o, ok := w.open[name]; ok {
		return o, nil
	}
	s, err := Find(name)
	if err != nil {
		return nil, err
	}
	o := new(openLock)
	env, closeEnv, err := instance.NewEnv(context.Background(), w.servers.config(s.Needs), &o.sent, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	o.closeEnv = closeEnv
	if o.Locker, err = s.New(env); err != nil {
		return nil, errors.Join(err, closeEnv())
	}
	w.open[name] = o
	return o, nil
}

// config returns the settings for an instance that uses these servers.
func (s Servers) config(needs lock.Backend) instance.Config {
	// All locks are open at once, and Redis accepts at most 10,000 connections, so keep only a few
	// idle connections.
	at := s.Only(needs)
	cfg := instance.Config{
		Instance: s.Node, TTL: leaseTTL, Wait: acquireTimeout, MinIdle: 1, DB: at.DSN, MaxConns: sqlConns,
		Sentinel: at.Sentinel, SentinelMaster: at.SentinelMaster, Redlock: at.Redlock, ZooKeeper: at.ZooKeeper, Etcd: at.Etcd,
	}
	if at.Redis != "" {
		cfg.Redis = strings.Split(at.Redis, ",") // several addresses are the nodes of one Cluster
	}
	return cfg
}

// work lets several workers compete for the lock. It returns the periods in which they held the
// lock.
func work(l lock.Locker, j Job) ([]Hold, error) {
	ctx, cancel := context.WithTimeout(context.Background(), max(j.At, j.Until)-history.Clock()+acquireTimeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx) // if one worker fails, ctx stops the others
	begin := make(chan struct{})
	holds := make([][]Hold, j.Workers)
	for i := range holds {
		g.Go(func() (err error) {
			<-begin
			holds[i], err = loop(ctx, l, j, j.First+i)
			return err
		})
	}
	await(j.At)
	close(begin)
	err := g.Wait()
	return slices.Concat(holds...), err
}

// loop lets worker n acquire the lock in a loop. It returns the periods in which the worker held
// the lock.
func loop(ctx context.Context, l lock.Locker, j Job, n int) (holds []Hold, err error) {
	key := n % len(j.Keys)
	for {
		h := Hold{Worker: n, Key: key}
		if err := hold(ctx, l, j.Keys[key], j.Held, &h); err != nil {
			return holds, err
		}
		holds = append(holds, h)
		if len(holds) == j.Times || j.Times == 0 && history.Clock() >= j.Until {
			return holds, nil
		}
	}
}

// hold acquires the lock, keeps it for the given time, and releases it.
func hold(ctx context.Context, l lock.Locker, key string, held time.Duration, h *Hold) error {
	h.Asked = history.Clock()
	lease, err := l.Acquire(ctx, key)
	for ; errors.Is(err, lock.ErrBusy) && ctx.Err() == nil; lease, err = l.Acquire(ctx, key) {
		h.GaveUp++
	}
	if err != nil {
		return err
	}
	h.Acquired = history.Clock()
	for h.Released = history.Clock(); h.Released < h.Acquired+held; { // time.Sleep would be too coarse
		h.Released = history.Clock()
	}
	err = lease.Release(ctx)
	h.Done = history.Clock()
	return err
}

// await waits until the monotonic clock shows t.
func await(t time.Duration) {
	time.Sleep(t - pollEarly - history.Clock())
	for history.Clock() < t {
		runtime.Gosched()
	}
}

// close closes all locks. It ignores errors, because the process is about to exit.
func (w *worker) close() {
	for _, o := range w.open {
		_ = o.Close()
		_ = o.closeEnv()
	}
}
