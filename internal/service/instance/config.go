package instance

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/trace"
	"grablab/internal/order"
	"grablab/internal/service/registry"
	"grablab/internal/tap"

	"github.com/peterbourgon/ff/v3"
)

// ErrUsage marks an error in the command line or the environment.
var ErrUsage = errors.New("bad usage")

// Config holds the settings of an instance.
type Config struct {
	Addr     string // address to listen on; port 0 takes any free port
	Instance string // name; the default is the port
	DB       string // DSN for order.Connect
	MaxConns int    // largest number of connections to the database
	// MinIdle is the number of idle connections that each Redis client keeps open. 0 means
	// enough for a burst.
	MinIdle int

	Redis          []string // one server, or several nodes of one Cluster
	Sentinel       []string // Sentinels that name the Redis master, instead of Redis
	SentinelMaster string
	Redlock        []string // independent nodes; NAME@ADDR means the master NAME that the Sentinel at ADDR names
	ZooKeeper      []string // servers of one ensemble
	Etcd           []string // members of one cluster

	Strategy    string
	Work        time.Duration
	TTL         time.Duration
	Wait        time.Duration
	Timeout     time.Duration // deadline of a request
	Guard       order.Guard   // the default is the strategy's own guard
	OnLost      grab.OnLost
	PerDriver   int           // largest number of units of one order that a driver may have
	ClockOffset time.Duration // how far ahead the strategies' wall clock is

	Events     string // file for events; empty for none
	AdminToken string
	Lab        string           // URL of the lab page that shows the instance; empty for none
	Registry   *registry.Eureka // lists the instance while it serves; nil for none
	OTLP       string           // URL of the collector that gets a trace of each grab; empty for none
	Control    bool             // serve the control API on loopback

	tap   tap.Tap       // intercepts the calls of the clients; nil for none
	trace *trace.Tracer // traces grabs; nil for none
}

// now returns the time on the wall clock that strategies see.
func (cfg Config) now() time.Time { return time.Now().Add(cfg.ClockOffset) }

// DefaultDB is the DSN of the database that docker compose starts.
const DefaultDB = "grab:grab@tcp(127.0.0.1:3306)/grab"

// maxName is the longest name that fits in the ledger, in bytes.
const maxName = 64

func newFlags(cfg *Config) *flag.FlagSet {
	fs := flag.NewFlagSet("grabsvc", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // Main prints the error in one line
	fs.StringVar(&cfg.Addr, "addr", "127.0.0.1:8004", "listen on `HOST:PORT`; port 0 takes any")
	fs.StringVar(&cfg.Instance, "instance", "", "`NAME` of this instance (default: its port)")
	fs.StringVar(&cfg.DB, "db", DefaultDB, "database: `DSN` of MySQL or one that speaks like it, or sqlite:/path/file.db")
	cfg.MaxConns = 64
	fs.Var((*connections)(&cfg.MaxConns), "max-db-conns", "at most `N` connections to the database")
	fs.Func("redis", "Redis at `ADDR`; several, with commas, are nodes of one Cluster", addrs(&cfg.Redis, checkAddr))
	fs.Func("sentinel", "Sentinels at `ADDR,ADDR,…`, instead of -redis", addrs(&cfg.Sentinel, checkAddr))
	fs.StringVar(&cfg.SentinelMaster, "sentinel-master", "", "`NAME` of the master that the Sentinels watch")
	fs.Func("redlock", "independent Redlock nodes at `ADDR,ADDR,…`; NAME@ADDR is the master NAME of the Sentinel at ADDR", addrs(&cfg.Redlock, checkNode))
	fs.Func("zk", "ZooKeeper, its servers at `ADDR,ADDR,…`", addrs(&cfg.ZooKeeper, checkAddr))
	fs.Func("etcd", "etcd, its members at `ADDR,ADDR,…`", addrs(&cfg.Etcd, checkAddr))
	fs.StringVar(&cfg.Strategy, "strategy", "setnx", "lock with strategy `NAME`: "+strings.Join(lock.Names(), ", "))
	fs.TextVar((*duration)(&cfg.Work), "work", duration(time.Second), "a driver works for `DURATION` between read and write")
	fs.TextVar((*duration)(&cfg.TTL), "ttl", duration(30*time.Second), "a lock lives for `DURATION` without renewal")
	fs.TextVar((*duration)(&cfg.Wait), "wait", duration(0), "wait at most `DURATION` for a lock; 0 tries once")
	fs.TextVar((*duration)(&cfg.Timeout), "timeout", duration(time.Minute), "give up a request after `DURATION`")
	fs.StringVar((*string)(&cfg.Guard), "guard", "", "write under guard `NAME`: "+strings.Join(order.GuardNames(), ", ")+" (default: the strategy's own)")
	fs.StringVar((*string)(&cfg.OnLost), "on-lost", string(grab.Abort), "when a lease is lost, `abort` the grab or ignore it")
	fs.IntVar(&cfg.PerDriver, "per-driver", 1, "a driver may have `N` units of an order that has several")
	fs.TextVar((*duration)(&cfg.ClockOffset), "clock-offset", duration(0), "strategies see a wall clock that is `DURATION` ahead")
	fs.StringVar(&cfg.Events, "events", "", "append what happens, as JSON lines, to `FILE`")
	fs.StringVar(&cfg.AdminToken, "admin-token", "", "`TOKEN` that calls which change state must bear, where -addr is not loopback")
	fs.StringVar(&cfg.Lab, "lab", "", "`URL` of a page that shows this instance, for its own first page to link to")
	fs.Func("registry", "register at the service registry `eureka=URL`, such as eureka="+registry.DefaultEureka, func(text string) error {
		server, ok := strings.CutPrefix(text, "eureka=")
		if !ok {
			return fmt.Errorf("want eureka=URL, such as eureka=%s", registry.DefaultEureka)
		}
		var err error
		cfg.Registry, err = registry.ParseEureka(server)
		return err
	})
	fs.Func("otlp", "send a trace of each grab to the OpenTelemetry collector at `URL`, such as http://127.0.0.1:4318", func(text string) error {
		cfg.OTLP = text
		return trace.CheckURL(text)
	})
	fs.BoolVar(&cfg.Control, hidden, false, "let a harness on this host hold calls and set the clock")
	return fs
}

// connections is a flag value for a number of connections. An instance needs at least two.
type connections int

func (n connections) String() string { return strconv.Itoa(int(n)) }

// Set parses the flag.
func (n *connections) Set(text string) error {
	number, err := strconv.Atoi(text)
	if err != nil || number < 2 {
		return errors.New("want a whole number, at least 2")
	}
	*n = connections(number)
	return nil
}

// hidden is the name of the only flag that usage does not list. Only loadgen sets it.
const hidden = "control"

// Parse reads flags, and environment variables for flags that are not given. Its errors are
// one line each. They wrap ErrUsage, or are flag.ErrHelp.
func Parse(args []string) (Config, error) {
	var cfg Config
	fs := newFlags(&cfg)
	err := ff.Parse(fs, args, ff.WithEnvVarPrefix("GRABSVC"))
	switch {
	case errors.Is(err, flag.ErrHelp):
		return cfg, flag.ErrHelp
	case err != nil:
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // remove the prefix "error parsing …"
		}
		return cfg, fmt.Errorf("%w: %w", ErrUsage, err)
	case fs.NArg() > 0:
		return cfg, fmt.Errorf("%w: %q is no flag; flags begin with -", ErrUsage, fs.Arg(0))
	}
	if err := cfg.validate(); err != nil {
		return cfg, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return cfg, nil
}

func (cfg Config) validate() error {
	if err := checkAddr(cfg.Addr); err != nil {
		return fmt.Errorf("-addr: %w", err)
	}
	if len(cfg.Instance) > maxName {
		return fmt.Errorf("-instance %.20s…: want at most %d bytes", cfg.Instance, maxName)
	}
	if _, err := lock.Find(cfg.Strategy); err != nil {
		return fmt.Errorf("-strategy: %w", err)
	}
	if cfg.Guard != "" {
		if _, err := order.ParseGuard(string(cfg.Guard)); err != nil {
			return fmt.Errorf("-guard: %w", err)
		}
	}
	if cfg.OnLost != grab.Abort && cfg.OnLost != grab.Ignore {
		return fmt.Errorf("-on-lost %q: want %s or %s", cfg.OnLost, grab.Abort, grab.Ignore)
	}
	if cfg.PerDriver < 1 {
		return fmt.Errorf("-per-driver %d: want at least 1", cfg.PerDriver)
	}
	for _, d := range []struct {
		flag       string
		value, min time.Duration
	}{
		{"work", cfg.Work, 0}, {"wait", cfg.Wait, 0}, {"ttl", cfg.TTL, time.Millisecond}, {"timeout", cfg.Timeout, time.Millisecond},
	} {
		if d.value < d.min {
			return fmt.Errorf("-%s %v: want at least %v", d.flag, d.value, d.min)
		}
	}
	if err := grab.CheckToken(cfg.AdminToken); err != nil {
		return fmt.Errorf("-admin-token: %w", err)
	}
	return cfg.validateRedis()
}

func (cfg Config) validateRedis() error {
	switch {
	case len(cfg.Redis) > 0 && len(cfg.Sentinel) > 0:
		return errors.New("-redis and -sentinel: want one of the two")
	case len(cfg.Sentinel) > 0 && cfg.SentinelMaster == "":
		return errors.New("-sentinel: want -sentinel-master NAME with it")
	case len(cfg.Sentinel) == 0 && cfg.SentinelMaster != "":
		return errors.New("-sentinel-master: want -sentinel ADDR with it")
	}
	nodes := slices.Sorted(slices.Values(cfg.Redlock))
	if len(slices.Compact(nodes)) < len(cfg.Redlock) {
		return fmt.Errorf("-redlock %s: want each node once, for they must be independent", strings.Join(cfg.Redlock, ","))
	}
	return nil
}

// checkAddr returns an error unless addr has the form host:port. The host may be empty.
func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.Contains(host, "@") {
		return fmt.Errorf("%q: want HOST:PORT, as in 127.0.0.1:8004", addr)
	}
	return nil
}

// checkNode returns an error unless node has the form host:port or name@host:port.
func checkNode(node string) error {
	name, addr, watched := strings.Cut(node, "@")
	if !watched {
		return checkAddr(node)
	}
	if name == "" || checkAddr(addr) != nil {
		return fmt.Errorf("%q: want NAME@HOST:PORT, as in mymaster@127.0.0.1:26379", node)
	}
	return nil
}

// addrs returns a function that parses a flag with a list of addresses, separated by commas.
func addrs(list *[]string, check func(addr string) error) func(text string) error {
	return func(text string) error {
		*list = nil
		if text == "" {
			return nil // treat an empty value like a missing flag
		}
		for addr := range strings.SplitSeq(text, ",") {
			addr = strings.TrimSpace(addr)
			if err := check(addr); err != nil {
				return err
			}
			*list = append(*list, addr)
		}
		return nil
	}
}

// duration is a flag value. Its error message says which form is valid.
type duration time.Duration

// MarshalText formats the default value for the help.
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses the flag.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return errors.New("want a duration, as in 30s, 500ms or 1m30s")
	}
	*d = duration(v)
	return nil
}

// usage prints the help text.
func usage(w io.Writer) {
	fmt.Fprint(w, `grabsvc is one instance of the order-grabbing service: it answers
POST /orders/{order_id}/grab, and GET /openapi.json tells the rest.

Usage: grabsvc [flags]
       grabsvc -version

Each flag is also an environment variable: -clock-offset is GRABSVC_CLOCK_OFFSET.

`)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	newFlags(new(Config)).VisitAll(func(f *flag.Flag) {
		if f.Name == hidden {
			return
		}
		value, text := flag.UnquoteUsage(f)
		if f.DefValue != "" {
			text += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(tw, "  -%s %s\t%s\n", f.Name, value, text)
	})
	tw.Flush()
}
