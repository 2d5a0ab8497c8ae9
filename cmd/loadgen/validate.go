package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// validate checks that the flags fit together, and derives other settings from them.
func (s *settings) validate() error {
	checkRules := func() error { return flags.Check(runRules, s.line, s.facts()) }
	for _, step := range []func() error{
		s.chooseNames, s.chooseCells, checkRules, s.readExpectations, s.readBaseline, s.describeTarget, s.sizeLoad, s.checkProbes, s.checkServers, s.checkAsserts,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// chooseNames sets the strategies to run. It accepts unknown names only if the run tests the user's
// service.
func (s *settings) chooseNames() error {
	if !s.TestsService() {
		return s.checkNames()
	}
	for _, word := range catalog.Distinct(slices.Concat(s.strategyWords, catalog.Map(s.Only, strategyOf))) {
		switch word {
		case "all":
			s.Target.Strategies = nil
			return nil
		case "core":
			s.Target.Strategies = append(s.Target.Strategies, core...)
		case "peers":
			s.Target.Strategies = append(s.Target.Strategies, catalog.Map(lock.Peers, nameOf)...)
		default:
			s.Target.Strategies = append(s.Target.Strategies, word)
		}
	}
	return nil
}

// checkNames returns an error if -strategies or -only names an unknown strategy.
func (s *settings) checkNames() error {
	if s.strategyWords != nil {
		if _, err := parseStrategies(strings.Join(s.strategyWords, ",")); err != nil {
			return fmt.Errorf("%s: %w", s.line.Label("strategies"), err)
		}
	}
	for _, c := range s.Only {
		if _, err := findStrategy(c.Strategy); err != nil {
			return fmt.Errorf("%s: %w", flags.Label("only", c.String()), err)
		}
	}
	return nil
}

func strategyOf(c experiment.CellName) string { return c.Strategy }

// chooseCells keeps only the strategies and faults that the -only flag selects. It also records which
// settings the user has chosen, because a test with a fault must not change those settings.
func (s *settings) chooseCells() error {
	s.Asked = experiment.Asked{Work: s.given("work"), TTL: s.given("ttl"), Wait: s.given("wait"), Timeout: s.given("timeout")}
	if s.Stack.Kind == stack.External && !s.given("worker-stacks") {
		s.Workers = 1 // the servers of an external stack serve only one run at a time
	}
	if s.allFaults {
		s.Faults = catalog.Filter(s.Faults, func(f catalog.Fault) bool { return f.OnTopology(s.Stack.RunsRedis()) })
	}
	if len(s.Only) == 0 {
		return nil
	}
	if !s.given("faults") {
		s.Faults = catalog.RunFaults
	}
	if s.TestsService() { // the program does not know the strategies of a service before it runs
		if !s.given("faults") {
			s.Faults = faultsOf(s.Faults, s.Only)
		}
		return nil
	}
	if !s.given("strategies") {
		named := catalog.Distinct(catalog.Map(s.Only, strategyOf))
		var err error
		if s.Strategies, err = parseStrategies(strings.Join(named, ",")); err != nil {
			return err
		}
	}
	plan := s.Plan()
	for _, c := range s.Only {
		if !slices.Contains(plan, c) {
			return fmt.Errorf("-only %s: -strategies or -faults does not include this combination: add it there, or leave out these two flags", c)
		}
	}
	s.Strategies = slices.DeleteFunc(s.Strategies, func(o lock.Strategy) bool {
		return !slices.ContainsFunc(plan, func(c experiment.CellName) bool { return c.Strategy == o.Name })
	})
	s.Faults = faultsOf(s.Faults, plan)
	return nil
}

// faultsOf returns the faults that at least one of the tests uses.
func faultsOf(faults []catalog.Fault, cells []experiment.CellName) []catalog.Fault {
	return catalog.Filter(faults, func(f catalog.Fault) bool {
		return slices.ContainsFunc(cells, func(c experiment.CellName) bool { return c.Fault == f })
	})
}

// anyCell calls has with the fault of each planned test, and reports whether any call returns true. For
// the user's service, it uses the faults that the user named, because the strategies are not known yet.
func (s *settings) anyCell(has func(catalog.Fault) bool) bool {
	cellHas := func(c experiment.CellName) bool { return has(c.Fault) }
	if s.TestsService() {
		return slices.ContainsFunc(s.Faults, has) || slices.ContainsFunc(s.Only, cellHas)
	}
	return slices.ContainsFunc(s.Plan(), cellHas)
}

func (s *settings) readExpectations() (err error) {
	if s.expectations == "" {
		return nil
	}
	if s.Expect, err = target.ReadExpectations(s.expectations); err != nil {
		return fmt.Errorf("-expectations: %w", err)
	}
	for _, e := range s.Expect {
		if _, err := findStrategy(e.Strategy); err != nil && !s.TestsService() {
			return fmt.Errorf("-expectations: %s:%d: %w", s.expectations, e.Line, err)
		}
	}
	return nil
}

// describeTarget checks the flags that describe the user's service.
func (s *settings) describeTarget() error {
	if !s.TestsService() {
		return nil
	}
	shape, open, err := s.spec.Compile()
	if field, ok := errors.AsType[*target.FieldError](err); ok {
		return fmt.Errorf("%s: %w", s.line.Name(field.Field), field.Err)
	}
	if err != nil {
		return err
	}
	if s.Target.Open = open; !s.spec.IsOwn() {
		s.Target.Shape = shape
	}
	if s.Target.PIDs != nil {
		s.Workers = 1 // all workers would use the same set of instances
	}
	if (s.Target.PIDs != nil || s.Service != nil) && !s.given("budget") && s.Scenario != "peak" {
		s.Budget = serviceBudget
	}
	if !shape.TellsDrivers() {
		s.note = "note: none of -path, -body and -header contains {driver}, so the service cannot tell drivers apart"
	}
	dsn := s.Stack.DSN
	if s.Service != nil {
		s.startService()
		dsn = "grablab@tcp(127.0.0.1:3306)/grablab" // placeholder for the database that the stack will start
		if s.Stack.Postgres = s.Service.UsesPostgres(); s.Stack.Postgres {
			dsn = "postgres://grablab@127.0.0.1/postgres"
		}
	}
	if dsn == "" {
		return nil
	}
	s.Target.Database = target.Database{DSN: s.Stack.DSN, Query: s.ledgerQuery}
	err = ledger.Check(dsn, s.ledgerQuery)
	switch {
	case s.ledgerQuery != "" && shape.NamesOrders() && !strings.Contains(s.ledgerQuery, "{orders}"):
		return fmt.Errorf("%s: the service chooses the order IDs, so the query must list them: use WHERE order_id IN ({orders})", s.line.Name("ledger-query"))
	case errors.Is(err, ledger.ErrQuery):
		return fmt.Errorf("%s: %s", s.line.Name("ledger-query"), strings.TrimPrefix(err.Error(), "ledger: "))
	case err != nil:
		return fmt.Errorf("%s: %s", s.line.Name("db"), strings.TrimPrefix(err.Error(), "ledger: "))
	}
	return nil
}

// serviceBudget is the default time limit for testing one strategy of the user's service under one
// fault. It is long, because such a test injects the fault once for every remote call.
const serviceBudget = 15 * time.Minute

// startService adjusts the settings for a service that loadgen itself starts, as -service requests.
func (s *settings) startService() {
	s.Service.Ready, s.Service.Migrations, s.Stack.Kind = s.ready, s.migrations, stack.Local
	if !s.Service.Uses("ttl_ms") {
		s.TTL = cmp.Or(s.Target.Lease, target.DefaultLease)
	}
	if !s.given("worker-stacks") {
		s.Workers = 2 // instances of other services may need much memory
	}
}

// sizeLoad derives the number of orders from the -duration flag, and returns an error if that makes
// too many requests.
func (s *settings) sizeLoad() error {
	if s.Duration > 0 {
		requests := s.Rate * s.Duration.Seconds()
		if requests > maxRequests {
			return fmt.Errorf("-duration %v: at -rate %g, this makes more than %d requests: use a shorter time or a lower rate", s.Duration, s.Rate, maxRequests)
		}
		s.Orders = max(1, int(requests)/s.Drivers)
	}
	if s.Orders > maxRequests/s.Drivers {
		return fmt.Errorf("-orders %d: with %d drivers for each order, this makes more than %d requests: use fewer orders or drivers", s.Orders, s.Drivers, maxRequests)
	}
	return nil
}

// faultDrivers is an upper bound on the number of drivers in a test with a fault.
const faultDrivers = 1000

// checkProbes returns an error if the load could use a driver id that is reserved for the test
// requests.
func (s *settings) checkProbes() error {
	last := s.Drivers
	if s.anyCell(func(f catalog.Fault) bool { return f != catalog.NoFault }) {
		last = max(last, faultDrivers)
	}
	if first := s.Target.ProbeDrivers; first > 0 && first <= int64(last) {
		return fmt.Errorf("-probe-drivers %d: drivers 1 to %d take part in the load: choose a number above %[2]d", first, last)
	}
	return nil
}

// checkServers records which servers the strategies need. It returns an error if a strategy cannot
// be used with the guard, or if -stack external lacks an address.
func (s *settings) checkServers() error {
	for _, strategy := range s.Strategies {
		if strategy.GuardedBy(s.Guard).NeedsFence() && !strategy.Fences {
			return fmt.Errorf("-guard %s: strategy %s has no fencing tokens: use another guard, or strategies with tokens such as setnx-fenced", s.Guard, strategy.Name)
		}
		s.Stack.Needs |= strategy.Needs
	}
	if s.TestsService() || s.Stack.Kind != stack.External {
		return nil
	}
	if s.Stack.DSN == "" {
		return errors.New("-stack external: the database for the ledger is missing: add -db DSN")
	}
	for _, strategy := range s.Strategies {
		if flags := s.Stack.Lacks(strategy.Needs); flags != "" {
			return fmt.Errorf("-stack external: the servers that strategy %s needs are missing: add %s", strategy.Name, flags)
		}
	}
	return nil
}

// checkAsserts returns an error if an -assert flag names a test that will not run. It checks
// nothing if the strategies are not known yet.
func (s *settings) checkAsserts() error {
	plan := s.Plan()
	for _, a := range s.asserts {
		allStrategies := len(s.Target.Strategies) == 0 && slices.Contains(s.Faults, a.Fault)
		if s.TestsService() && (a.Fault == "" || a.Fault == catalog.NoFault || allStrategies) {
			continue
		}
		if !slices.ContainsFunc(plan, func(c experiment.CellName) bool {
			return (a.Strategy == "" || a.Strategy == c.Strategy) && (a.Fault == "" || a.Fault == c.Fault)
		}) {
			return fmt.Errorf("-assert %s: the run does not include this strategy or fault: use a strategy and a fault of the run", a)
		}
	}
	return nil
}

const (
	// maxFaultUnits is the maximum number of units per order in a test with a fault.
	maxFaultUnits = 20

	// serverNames lists the flags for the servers of -stack external, except -db.
	serverNames = "redis sentinel sentinel-master redlock zk etcd"

	// describeTargets lists the flags that apply only to the user's service.
	describeTargets = "first-order probe-drivers admin-token target-file path method body header grabbed taken busy later open-orders ledger-query lease settle idempotent compensation"
)

// runRules lists the rules for flags of run that require or exclude others. A rule with Excludes is
// broken only if all of its conditions hold, and a rule with Needs only if none does. General rules
// come first, because the user sees only the first rule that is broken.
var runRules = append([]flags.Rule{
	{Flags: "shard", Needs: "-targets", Wrong: "all shards must send to the same instances, so a shard cannot start instances of its own", Do: "add -targets URL,URL"},
	{Flags: "shard", Needs: "-shard-start", Wrong: "all shards must begin at the same time", Do: "add -shard-start TIME, with the same time for all shards"},
	{Flags: "shard", Needs: "-seed", Wrong: "all shards must choose the same orders and drivers", Do: "add -seed N, with the same number for all shards"},
	{Flags: "shard", Needs: "-first-order", Wrong: "all shards must send to the same orders", Do: "open the orders before the run, and name the first one with -first-order ID"},
	{Flags: "shard", Needs: "-db", Wrong: "each shard must compare its clock with the database clock", Do: "add -db DSN"},
	{Flags: "shard", Excludes: "scenario peak", Wrong: "the scenario peak cannot be split into shards", Do: "use another scenario"},
	{Flags: "faults only at repeat warmup open-orders assert baseline expectations target-pid resume", Excludes: "-shard", Wrong: "a shard only sends its share of one load, so this flag has no effect", Do: "leave out this flag"},
	{Flags: "shard-start", Needs: "-shard", Wrong: "this flag sets the start time of a shard, and this run is not a shard", Do: "add -shard I/N"},
	{Flags: flagsBut("schedule stack strategies quiet"), Excludes: "-schedule", Wrong: "with -schedule, the schedule file determines every step", Do: "leave out this flag"},
	{Flags: "schedule", Needs: "stack local", Wrong: "a schedule can be replayed only on the servers that -stack local starts", Do: "add -stack local"},
	{Flags: "strategies", Excludes: "-schedule", Needs: "one strategy", Wrong: "a schedule runs with exactly one strategy", Do: "name only one strategy"},
	{Flags: "targets", Excludes: "-service", Wrong: "-targets names running instances, but -service starts new ones", Do: "use only one of these flags"},
	{Flags: "ready migrate", Needs: "-service", Wrong: "this flag applies only to a service that loadgen starts", Do: "add -service COMMAND"},
	{Flags: "stack", Excludes: "-service", Needs: "stack local", Wrong: "a service that loadgen starts can use only the servers of -stack local", Do: "use -stack local"},
	{Flags: "redis-topology", Excludes: "-service", Wrong: "a service that loadgen starts can use only a single Redis", Do: "leave out this flag"},
	{Flags: "redis-topology", Needs: "stack local", Wrong: "only -stack local can start several Redis servers", Do: "add -stack local"},
	{Flags: "db", Excludes: "-service", Wrong: "loadgen creates a new database for a service that it starts", Do: "leave out -db, and use placeholders such as {db_host} in the command"},
	{Flags: "stack instances " + serverNames, Excludes: "-targets", Wrong: "with -targets, the instances are already running, so loadgen starts none", Do: "leave out this flag"},
	{Flags: serverNames, Needs: "stack external", Wrong: "only -stack external uses servers that are already running", Do: "add -stack external"},
	{Flags: "db", Needs: "stack external, -targets", Wrong: "only -stack external and -targets use a database that is already running", Do: "add -stack external or -targets"},
	{Flags: "work ttl wait guard per-driver on-lost clock-offset", Excludes: "-targets", Wrong: "loadgen cannot change this setting in instances that are already running", Do: "leave out this flag"},
	{Flags: "wait guard per-driver on-lost clock-offset", Excludes: "-service", Wrong: "this flag configures grabsvc, Grab Lab's service, and not your own", Do: "leave out this flag"},
	{Flags: "work", Excludes: "-service", Needs: "service uses work", Wrong: "the command in -service does not contain {work_ms}, so the service would not get this value", Do: "add {work_ms} to the command, or leave out -work"},
	{Flags: "ttl", Excludes: "-service", Needs: "service uses ttl", Wrong: "the command in -service does not contain {ttl_ms}, so the service would not get this value", Do: "add {ttl_ms} to the command, or give the lifetime of the service's lock with -lease"},
	{Flags: "lease", Excludes: "service uses ttl", Wrong: "the command in -service contains {ttl_ms}, so -ttl already sets the lock's lifetime", Do: "leave out lease, even in the target file, and pass -ttl instead"},
	{Flags: "ledger-query", Excludes: "-targets", Needs: "-db", Wrong: "the database address is missing", Do: "add -db DSN"},
	{Flags: "first-order", Excludes: "foreign, opens orders by call", Wrong: "-open-orders calls the service, which chooses the order IDs itself", Do: "use only one of these flags"},
	{Flags: "open-orders", Excludes: "-targets, opens orders by SQL", Needs: "-db", Wrong: "the database address is missing", Do: "add -db DSN"},
	{Flags: "open-orders", Excludes: "foreign, opens orders by SQL", Needs: "-first-order", Wrong: "the SQL statements in -open-orders need the first order ID", Do: "add -first-order 1, or the key first-order to the target file"},
	{Flags: "warmup", Excludes: "scenario peak", Wrong: "the scenario peak needs no warm-up, because each of its steps warms up the next one", Do: "leave out this flag"},
	{Flags: "repeat", Excludes: "scenario peak", Wrong: "this flag does not work with -scenario peak, which is one long search for the highest rate", Do: "leave out this flag"},
	{Flags: "repeat", Needs: "a cell without a fault", Wrong: "only tests without a fault are repeated, and this run has none", Do: "add the word none to -faults"},
	{Flags: describeTargets, Needs: "foreign", Wrong: "this flag describes your own service, but no service is named", Do: "name the service with -service or -targets"},
	{Flags: "compensation", Needs: "-ledger-query", Wrong: "only the ledger, which lists the grabs in the database, shows that a grab was undone", Do: "add -ledger-query SQL"},
	{Flags: "rate orders duration", Excludes: "scenario peak", Wrong: "the scenario peak searches for the highest rate by itself", Do: "leave out this flag"},
	{Flags: "stock", Excludes: "scenario peak", Wrong: "in the scenario peak, every order has one unit", Do: "leave out this flag"},
	{Flags: "faults only at", Excludes: "scenario sale, a fault", Wrong: "a fault needs orders with few drivers, but the scenario sale sends 2,000 drivers to one order", Do: "use -faults none, or another scenario with -stock 2"},
	{Flags: "faults only at", Excludes: "several units, a fault, foreign", Wrong: "with your own service, a test with a fault needs orders of one unit", Do: "leave out -stock, or use -faults none"},
	{Flags: "faults only at", Excludes: "too many units, a fault", Wrong: "a test with a fault would need too many drivers, because each unit needs its own driver", Do: "use -stock 20 or less, or -faults none"},
	{Flags: "per-driver", Needs: "several units", Wrong: "a driver can get several units only from an order that has several units", Do: "add -stock with a number of 2 or more"},
	{Flags: "p99", Needs: "scenario peak", Wrong: "only the scenario peak uses this limit", Do: "add -scenario peak"},
	{Flags: "budget", Needs: "scenario peak, a fault", Wrong: "this flag sets a time limit for the scenario peak and for tests with a fault, but this run has neither", Do: "add -scenario peak or -faults"},
	{Flags: "faults only", Excludes: "scenario peak, a fault", Wrong: "the scenario peak does not support faults", Do: "use -faults none"},
	{Flags: "faults only", Excludes: "-targets, a fault", Needs: "-target-pid", Wrong: "loadgen does not know which processes to stop", Do: "give their process IDs with -target-pid, or use -faults none"},
	{Flags: "target-pid", Needs: "-targets", Wrong: "-target-pid names the processes of the targets, but there are no targets", Do: "add -targets URL,URL"},
	{Flags: "target-pid", Needs: "a fault", Wrong: "process IDs have no effect, because none of the chosen faults stops a process", Do: "add -faults pause or -faults crash"},
	{Flags: "target-pid", Needs: "a process for each target", Wrong: "the number of process IDs differs from the number of targets", Do: "give one process ID for each target, in the same order"},
	{Flags: "target-pid", Needs: "two targets", Wrong: "a test with a fault needs two targets, because the fault stops one of them", Do: "add another URL to -targets"},
	{Flags: "at", Excludes: "-targets", Wrong: "loadgen cannot pause a grab at a chosen point in instances that it did not start", Do: "leave out this flag"},
	{Flags: "at", Needs: "a fault", Wrong: "this flag says where to inject a fault, but the run has no fault", Do: "add a fault with -faults or -only"},
	{Flags: "instances", Excludes: "a fault", Needs: "two instances", Wrong: "a test with a fault needs two instances, because the fault hits one of them", Do: "use -instances 2 or more"},
	{Flags: "duration", Excludes: "-orders", Wrong: "-orders and -duration both set the number of orders", Do: "use only one of these flags"},
	{Flags: "duration", Needs: "a rate", Wrong: "this scenario sends all requests at once, so a duration has no effect", Do: "add -rate"},
	{Flags: "clock-offset", Needs: "foreign, two instances", Wrong: "this flag sets the second instance's clock, but the run has only one instance", Do: "use -instances 2 or more"},
}, instance.SentinelRules...)

func flagsBut(names string) string {
	rest := catalog.Filter(defaults("").flags(), func(f flags.Flag) bool { return !slices.Contains(strings.Fields(names), f.Name) })
	return catalog.Join(rest, " ", func(f flags.Flag) string { return f.Name })
}

// facts reports which of the conditions named in runRules, such as "a fault", are true.
func (s *settings) facts() map[string]bool {
	uses := func(name string) bool { return s.Service != nil && s.Service.Uses(name) }
	bySQL := slices.ContainsFunc(s.spec.OpenOrders, func(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), target.SQLPrefix) })
	return map[string]bool{
		"stack external":            s.Stack.Kind == stack.External,
		"stack local":               s.Stack.Kind == stack.Local,
		"foreign":                   s.TestsService(),
		"service uses work":         uses("work_ms"),
		"service uses ttl":          uses("ttl_ms"),
		"opens orders by SQL":       bySQL,
		"opens orders by call":      len(s.spec.OpenOrders) > 0 && !bySQL,
		"scenario peak":             s.Scenario == "peak",
		"scenario sale":             s.Scenario == "sale",
		"a fault":                   s.anyCell(func(f catalog.Fault) bool { return f != catalog.NoFault }),
		"a cell without a fault":    s.anyCell(func(f catalog.Fault) bool { return f == catalog.NoFault }),
		"several units":             s.Stock > 1,
		"too many units":            s.Stock > maxFaultUnits,
		"a process for each target": len(s.Target.PIDs) == len(s.Target.URLs),
		"two targets":               len(s.Target.URLs) >= 2,
		"one strategy":              len(s.Strategies) == 1,
		"two instances":             s.Instances >= 2,
		"a rate":                    s.Rate > 0,
	}
}
