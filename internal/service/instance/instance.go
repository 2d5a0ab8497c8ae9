// Package instance runs one instance of the order-grabbing service. It reads flags and environment
// variables, creates the clients and a grab.Service, and serves HTTP. grabsvc only calls Main.
// loadgen also calls Main when it starts itself as an instance, so both run the same code.
//
// For tests, the hidden -control flag makes an instance also serve the control API (package
// control), but only to programs on the same host.
package instance

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/trace"
	"grablab/internal/history"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/service/registry"
	"grablab/internal/service/version"
	"grablab/internal/tap"
	"grablab/migrations"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/term"
)

// ExitAddrInUse is the exit code if another process already uses the address, so that the parent
// process can try another port.
const ExitAddrInUse = 98

// Main runs an instance until ctx ends or a signal arrives. The exit code is 0 for success, 1 for a
// failure, 2 for bad usage, or ExitAddrInUse. A second signal ends the process immediately.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if slices.Contains([]string{"-version", "--version"}, strings.Join(args, " ")) {
		fmt.Fprintln(stdout, version.Line("grabsvc"))
		return 0
	}
	cfg, err := Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		usage(stdout)
		return 0
	}
	if err == nil {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, EndSignals()...)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		err = Run(ctx, cfg, stdout, newLogger(stderr))
	}
	if err == nil {
		return 0
	}
	text := strings.TrimPrefix(err.Error(), ErrUsage.Error()+": ")
	fmt.Fprintf(stderr, "grabsvc: %s\n", strings.ReplaceAll(text, "\n", "; "))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ExitAddrInUse
	case errors.Is(err, ErrUsage), errors.Is(err, migrations.ErrForeign):
		return 2
	}
	return 1
}

// EndSignals returns the signals that ask a program to stop. These include SIGHUP, unless the
// program runs under nohup.
func EndSignals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// newLogger returns a logger that writes plain text to a terminal, and JSON to anything else.
func newLogger(w io.Writer) *slog.Logger {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, nil))
}

// Run prints an instance's address and serves requests until ctx ends. It then waits for running
// requests, so that they release their locks. If cfg is invalid, the error wraps ErrUsage.
func Run(ctx context.Context, cfg Config, stdout io.Writer, log *slog.Logger) (err error) {
	logging.Disable() // go-redis would log errors that callers also get as return values

	listener, err := listen(&cfg)
	if err != nil {
		return err
	}
	defer listener.Close()
	log = log.With("instance", cfg.Instance)

	recorder, closeRecorder, err := newRecorder(cfg)
	if err != nil {
		return err
	}
	defer closing(&err, closeRecorder)

	warn := func(err error) { log.Warn("cannot send traces", "error", err) }
	if cfg.trace, err = trace.Dial(ctx, cfg.OTLP, appName, cfg.Instance, warn); err != nil {
		return err
	}
	defer cfg.trace.Close()

	now := cfg.now
	var harness *control.Server
	if cfg.Control {
		harness = control.NewServer(cfg.Instance, cfg.ClockOffset, recorder)
		now, recorder = harness.Now, harness
		defer context.AfterFunc(ctx, harness.Close)()
	}

	var sent Sent
	store, err := openStore(ctx, cfg, &sent.DB, log)
	if err != nil {
		return err
	}
	defer closing(&err, store.Close)
	orders := order.Store(store)
	if harness != nil {
		cfg.tap, orders = harness.Do, pooled{harness.Orders(store), store}
	}
	cfg.tap = cfg.trace.Tap(cfg.tap)
	clients, err := newClients(cfg, &sent.Redis)
	if err != nil {
		return err
	}
	defer closing(&err, clients.Close)

	service, err := grab.New(grab.Config{
		Instance: cfg.Instance, Orders: orders, Lock: newEnv(cfg, clients, orders, now, log),
		Strategy: cfg.Strategy, Work: cfg.Work, Guard: cfg.Guard, OnLost: cfg.OnLost, PerDriver: cfg.PerDriver, History: recorder, Trace: cfg.trace,
	})
	if errors.Is(err, lock.ErrUnreachable) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	defer closing(&err, service.Close)

	handler := grab.NewHandler(service, grab.HTTPConfig{
		Timeout: cfg.Timeout, Public: !isLoopback(listener.Addr()), AdminToken: cfg.AdminToken,
		Ready: readiness(store, clients), Metrics: newMetrics(&sent), Log: log, Lab: cfg.Lab,
	})
	if harness != nil {
		handler = harness.Handler(handler)
	}
	log.Info("listening", "addr", listener.Addr().String(), "strategy", cfg.Strategy)
	fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())
	defer announce(ctx, cfg.Registry, listener.Addr(), log)()
	return serve(ctx, cfg, listener, handler, log)
}

// appName is the name of the service in registries and traces.
const appName = "grabsvc"

// announce keeps an instance registered until ctx ends or stop is called. stop waits until the
// registry has removed the instance.
func announce(ctx context.Context, server *registry.Eureka, addr net.Addr, log *slog.Logger) (stop func()) {
	tcp, ok := addr.(*net.TCPAddr)
	if server == nil || !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var announcing sync.WaitGroup
	announcing.Go(func() { server.Announce(ctx, registry.Self{App: appName, Addr: tcp}, log) })
	return func() {
		cancel()
		announcing.Wait()
	}
}

// listen listens on cfg.Addr. If the instance has no name, it is named after its port.
func listen(cfg *Config) (net.Listener, error) {
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("%w: -addr: %w", ErrUsage, err)
	}
	if cfg.Control && !isLoopback(listener.Addr()) {
		listener.Close()
		return nil, fmt.Errorf("%w: -%s: an instance can be controlled only on loopback: use -addr 127.0.0.1:PORT", ErrUsage, hidden)
	}
	if cfg.Instance == "" {
		_, cfg.Instance, _ = net.SplitHostPort(listener.Addr().String())
	}
	return listener, nil
}

// pooled is a Store that also provides its connection pool, because some locks need it.
type pooled struct {
	order.Store
	pool interface{ DB() *sql.DB }
}

func (p pooled) DB() *sql.DB { return p.pool.DB() }

// closing calls close and adds its error to *err. Use it in defer statements, which could not
// return the error otherwise.
func closing(err *error, close func() error) { *err = errors.Join(*err, close()) }

// newRecorder returns a recorder that appends events to the file cfg.Events, and a function that
// closes the file. Without a file name, events are discarded.
func newRecorder(cfg Config) (history.Recorder, func() error, error) {
	if cfg.Events == "" {
		return history.Discard, func() error { return nil }, nil
	}
	events, err := history.Create(cfg.Events, cfg.Instance)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: -events: %w", ErrUsage, err)
	}
	return events, events.Close, nil
}

// connectTimeout is the timeout for reaching the database. migrateTimeout is longer, because
// another instance may be creating the tables at the same time.
const (
	connectTimeout = 10 * time.Second
	migrateTimeout = 2 * time.Minute
)

// openStore connects to the database and creates missing tables. It counts the statements in
// statements.
func openStore(ctx context.Context, cfg Config, statements *atomic.Uint64, log *slog.Logger) (*order.SQL, error) {
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	store, err := order.Connect(connecting, cfg.DB, order.Options{
		Wrap: func(c driver.Connector) driver.Connector {
			return tap.Connector(c, cfg.trace.Tap(nil), cfg.Instance, tap.DB, statements)
		},
		MaxConns: cfg.MaxConns, Log: log,
	})
	if errors.Is(err, order.ErrBadDSN) {
		return nil, fmt.Errorf("%w: -db: %w", ErrUsage, err)
	}
	if err != nil {
		return nil, fmt.Errorf("-db: %w", err)
	}
	migrating, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	if err := store.Migrate(migrating); err != nil {
		return nil, errors.Join(fmt.Errorf("-db: %w", err), store.Close())
	}
	return store, nil
}

func newEnv(cfg Config, c *clients, store order.Store, now func() time.Time, log *slog.Logger) lock.Env {
	return lock.Env{
		Node: cfg.Instance, Redis: c.redis, Redlock: c.redlock, Orders: store,
		ZooKeeper: c.zooKeeper, Etcd: c.etcd, AroundRedis: tap.Around(cfg.tap, cfg.Instance, "redis"),
		TTL: cfg.TTL, Wait: cfg.Wait,
		Now:   now,
		Token: rand.Text, PerDriver: cfg.PerDriver,
		Rand: mathrand.Float64,
		Log:  log,
	}
}

func newMetrics(sent *Sent) *grab.Metrics {
	counter := func(name, help string, n *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(n.Load()) })
	}
	m := grab.NewMetrics()
	m.MustRegister(
		counter("grab_redis_commands_total", "Commands sent to Redis, including those that set up a connection or a subscription.", &sent.Redis),
		counter("grab_db_statements_total", "Statements sent to the database, including BEGIN, COMMIT and ROLLBACK.", &sent.DB),
	)
	return m
}

// readiness returns a function that pings all servers and reports whether the instance is ready. An
// instance is ready even if a minority of the Redlock nodes is down.
func readiness(store *order.SQL, c *clients) func(context.Context) (map[string]error, bool) {
	c.pings["db"] = store.Ping
	return func(ctx context.Context) (map[string]error, bool) {
		var (
			asking        sync.WaitGroup
			mu            sync.Mutex
			checks        = map[string]error{}
			nodes, others int // servers that are down: Redlock nodes and others
		)
		for name, ping := range c.pings {
			asking.Go(func() {
				err := ping(ctx)
				mu.Lock()
				defer mu.Unlock()
				checks[name] = err
				switch {
				case err == nil:
				case strings.HasPrefix(name, "redlock-"):
					nodes++
				default:
					others++
				}
			})
		}
		asking.Wait()
		return checks, others == 0 && 2*nodes < max(len(c.redlock), 1)
	}
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// unlockTimeout is how long a request may continue after its deadline, so that it can write the
// winner and release the lock.
const unlockTimeout = 20 * time.Second

// serve answers requests until ctx ends. It then finishes the requests in flight.
func serve(ctx context.Context, cfg Config, l net.Listener, h http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       cfg.Timeout + unlockTimeout, // a shorter timeout would cancel running requests
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	log.Info("stopping: finishing the requests in flight")
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Timeout+unlockTimeout)
	defer cancel()
	err := server.Shutdown(finish)
	<-ended // wait until Serve has returned http.ErrServerClosed
	if err != nil {
		err = errors.Join(fmt.Errorf("some requests were still in flight at the end: %w", err), server.Close())
	}
	log.Info("stopped")
	return err
}
