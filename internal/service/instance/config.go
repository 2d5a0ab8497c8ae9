package instance

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"grablab/internal/flags"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/trace"
	"grablab/internal/order"
	"grablab/internal/service/registry"
	"grablab/internal/tap"

	"github.com/peterbourgon/ff/v3"
)

// ErrUsage means that the command line or an environment variable is wrong.
var ErrUsage = flags.ErrUsage

// Config configures an instance.
type Config struct {
	Addr     string // address to listen on; port 0 takes any free port
	Instance string // instance name; empty means the port number
	DB       string // database, in the form that order.Connect accepts
	MaxConns int    // maximum number of database connections
	// MinIdle is the number of idle connections that each Redis client keeps. The default, 0, keeps
	// enough for a burst of requests. There is no flag for it; only package lockbench sets it.
	MinIdle int

	Redis          []string // addresses of one server, or of several nodes of one Cluster
	Sentinel       []string // addresses of Sentinels that know the Redis master; used instead of Redis
	SentinelMaster string
	Redlock        []string // addresses of independent nodes; NAME@ADDR means the master NAME that the Sentinel at ADDR reports
	ZooKeeper      []string // addresses of the servers in one ensemble
	Etcd           []string // addresses of the members in one cluster

	Strategy    string
	Work        time.Duration
	TTL         time.Duration
	Wait        time.Duration
	Timeout     time.Duration // timeout for a request
	Guard       order.Guard   // condition for writing a winner; empty means the strategy's default
	OnLost      grab.OnLost
	PerDriver   int           // how many units of one order a driver may win
	ClockOffset time.Duration // how far the locking strategies' clock is ahead of the true time

	Events     string // file to which events are appended; empty for none
	AdminToken string
	Lab        string           // URL of the lab page that shows this instance; empty for none
	Registry   *registry.Eureka // registry in which the instance is listed while it serves; nil for none
	OTLP       string           // URL of the collector that receives a trace of each grab; empty for none
	Control    bool             // whether to serve the control API, which is possible only on loopback

	// Run sets these fields.
	tap   tap.Tap       // intercepts all calls of the clients; may be nil
	trace *trace.Tracer // records traces of grabs; may be nil
}

func (cfg Config) now() time.Time { return time.Now().Add(cfg.ClockOffset) }

// DefaultDB is the database address in the project's docker compose file.
const DefaultDB = "grab:grab@tcp(127.0.0.1:3306)/grab"

// maxName is the maximum length of an instance name in bytes. It is the size of the database
// column.
const maxName = 64

// hidden is the name of a flag that the help does not show, because only loadgen uses it.
const hidden = "control"

// newFlags returns flags that store their values in cfg. It also sets cfg to the defaults.
func newFlags(cfg *Config) []flags.Flag {
	*cfg = Config{
		Addr: "127.0.0.1:8004", DB: DefaultDB, MaxConns: 64, Strategy: "setnx",
		Work: time.Second, TTL: 30 * time.Second, Timeout: time.Minute, OnLost: grab.Abort, PerDriver: 1,
	}
	return []flags.Flag{
		flags.New("addr", "HOST:PORT", "listen on HOST:PORT; port 0 means any free port", flags.One(&cfg.Addr, flags.Checked(checkAddr))),
		flags.New("instance", "NAME", "call this instance NAME (default: its port)", flags.One(&cfg.Instance, flags.Where(flags.Text, isName, fmt.Sprintf("must have at most %d bytes", maxName)))),
		flags.New("db", "DSN", "use the database at DSN: MySQL, a server with the MySQL protocol, or sqlite:/path/file.db", flags.One(&cfg.DB, flags.Text)),
		flags.New("max-db-conns", "N", "open at most N database connections", flags.One(&cfg.MaxConns, flags.WholeNumber(2, 100_000))),
		flags.New("redis", "ADDR", "use the Redis at ADDR; several addresses, separated by commas, must be nodes of one Cluster", flags.One(&cfg.Redis, addrs(checkAddr))),
		flags.New("sentinel", "ADDR,ADDR,…", "find the Redis master through the Sentinels at ADDR,ADDR,…, instead of -redis", flags.One(&cfg.Sentinel, addrs(checkAddr))),
		flags.New("sentinel-master", "NAME", "use the master NAME that the Sentinels watch", flags.One(&cfg.SentinelMaster, flags.Text)),
		flags.New("redlock", "ADDR,ADDR,…", "use the independent Redlock nodes at ADDR,ADDR,…; NAME@ADDR means the master NAME of the Sentinel at ADDR", flags.One(&cfg.Redlock, addrs(checkNode))),
		flags.New("zk", "ADDR,ADDR,…", "use the ZooKeeper servers at ADDR,ADDR,…", flags.One(&cfg.ZooKeeper, addrs(checkAddr))),
		flags.New("etcd", "ADDR,ADDR,…", "use the etcd members at ADDR,ADDR,…", flags.One(&cfg.Etcd, addrs(checkAddr))),
		flags.New("strategy", "NAME", "lock with strategy NAME: "+flags.Join(lock.Names()), flags.One(&cfg.Strategy, flags.Valid(lock.Find))),
		flags.New("work", "DURATION", "let each driver work for DURATION between its read and its write", flags.One(&cfg.Work, flags.AtLeast(0))),
		flags.New("ttl", "DURATION", "let a lock expire after DURATION without renewal", flags.One(&cfg.TTL, flags.AtLeast(time.Millisecond))),
		flags.New("wait", "DURATION", "wait at most DURATION for a lock; 0 tries once", flags.One(&cfg.Wait, flags.AtLeast(0))),
		flags.New("timeout", "DURATION", "time out a request after DURATION", flags.One(&cfg.Timeout, flags.AtLeast(time.Millisecond))),
		flags.New("guard", "NAME", "write under guard NAME: "+flags.Join(order.Guards)+" (default: the strategy's own)", flags.One(&cfg.Guard, parseGuard)),
		flags.New("on-lost", "ACTION", "when a lease is lost, abort the grab or ignore it", flags.One(&cfg.OnLost, flags.OneOf(grab.Abort, grab.Ignore))),
		flags.New("per-driver", "N", "let a driver take at most N units of an order with several units", flags.One(&cfg.PerDriver, flags.WholeNumber(1, order.MaxStock))),
		flags.New("clock-offset", "DURATION", "set the strategies' wall clock ahead by DURATION", flags.One(&cfg.ClockOffset, flags.Duration)),
		flags.New("events", "FILE", "append events to FILE as JSON lines", flags.One(&cfg.Events, flags.Text)),
		flags.New("admin-token", "TOKEN", "require the bearer token TOKEN in calls that change state, if -addr is not loopback", flags.One(&cfg.AdminToken, flags.Checked(grab.CheckToken))),
		flags.New("lab", "URL", "link this instance's start page to the lab page at URL", flags.One(&cfg.Lab, flags.Text)),
		flags.New("registry", "eureka=URL", "register with the service registry at URL, such as eureka="+registry.DefaultEureka, flags.One(&cfg.Registry, parseRegistry)),
		flags.New("otlp", "URL", "send a trace of each grab to the OpenTelemetry collector at URL, such as http://127.0.0.1:4318", flags.One(&cfg.OTLP, flags.Checked(trace.CheckURL))),
		flags.New(hidden, "", "", flags.Switch(&cfg.Control)),
	}
}

// SentinelRules lists the rules for flags of Redis Sentinel. Every command with these flags uses these
// rules.
var SentinelRules = []flags.Rule{
	{Flags: "sentinel", Excludes: "-redis", Wrong: "-sentinel and -redis both say where Redis is", Do: "use only one of these flags"},
	{Flags: "sentinel", Needs: "-sentinel-master", Wrong: "the Redis master name is missing", Do: "add -sentinel-master NAME"},
	{Flags: "sentinel-master", Needs: "-sentinel", Wrong: "the Sentinel addresses are missing", Do: "add -sentinel ADDR"},
}

// Parse parses an instance's flags. For a missing flag, it falls back to the flag's environment
// variable. Errors have a single line, and wrap ErrUsage or flag.ErrHelp.
func Parse(args []string) (Config, error) {
	var cfg Config
	line, err := flags.ParseFlags(newFlags(&cfg), args, ff.WithEnvVarPrefix("GRABSVC"))
	if err != nil {
		return cfg, err
	}
	if err := flags.Check(SentinelRules, line, nil); err != nil {
		return cfg, flags.Usage("%w", err)
	}
	return cfg, nil
}

// isName reports whether name fits into the database column.
func isName(name string) bool { return len(name) <= maxName }

// parseGuard parses a guard name. A guard is the condition for writing a winner. An empty name
// selects the strategy's default.
func parseGuard(name string) (order.Guard, error) {
	if name == "" {
		return "", nil
	}
	return order.ParseGuard(name)
}

func parseRegistry(text string) (*registry.Eureka, error) {
	server, ok := strings.CutPrefix(text, "eureka=")
	if !ok {
		return nil, fmt.Errorf("must be eureka=URL, such as eureka=%s", registry.DefaultEureka)
	}
	return registry.ParseEureka(server)
}

// checkAddr returns an error if addr does not have the form host:port. The host may be empty.
func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.Contains(host, "@") {
		return fmt.Errorf("%q: must be HOST:PORT, as in 127.0.0.1:8004", addr)
	}
	return nil
}

// checkNode returns an error if node does not have the form host:port or name@host:port.
func checkNode(node string) error {
	name, addr, watched := strings.Cut(node, "@")
	if !watched {
		return checkAddr(node)
	}
	if name == "" || checkAddr(addr) != nil {
		return fmt.Errorf("%q: must be NAME@HOST:PORT, as in mymaster@127.0.0.1:26379", node)
	}
	return nil
}

// addrs returns a parser for a comma-separated list of addresses. An empty text is an empty list.
func addrs(check func(addr string) error) flags.Parser[[]string] {
	return func(text string) ([]string, error) {
		if text == "" {
			return nil, nil
		}
		list, err := flags.Names(text)
		for _, addr := range list {
			if err := check(addr); err != nil {
				return nil, err
			}
		}
		return list, err
	}
}

func usage(w io.Writer) {
	fmt.Fprint(w, `grabsvc is one instance of the order-grabbing service: it answers
POST /orders/{order_id}/grab, and GET /openapi.json describes all calls.

Usage: grabsvc [flags]
       grabsvc -version

Each flag is also an environment variable: -clock-offset is GRABSVC_CLOCK_OFFSET.

`)
	flags.Print(w, newFlags(new(Config)))
}
