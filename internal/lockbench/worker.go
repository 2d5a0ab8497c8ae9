package lockbench

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/instance"
	"grablab/internal/tap"

	"golang.org/x/sync/errgroup"
)

// WorkerCommand is the hidden subcommand by which this program is a worker.
const WorkerCommand = "bench-worker"

const (
	leaseTTL = 30 * time.Second
	// patience is how long a lock may take that was asked for within a slice.
	patience = 10 * time.Second
	// early is how long before its time a process stops sleeping and looks at
	// the clock all the time.
	early = 2 * time.Millisecond
	// settling is given to what a lock still sends after its release returned.
	settling = 2 * time.Millisecond
	// sqlConns is one for each worker of a process, of the three quarters that
	// may be pinned.
	sqlConns = 44
)

// WorkerMain is a worker process: it does the jobs that come over the socket
// named by its one argument, until that closes.
func WorkerMain(_ context.Context, args []string, _, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "lockbench: want a socket")
		return 2
	}
	conn, err := net.Dial("unix", args[0])
	if err == nil {
		defer conn.Close()
		err = serve(conn)
	}
	if err != nil {
		fmt.Fprintln(stderr, "lockbench:", err)
		return 1
	}
	return 0
}

func serve(conn io.ReadWriter) error {
	w := &worker{in: gob.NewDecoder(conn), out: gob.NewEncoder(conn), clock: history.Clock(), open: map[string]*opened{}}
	defer w.close()
	if err := w.in.Decode(&w.servers); err != nil {
		return err
	}
	for {
		var j job
		if err := w.in.Decode(&j); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		} else if err != nil {
			return err
		}
		if err := w.out.Encode(w.do(j)); err != nil {
			return err
		}
	}
}

// worker is one process of workers.
type worker struct {
	in      *gob.Decoder
	out     *gob.Encoder
	servers servers
	clock   func() time.Duration
	open    map[string]*opened
}

// opened is a contender with what counts its commands.
type opened struct {
	contender
	sent   instance.Sent
	others atomic.Uint64 // what clients of its own send
	env    func() error  // closes it
}

func (w *worker) do(j job) report {
	c, err := w.contender(j.Contestant)
	if err != nil {
		return report{Err: err.Error()}
	}
	var r report
	if j.Workers == 0 {
		time.Sleep(settling)
	} else if r.Holds, err = w.work(c.take, j); err != nil {
		r.Err = err.Error()
	}
	r.Sent = c.sent.Redis.Load() + c.sent.DB.Load() + c.others.Load()
	return r
}

// contender opens each contestant once, with clients of its own.
func (w *worker) contender(name string) (*opened, error) {
	if o, ok := w.open[name]; ok {
		return o, nil
	}
	who, err := Find(name)
	if err != nil {
		return nil, err
	}
	o := new(opened)
	env, closeEnv, err := instance.NewEnv(context.Background(), w.servers.config(who.Needs), &o.sent, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	o.env = closeEnv
	o.contender, err = who.open(tools{Env: env, servers: w.servers, counted: func(d tap.Dialer) tap.Dialer { return tap.CountRedis(d, &o.others) }})
	if err != nil {
		return nil, errors.Join(err, closeEnv())
	}
	w.open[name] = o
	return o, nil
}

// config is that of an instance which needs no more.
func (s servers) config(needs lock.Backend) instance.Config {
	cfg := instance.Config{Instance: s.Node, TTL: leaseTTL, Wait: patience}
	if needs&lock.Redis != 0 {
		cfg.Sentinel, cfg.SentinelMaster = s.Sentinel, s.SentinelMaster
		if s.Redis != "" {
			cfg.Redis = []string{s.Redis}
		}
	}
	if needs&lock.RedisQuorum != 0 {
		cfg.Redlock = s.Redlock
	}
	if needs&lock.SQL != 0 {
		cfg.DB, cfg.MaxConns = s.DSN, sqlConns
	}
	if needs&lock.ZooKeeper != 0 {
		cfg.ZooKeeper = s.ZooKeeper
	}
	if needs&lock.Etcd != 0 {
		cfg.Etcd = s.Etcd
	}
	return cfg
}

// work has j.Workers take the lock side by side, and returns what they did.
func (w *worker) work(take takeFunc, j job) ([]Hold, error) {
	ctx, cancel := context.WithTimeout(context.Background(), max(j.At, j.Until)-w.clock()+patience)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx) // who fails ends the waiting of all
	begin := make(chan struct{})
	holds := make([][]Hold, j.Workers)
	for i := range holds {
		g.Go(func() (err error) {
			<-begin
			holds[i], err = w.turn(ctx, take, j, j.First+i)
			return err
		})
	}
	w.await(j.At)
	close(begin)
	err := g.Wait()
	return slices.Concat(holds...), err
}

// turn is what one worker does in a job.
func (w *worker) turn(ctx context.Context, take takeFunc, j job, n int) (holds []Hold, err error) {
	key := n % len(j.Keys)
	for {
		h := Hold{Worker: n, Key: key}
		if err := w.hold(ctx, take, j.Keys[key], j.Held, &h); err != nil {
			return holds, err
		}
		holds = append(holds, h)
		if len(holds) == j.Times || j.Times == 0 && w.clock() >= j.Until {
			return holds, nil
		}
	}
}

// hold takes the lock, holds it and gives it back.
func (w *worker) hold(ctx context.Context, take takeFunc, key string, held time.Duration, h *Hold) error {
	h.Asked = w.clock()
	release, err := take(ctx, key)
	for ; errors.Is(err, lock.ErrBusy) && ctx.Err() == nil; release, err = take(ctx, key) {
		h.GaveUp++
	}
	if err != nil {
		return err
	}
	h.Acquired = w.clock()
	for h.Released = w.clock(); h.Released < h.Acquired+held; {
		h.Released = w.clock()
	}
	err = release(ctx)
	h.Done = w.clock()
	return err
}

// await returns at t.
func (w *worker) await(t time.Duration) {
	time.Sleep(t - early - w.clock())
	for w.clock() < t {
		runtime.Gosched()
	}
}

// close ends what was opened, and tells nobody if that fails: the process goes.
func (w *worker) close() {
	for _, o := range w.open {
		_ = o.close()
		_ = o.env()
	}
}
