package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/grab/trace"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/shard"
	"grablab/internal/order"
	"grablab/internal/present/report"
	"grablab/internal/service/registry"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// runSettings holds the flags of the run command, and what follows from them. The commands check and merge
// use it too, because they take some of the same flags.
type runSettings struct {
	experiment.Config
	asserts []experiment.Assert
	format  string
	quiet   bool
	junit   string // file for the results in JUnit format; empty for none
	resume  string // result folder of the run to continue; empty for a new run

	baselinePath string
	baseline     report.Baseline // the contents of baselinePath

	shard shard.Shard // the share of the load to send; set by -shard

	schedule string // file with a schedule to replay instead of running a table

	migrations    []fleet.Migration
	ready         string      // readiness path for an instance that -service starts
	spec          target.Spec // how to call the service under test
	targetFile    string
	ledgerQuery   string
	expectations  string   // file with expected verdicts that replace those in the registry of strategies
	strategyWords []string // the words of -strategies: names of strategies and groups
	allFaults     bool     // whether -faults contains the word all

	line           *flags.Line
	places         map[string]string // file and line of each flag that the target file sets
	unrecordedArgs []string          // flags of this command line that run.json does not record
	note           string            // what the user should know about the service; may be empty
}

// given reports whether the user set this flag on the command line or in the target file.
func (s *runSettings) given(name string) bool { return s.line.Given(name) }

type flagGroup struct {
	title string
	flags []flags.Flag
}

// groups returns all flags of the run command, grouped as in its help.
func (s *runSettings) groups() []flagGroup {
	return []flagGroup{
		{"What to run", []flags.Flag{
			flags.New("scenario", "NAME", "predefined load, whose values other flags override: "+flags.Join(scenarioNames()), flags.One(&s.Scenario, flags.OneOf(scenarioNames()...))),
			flags.New("strategies", "A,B,…", "strategies to run, in this order. The words core, all and peers (the libraries) name groups. With -targets, use the names that the targets use (default core)", flags.One(&s.strategyWords, flags.Names)),
			flags.New("faults", "A,B,…", "faults to inject, one at a time. Each strategy runs once under each fault. The word all means every fault (default none)", flags.One(&s.Faults, s.parseFaults)),
			flags.New("only", "STRATEGY/FAULT", "run only this cell, which is one strategy under one fault (repeatable)", flags.Many(&s.Only, parseCell)),
			flags.New("at", "POINT", `inject faults only at this point in a grab, such as "before claim 1" or "waiting: after acquire 2". Reports list the points`, flags.One(&s.At, flags.Pointer(fault.ParsePoint))),
			flags.New("schedule", "FILE", "replay the schedule in FILE on real servers, step by step, instead of a normal run. -strategies may name another strategy", flags.One(&s.schedule, flags.NonEmpty)),
			flags.New("seed", "N", "seed for the sequence of orders and drivers (default: a random seed, which is printed first)", flags.One(&s.Seed, flags.Seed)),
		}},
		{"Servers and instances", slices.Concat([]flags.Flag{
			flags.New("stack", "KIND", "which servers to use: "+flags.Join(stack.Kinds()), flags.One(&s.Stack.Kind, flags.OneOf(stack.Kinds()...))),
			flags.New("redis-topology", "NAME", "how -stack local runs Redis: single, cluster (three masters with one replica each) or sentinel (one master, one replica, three Sentinels) (default single)", flags.One(&s.Stack.Topology, flags.OneOf(catalog.Topologies...))),
		}, serverFlags(&s.Stack), []flags.Flag{
			flags.New("instances", "N", "number of instances to start", flags.One(&s.Instances, flags.WholeNumber(1, 64))),
			flags.New("worker-stacks", "N", "", flags.One(&s.Workers, flags.WholeNumber(1, 16))), // only tests use this flag, so the help hides it
		})},
		{"Your own service, in any language (docs/your-service.md)", s.targetFlags()},
		{"Load (defaults of the scenario rush)", []flags.Flag{
			flags.New("orders", "N", "orders per cell", flags.One(&s.Orders, flags.WholeNumber(1, maxOrders))),
			flags.New("drivers", "N", "drivers that try to grab each order", flags.One(&s.Drivers, flags.WholeNumber(1, maxRequests))),
			flags.New("stock", "N", "units per order", flags.One(&s.Stock, flags.WholeNumber(1, order.MaxStock))),
			flags.New("rate", "R", "requests per second, across all instances", flags.One(&s.Rate, parseRate)),
			flags.New("duration", "D", "run for this long at -rate, instead of a fixed number of -orders", flags.One(&s.Duration, flags.AtLeast(time.Millisecond))),
			flags.New("shard", "I/N", "send only part I of N of the load, where I is from 0 to N-1. loadgen merge then combines the results of all parts (default: JOB_COMPLETION_INDEX/GRABLAB_SHARDS from the environment)", flags.One(&s.shard.Share, shard.Parse)),
			flags.New("shard-start", "TIME", "time at which all shards begin, such as 2026-11-20T21:30:00Z", flags.One(&s.shard.Start, shard.ParseStart)),
			flags.New("timeout", "D", "client timeout for a request", flags.One(&s.Timeout, flags.Between(time.Millisecond, time.Hour))),
			flags.New("repeat", "N", "how many times to run each strategy without a fault. The strategies take turns. With more than one run, the table also shows the costs as medians with intervals", flags.One(&s.Repeat, flags.WholeNumber(1, 1000))),
			flags.New("warmup", "D", "before each load, send grabs to other orders for this long and discard the results", flags.One(&s.Warmup, flags.AtLeast(0))),
			flags.New("settle", "D", "how long your service's ledger must stay unchanged before the verdict (default: one lease, or 2s if that is longer)", flags.One(&s.Settle, flags.AtLeast(time.Millisecond))),
			flags.New("max-workers", "N", "maximum number of requests in flight", flags.One(&s.MaxWorkers, flags.WholeNumber(1, 1_000_000))),
			flags.New("p99", "D", "scenario peak: a rate counts as sustained up to this p99 latency, measured from the scheduled send time", flags.One(&s.PeakP99, flags.AtLeast(time.Millisecond))),
			flags.New("budget", "D", "time limit for a cell with a fault, and for the search of the scenario peak", flags.One(&s.Budget, flags.AtLeast(time.Millisecond))),
			flags.New("budget-total", "D", "time limit for the whole run. When it ends, no further cell starts, and running cells with a fault stop. The riskiest cells run first, and a cell that did not run has the verdict unknown", flags.One(&s.BudgetTotal, flags.AtLeast(time.Millisecond))),
		}},
		{"The grab in instances that loadgen starts (defaults of the scenario rush)", []flags.Flag{
			flags.New("work", "D", "how long a driver works between the read and the write", flags.One(&s.Work, flags.AtLeast(0))),
			flags.New("ttl", "D", "lifetime of a lock without renewal", flags.One(&s.TTL, flags.AtLeast(time.Millisecond))),
			flags.New("wait", "D", "maximum time that a driver waits for the lock; 0 tries once", flags.One(&s.Wait, flags.AtLeast(0))),
			flags.New("guard", "NAME", "condition under which the winner is written: "+flags.Join(order.Guards)+" (default: the strategy's own)", flags.One(&s.Guard, flags.OneOf(order.Guards...))),
			flags.New("per-driver", "N", "maximum units per driver, for orders with several units", flags.One(&s.PerDriver, flags.WholeNumber(1, order.MaxStock))),
			flags.New("on-lost", "ACTION", "what a grab does if it loses its lease: abort, ignore", flags.One(&s.OnLost, flags.OneOf(grab.Abort, grab.Ignore))),
			flags.New("clock-offset", "D", "how far the second instance's wall clock is ahead", flags.One(&s.ClockOffset, flags.Duration)),
		}},
		{"Output", []flags.Flag{
			flags.New("out", "DIR", "result folder. It must not hold another run (default: results/TIME-SCENARIO)", flags.One(&s.Out, flags.NonEmpty)),
			flags.New("resume", "DIR", "continue the interrupted run in DIR, with its original flags", flags.One(&s.resume, flags.NonEmpty)),
			flags.New("format", "NAME", "format of standard output: text, json", flags.One(&s.format, flags.OneOf("text", "json"))),
			flags.New("assert", "CLAIM", `exit with 3 if the claim does not hold (repeatable): [strategy[/fault]:]field OP number, such as double_grabs==0; or "expected"`, flags.Many(&s.asserts, parseAssert)),
			flags.New("junit", "FILE", "write a test case for each cell and each -assert, in JUnit's XML format. Cells with an unexpected verdict fail, and so do unsafe and stuck cells without an expectation", flags.One(&s.junit, newFile)),
			flags.New("baseline", "DIR|FILE", "exit with 3 if a cell is worse than in this result folder, or in this file that loadgen baseline wrote. A cell that is not in the baseline must have the expected verdict, or safe if none is expected", flags.One(&s.baselinePath, readable)),
			flags.New("expectations", "FILE", "file with expected verdicts that replace those of the registry. Each line is STRATEGY: VERDICT or STRATEGY: {FAULT: VERDICT}", flags.One(&s.expectations, readable)),
			flags.New("otlp", "URL", "send a trace of each grab to the OpenTelemetry collector at this URL, such as http://127.0.0.1:4318", flags.One(&s.OTLP, flags.Checked(trace.CheckURL))),
			flags.New("quiet", "", "print no progress", flags.Switch(&s.quiet)),
		}},
	}
}

func (s *runSettings) flags() []flags.Flag {
	return slices.Concat(catalog.Map(s.groups(), func(g flagGroup) []flags.Flag { return g.flags })...)
}

// targetFlags returns the flags that describe the user's service, which are also the keys of a
// target file.
func (s *runSettings) targetFlags() []flags.Flag {
	return []flags.Flag{
		flags.New("service", "COMMAND", "command that starts one instance of your service. loadgen runs it once for each instance, with the servers of -stack local behind proxies. The command may contain "+fleet.Placeholders(), flags.One(&s.Service, flags.Pointer(fleet.ParseService))),
		flags.New("ready", "PATH", "with -service: an instance is ready once this path returns 2xx (default: once it accepts connections)", flags.One(&s.ready, parseReady)),
		flags.New("migrate", "STEP", `with -service: step that prepares the empty database before the instances start (repeatable): "sql: STATEMENT"; a command with {db_host} and so on; or "service", which starts one instance first to do it`, flags.Many(&s.migrations, fleet.ParseMigration)),
		flags.New("targets", "URL,URL", "base URLs of running instances, if loadgen should not start any; or a registry that lists them: eureka:APP[@URL], dns:NAME, dns:HOST:PORT or k8s:SERVICE", flags.One(&s.Target.URLs, parseTargets)),
		flags.New("target-pid", "PID,PID", "process ID of each target, in the same order, for -faults pause,crash. crash kills the process permanently", flags.One(&s.Target.PIDs, parsePIDs)),
		flags.New("target-file", "FILE", "YAML file with the flags that describe your service (targets, path, body, header, grabbed, …). The command line overrides it", flags.One(&s.targetFile, readable)),
		flags.New("path", "TEMPLATE", "path of the grab, with {order} and {driver} (default /orders/{order}/grab)", flags.One(&s.spec.Path, flags.Valid(target.ParsePath))),
		flags.New("method", "NAME", "method of the grab (default POST)", flags.One(&s.spec.Method, target.ParseMethod)),
		flags.New("body", "TEMPLATE", `body of the grab (default {"driver_id":{driver}})`, flags.One(&s.spec.Body, flags.Pointer(flags.Valid(target.ParseBody)))),
		flags.New("header", "NAME: VALUE", "header of the grab, with {order} and {driver} (repeatable)", flags.Many(&s.spec.Headers, flags.Valid(target.ParseHeader))),
		flags.New("grabbed", "RULE", "responses that mean that the driver has won. RULE lists HTTP statuses or JSON fields, such as json:.code==0 (default 200)", flags.One(&s.spec.Grabbed, flags.Valid(target.ParseRule))),
		flags.New("taken", "RULE", "responses that mean that another driver has won (default 409)", flags.One(&s.spec.Taken, flags.Valid(target.ParseRule))),
		flags.New("busy", "RULE", "responses that mean that the driver did not get the lock (default 423)", flags.One(&s.spec.Busy, flags.Valid(target.ParseRule))),
		flags.New("later", "RULE -> PLACE", "responses that arrive before the result. PLACE is the path of the result, or the part of the response that contains its URL, such as '202 -> /results/{json:.id}' or '202 -> header:Location'", flags.One(&s.spec.Later, flags.Valid(target.ParseLater))),
		flags.New("first-order", "ID", "first order ID, for targets that cannot open orders", flags.One(&s.Target.FirstOrder, parseID)),
		flags.New("probe-drivers", "FIRST", "first driver ID for the probes after the load. Each further order and each retry uses the next ID (default 1000000000)", flags.One(&s.Target.ProbeDrivers, parseProbeDrivers)),
		flags.New("open-orders", "CALL", `call that opens orders: METHOD PATH BODY -> FIELD, such as 'POST /orders {"n":{count}} -> .first_id'; or sql: STATEMENT with {order}, or with {first} and {last} (repeatable)`, flags.Many(&s.spec.OpenOrders, flags.Valid(target.ParseOpening))),
		flags.New("ledger-query", "SQL", "query that reads the order and the driver of each grab from the database -db, such as 'SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?'", flags.One(&s.ledgerQuery, flags.NonEmpty)),
		flags.New("lease", "D", "lifetime of the service's lock without renewal. An order counts as stuck only after that time (default 30s)", flags.One(&s.Target.Lease, flags.AtLeast(time.Millisecond))),
		flags.New("no-expiry", "", "the lock never expires while its driver is stopped, like a row lock. -lease is then only how long faults last", flags.Switch(&s.Target.NoExpiry)),
		flags.New("compensation", "D", "how long your service may take to undo a second grab. A grab undone in time does not count, and the report says how long the order had more than one winner", flags.One(&s.Target.Compensation, flags.AtLeast(100*time.Millisecond))),
		flags.New("idempotent", "", "count ledger rows with the same order and driver as one grab, in case a driver retries", flags.Switch(&s.Target.Idempotent)),
		flags.New("admin-token", "TOKEN", "bearer token for the targets' control API", flags.One(&s.Target.Token, bearer)),
	}
}

// serverFlags returns the flags for the addresses of servers that are already running.
func serverFlags(c *stack.Config) []flags.Flag {
	return []flags.Flag{
		flags.New("db", "DSN", "database for -stack external or for the targets. A service other than grabsvc also needs -ledger-query", flags.One(&c.DSN, flags.NonEmpty)),
		flags.New("redis", "ADDR", "Redis server for -stack external", flags.One(&c.Redis, flags.NonEmpty)),
		flags.New("redlock", "ADDR,ADDR,…", "Redlock nodes for -stack external. NAME@ADDR means the master NAME of the Sentinel at ADDR", flags.One(&c.Redlock, flags.Names)),
		flags.New("sentinel", "ADDR,ADDR,…", "Sentinels that know the Redis master's address, instead of -redis", flags.One(&c.Sentinel, flags.Names)),
		flags.New("sentinel-master", "NAME", "name of the master that the Sentinels watch", flags.One(&c.SentinelMaster, flags.NonEmpty)),
		flags.New("zk", "ADDR,ADDR,…", "ZooKeeper servers for -stack external", flags.One(&c.ZooKeeper, flags.Names)),
		flags.New("etcd", "ADDR,ADDR,…", "etcd members for -stack external", flags.One(&c.Etcd, flags.Names)),
	}
}

// core lists the strategies that run by default.
var core = []string{"none", "mutex", "setnx", "watchdog", "redlock"}

// defaultWorkers is how many tests with a fault run in parallel by default. It may exceed the
// number of CPUs, because the tests mostly wait.
const defaultWorkers = 4

// defaults returns the default settings for a scenario, which flags can override.
func defaults(scenario string) *runSettings {
	s := &runSettings{Config: experiment.Defaults(scenario), format: "text", line: new(flags.Line), places: map[string]string{}}
	s.Stack.Kind, s.Workers = stack.Embedded, defaultWorkers
	s.Strategies, _ = parseStrategies("core")
	return s
}

// These limits keep runs short, because even opening a million orders takes a minute.
const (
	maxOrders   = 1_000_000
	maxRequests = 100_000_000 // number of orders times number of drivers
	minRate     = 0.001       // requests per second
	maxRate     = 1e6
)

var parseReady = flags.Where(flags.Text,
	func(path string) bool { return strings.HasPrefix(path, "/") && !strings.ContainsAny(path, "# \t\r\n") },
	"must be a path that begins with a slash, such as /healthz")

// readable returns name unchanged, or an error if there is no readable file with that name.
func readable(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	return name, f.Close()
}

// newFile returns name unchanged, or an error if it is empty or names a folder.
func newFile(name string) (string, error) {
	if isFolder(name) {
		return "", errors.New("is a folder: give the path of a file")
	}
	return flags.NonEmpty(name)
}

// bearer returns the token, or an error if the token is not safe in an HTTP header.
func bearer(text string) (string, error) {
	text, err := flags.NonEmpty(text)
	return text, cmp.Or(err, grab.CheckToken(text))
}

var parseRate = flags.Where(
	func(text string) (float64, error) { return strconv.ParseFloat(text, 64) },
	func(r float64) bool { return r >= minRate && r <= maxRate },
	fmt.Sprintf("must be a rate in requests per second, from %g to %.0f", minRate, maxRate))

func parseInt(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

var parseID = flags.Where(parseInt, func(n int64) bool { return n >= 1 }, "must be an order ID, which is a number of 1 or more")

// maxDriver is the highest driver id that is allowed. Many JSON parsers cannot represent larger
// integers exactly.
const maxDriver = 1 << 53

var parseProbeDrivers = flags.Where(parseInt, func(n int64) bool { return n >= 2 && n <= maxDriver },
	fmt.Sprintf("must be the first driver ID for test grabs, from 2 to %d", int64(maxDriver)))

func parseAssert(text string) (experiment.Assert, error) {
	a, err := experiment.ParseAssert(text)
	switch {
	case errors.Is(err, experiment.ErrNoFigure):
		return a, flags.Unknown("field", a.Figure, experiment.Figures)
	case err != nil:
		return a, withoutPrefix(err, experiment.ErrAssert)
	}
	return a, nil
}

func scenarioNames() []string {
	return catalog.Map(experiment.Scenarios, func(s experiment.Scenario) string { return s.Name })
}

// parseStrategies parses names of strategies and of the groups "core", "all" and "peers". The group "all"
// contains the strategies in added too.
func parseStrategies(text string, added ...lock.Strategy) ([]lock.Strategy, error) {
	same := func(a, b lock.Strategy) bool { return a.Name == b.Name }
	return flags.Each(text, same, func(word string) ([]lock.Strategy, error) {
		switch word {
		case "core":
			return parseStrategies(strings.Join(core, ","))
		case "all":
			return slices.Concat(lock.Strategies, added), nil
		case "peers":
			return lock.Peers, nil
		}
		if i := slices.IndexFunc(added, func(s lock.Strategy) bool { return s.Name == word }); i >= 0 {
			return added[i : i+1], nil
		}
		s, err := findStrategy(word)
		return []lock.Strategy{s}, err
	})
}

func nameOf(s lock.Strategy) string { return s.Name }

func findStrategy(name string) (lock.Strategy, error) {
	s, err := lock.Find(name)
	if err != nil {
		return s, flags.Unknown("strategy", name, catalog.Map(slices.Concat(lock.Strategies, lock.Peers), nameOf), "core", "all", "peers")
	}
	return s, nil
}

// parseFaults parses names of faults, or "all". It returns the faults in catalog order.
func (s *runSettings) parseFaults(text string) ([]catalog.Fault, error) {
	same := func(a, b catalog.Fault) bool { return a == b }
	s.allFaults = false // forget an earlier -faults flag
	chosen, err := flags.Each(text, same, func(word string) ([]catalog.Fault, error) {
		if word == "all" {
			s.allFaults = true
			return catalog.RunFaults, nil
		}
		f, err := findFault(word)
		return []catalog.Fault{f}, err
	})
	if err != nil {
		return nil, err
	}
	return catalog.Filter(catalog.RunFaults, func(f catalog.Fault) bool { return slices.Contains(chosen, f) }), nil
}

// findFault returns the fault with this name, which may be outdated.
func findFault(name string) (catalog.Fault, error) {
	found, _ := catalog.FindFault(name)
	if slices.Contains(catalog.RunFaults, found.Name) {
		return found.Name, nil
	}
	return "", flags.Unknown("fault", name, catalog.RunFaults, "all")
}

func parseCell(text string) (experiment.CellName, error) {
	strategy, fault, ok := strings.Cut(text, "/")
	if !ok {
		return experiment.CellName{}, errors.New("must be a strategy and a fault, separated by a slash, such as setnx/pause")
	}
	f, err := findFault(fault)
	return experiment.CellName{Strategy: strategy, Fault: f}, err
}

func parsePIDs(text string) ([]int, error) {
	list, err := flags.Names(text)
	if err != nil {
		return nil, err
	}
	pids := make([]int, len(list))
	for i, word := range list {
		if pids[i], err = strconv.Atoi(word); err != nil || pids[i] < 2 {
			return nil, fmt.Errorf("%q must be a process ID of 2 or more, such as pgrep prints", word)
		}
		if slices.Contains(pids[:i], pids[i]) { // two texts may mean the same number, as in 5,05
			return nil, fmt.Errorf("%d is named twice: name it once", pids[i])
		}
	}
	return pids, nil
}

// parseTargets parses the value of -targets: either a list of base URLs, or one source that finds
// all instances.
func parseTargets(text string) ([]string, error) {
	list, err := flags.List(text)
	if err != nil {
		return nil, err
	}
	for i, target := range list {
		if registry.IsSource(target) {
			if len(list) > 1 {
				return nil, fmt.Errorf("%s already finds all instances: leave out the other URLs", target)
			}
			_, err := registry.Parse(target)
			return list, err
		}
		u, err := url.Parse(target)
		if err == nil && u.Port() != "" {
			_, err = strconv.ParseUint(u.Port(), 10, 16)
		}
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("%q must be the base URL of an instance, such as http://127.0.0.1:8004 or http://127.0.0.1:8080/shop", target)
		}
		list[i] = u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/")
		if slices.Contains(list[:i], list[i]) {
			return nil, fmt.Errorf("%s is named twice: name each instance once", list[i])
		}
	}
	return list, nil
}
