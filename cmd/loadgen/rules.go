package main

import (
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/service/instance"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

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
