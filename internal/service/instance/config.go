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
	"grablab/internal/order"
	"grablab/internal/tap"

	"github.com/peterbourgon/ff/v3"
)

// ErrUsage marks an error of the command line or the environment.
var ErrUsage = errors.New("bad usage")

// Config of an instance.
type Config struct {
	Addr     string // to listen on; port 0: any
	Instance string // name; "": the port
	DB       string // as order.Connect reads it
	MaxConns int    // to the database
	// MinIdle is how many connections each client of Redis keeps open beside those that are in
	// use; 0: as many as a burst needs.
	MinIdle int

	Redis          []string // one server, or several nodes of one Cluster
	Sentinel       []string // instead: the master that these name
	SentinelMaster string
	Redlock        []string // independent nodes; NAME@ADDR is the master NAME of the Sentinel at ADDR
	ZooKeeper      []string // servers of one ensemble
	Etcd           []string // members of one cluster

	Strategy    string
	Work        time.Duration
	TTL         time.Duration
	Wait        time.Duration
	Timeout     time.Duration // of a request
	Guard       order.Guard   // "": each strategy's own
	OnLost      grab.OnLost
	PerDriver   int           // units of an order of several that one driver may have
	ClockOffset time.Duration // how far the wall clock that strategies see is ahead

	Events     string // file; "": none is written
	AdminToken string
	Lab        string // URL of the page that shows the instance; "": none does
	Control    bool   // a harness on its own host may hold its calls and set its clock

	tap tap.Tap // of the clients; nil: none
}

// now is the wall clock that strategies see.
func (cfg Config) now() time.Time { return time.Now().Add(cfg.ClockOffset) }

// DefaultDB is where docker compose puts the database.
const DefaultDB = "grab:grab@tcp(127.0.0.1:3306)/grab"

// maxName is what the ledger has room for.
const maxName = 64

func newFlags(cfg *Config) *flag.FlagSet {
	fs := flag.NewFlagSet("grabsvc", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // Main says what is wrong, in one line
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
	fs.BoolVar(&cfg.Control, hidden, false, "let a harness on this host hold calls and set the clock")
	return fs
}

// connections is a number of them, with which an instance can work.
type connections int

func (n connections) String() string { return strconv.Itoa(int(n)) }

// Set reads a flag.
func (n *connections) Set(text string) error {
	number, err := strconv.Atoi(text)
	if err != nil || number < 2 {
		return errors.New("want a whole number, at least 2")
	}
	*n = connections(number)
	return nil
}

// hidden is the one flag that usage does not show: it serves experiments.
const hidden = "control"

// Parse reads flags, and environment variables where no flag is given. Its
// errors are one line each and wrap ErrUsage, or flag.ErrHelp.
func Parse(args []string) (Config, error) {
	var cfg Config
	fs := newFlags(&cfg)
	err := ff.Parse(fs, args, ff.WithEnvVarPrefix("GRABSVC"))
	switch {
	case errors.Is(err, flag.ErrHelp):
		return cfg, flag.ErrHelp
	case err != nil:
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without "error parsing …"
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

// checkAddr wants host:port; the host may be empty.
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

// checkNode wants host:port, or name@host:port.
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

// addrs reads a flag of addresses with commas between them.
func addrs(list *[]string, check func(addr string) error) func(text string) error {
	return func(text string) error {
		*list = nil
		if text == "" {
			return nil // as if it were not given
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

// duration is the value of a flag whose error says what would be right.
type duration time.Duration

// MarshalText is for the default that the help shows.
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what was given.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return errors.New("want a duration, as in 30s, 500ms or 1m30s")
	}
	*d = duration(v)
	return nil
}

// usage writes what -help answers.
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
