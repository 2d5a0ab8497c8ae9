package main

import (
	"slices"
	"strings"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/testbed/stack"
)

const (
	// maxFaultUnits is the maximum number of units of an order in a test with a fault.
	maxFaultUnits = 20

	// serverNames lists the flags for the servers of -stack external, except -db.
	serverNames = "redis sentinel sentinel-master redlock zk etcd"

	// describeTargets lists the flags that apply only to the user's service.
	describeTargets = "first-order probe-drivers admin-token target-file path method body header grabbed taken busy later open-orders ledger-query lease settle idempotent compensation"
)

// runRules says which flags of run need or exclude each other. General rules come first, because
// the user sees only the first broken rule.
var runRules = append([]flags.Rule{
	{Flags: "shard", Needs: "-targets", Wrong: "all shards send to the same instances, so a shard cannot start its own", Do: "add -targets URL,URL"},
	{Flags: "shard", Needs: "-shard-start", Wrong: "the shards must begin together", Do: "add -shard-start with the same time for all shards"},
	{Flags: "shard", Needs: "-seed", Wrong: "the shards must make the same plan", Do: "add -seed N with the same number for all shards"},
	{Flags: "shard", Needs: "-first-order", Wrong: "the shards must send to the same orders", Do: "open orders, and add -first-order ID"},
	{Flags: "shard", Needs: "-db", Wrong: "each shard compares its clock with the clock of the database", Do: "add -db DSN"},
	{Flags: "shard", Excludes: "scenario peak", Wrong: "the scenario peak searches on one machine", Do: "use another scenario"},
	{Flags: "faults only at repeat warmup open-orders assert baseline expectations target-pid resume", Excludes: "-shard", Wrong: "a shard only sends its share of one load", Do: "leave it out"},
	{Flags: "shard-start", Needs: "-shard", Wrong: "only shards start at a common time", Do: "add -shard I/N"},
	{Flags: flagsBut("schedule stack strategies quiet"), Excludes: "-schedule", Wrong: "the schedule file determines every step", Do: "leave it out"},
	{Flags: "schedule", Needs: "stack local", Wrong: "the faults of a schedule affect real servers", Do: "add -stack local"},
	{Flags: "strategies", Excludes: "-schedule", Needs: "one strategy", Wrong: "a schedule takes one strategy", Do: "name one strategy"},
	{Flags: "targets", Excludes: "-service", Wrong: "-service starts its own instances", Do: "leave out one of the two"},
	{Flags: "ready migrate", Needs: "-service", Wrong: "no service is started", Do: "add -service COMMAND"},
	{Flags: "stack", Excludes: "-service", Needs: "stack local", Wrong: "loadgen starts a service only on the servers of -stack local", Do: "use -stack local"},
	{Flags: "redis-topology", Excludes: "-service", Wrong: "the proxies of -service lead to a single Redis", Do: "leave it out"},
	{Flags: "redis-topology", Needs: "stack local", Wrong: "only the local stack starts several servers", Do: "add -stack local"},
	{Flags: "db", Excludes: "-service", Wrong: "a service that loadgen starts gets a new database", Do: "leave out -db and use {db_host} and so on in the command"},
	{Flags: "stack instances " + serverNames, Excludes: "-targets", Wrong: "the targets are running already", Do: "leave it out"},
	{Flags: serverNames, Needs: "stack external", Wrong: "only -stack external uses servers that are already running", Do: "add -stack external"},
	{Flags: "db", Needs: "stack external, -targets", Wrong: "only -stack external and -targets use a database that is already running", Do: "add -stack external or -targets"},
	{Flags: "work ttl wait guard per-driver on-lost clock-offset", Excludes: "-targets", Wrong: "loadgen cannot change this setting of targets that are already running", Do: "leave it out"},
	{Flags: "wait guard per-driver on-lost clock-offset", Excludes: "-service", Wrong: "this flag sets up instances of grabsvc, not your own service", Do: "leave it out"},
	{Flags: "work", Excludes: "-service", Needs: "service uses work", Wrong: "the command of -service lacks {work_ms}, so the service would not get this time", Do: "add {work_ms}, or leave out -work"},
	{Flags: "ttl", Excludes: "-service", Needs: "service uses ttl", Wrong: "the command of -service lacks {ttl_ms}, so the service would not get this time", Do: "add {ttl_ms}, or give the lifetime of the service's lock with -lease"},
	{Flags: "lease", Excludes: "service uses ttl", Wrong: "the command of -service contains {ttl_ms}, so -ttl sets the lifetime of the lock", Do: "use -ttl"},
	{Flags: "ledger-query", Excludes: "-targets", Needs: "-db", Wrong: "the address of the database is missing", Do: "add -db DSN"},
	{Flags: "first-order", Excludes: "foreign, opens orders by call", Wrong: "-open-orders calls the service, and the service chooses the ids", Do: "leave out one of the two"},
	{Flags: "open-orders", Excludes: "-targets, opens orders by SQL", Needs: "-db", Wrong: "the address of the database is missing", Do: "add -db DSN"},
	{Flags: "open-orders", Excludes: "foreign, opens orders by SQL", Needs: "-first-order", Wrong: "the SQL statements of -open-orders need the id of the first order", Do: "add -first-order ID"},
	{Flags: "warmup", Excludes: "scenario peak", Wrong: "each step of the scenario peak warms up the next", Do: "leave it out"},
	{Flags: "repeat", Excludes: "scenario peak", Wrong: "the scenario peak searches once", Do: "leave it out"},
	{Flags: "repeat", Needs: "a cell without a fault", Wrong: "only cells without a fault are repeated, and this run has none", Do: "add none to -faults"},
	{Flags: describeTargets, Needs: "foreign", Wrong: "this flag describes your own service, but no service is named", Do: "add -service or -targets"},
	{Flags: "compensation", Needs: "-ledger-query", Wrong: "only the ledger shows that a grab was taken back", Do: "add -ledger-query SQL"},
	{Flags: "rate orders duration", Excludes: "scenario peak", Wrong: "the scenario peak finds the rate by itself", Do: "leave it out"},
	{Flags: "stock", Excludes: "scenario peak", Wrong: "the scenario peak uses orders of one unit", Do: "leave it out"},
	{Flags: "faults only at", Excludes: "scenario sale, a fault", Wrong: "a fault needs orders with few drivers, but the scenario sale sends 2,000 drivers to one order", Do: "use only the fault none, or another scenario with -stock 2"},
	{Flags: "faults only at", Excludes: "several units, a fault, foreign", Wrong: "in your own service, faults work only with orders of one unit", Do: "leave out -stock, or use only the fault none"},
	{Flags: "faults only at", Excludes: "too many units, a fault", Wrong: "a fault affects many orders at once, and each unit needs a driver", Do: "use at most -stock 20, or only the fault none"},
	{Flags: "per-driver", Needs: "several units", Wrong: "an order of one unit cannot give a driver several units", Do: "add -stock 2 or more"},
	{Flags: "p99", Needs: "scenario peak", Wrong: "only the scenario peak uses this limit", Do: "add -scenario peak"},
	{Flags: "budget", Needs: "scenario peak, a fault", Wrong: "only the scenario peak and cells with a fault have a budget", Do: "add -scenario peak or -faults"},
	{Flags: "faults only", Excludes: "scenario peak, a fault", Wrong: "the scenario peak searches without faults", Do: "use only the fault none"},
	{Flags: "faults only", Excludes: "-targets, a fault", Needs: "-target-pid", Wrong: "loadgen does not know the processes to stop", Do: "name the processes with -target-pid, or use only the fault none"},
	{Flags: "target-pid", Needs: "-targets", Wrong: "the URLs of the targets are missing", Do: "add -targets URL,URL"},
	{Flags: "target-pid", Needs: "a fault", Wrong: "none of the chosen faults stops a process", Do: "add -faults pause or -faults crash"},
	{Flags: "target-pid", Needs: "a process for each target", Wrong: "the numbers of processes and targets differ", Do: "name one process for each target, in the same order"},
	{Flags: "target-pid", Needs: "two targets", Wrong: "a fault hits one target, and another one must keep running", Do: "name at least two -targets"},
	{Flags: "at", Excludes: "-targets", Wrong: "loadgen cannot hold grabs in targets that are running already", Do: "leave it out"},
	{Flags: "at", Needs: "a fault", Wrong: "no cell has a fault", Do: "add -faults, or -only with a fault"},
	{Flags: "instances", Excludes: "a fault", Needs: "two instances", Wrong: "a fault hits one instance, and another one must keep running", Do: "use at least two instances"},
	{Flags: "duration", Excludes: "-orders", Wrong: "-orders and -duration both set the number of orders", Do: "leave out one of the two"},
	{Flags: "duration", Needs: "a rate", Wrong: "this scenario sends everything at once", Do: "add -rate"},
	{Flags: "clock-offset", Needs: "foreign, two instances", Wrong: "this flag sets the clock of the second instance, and the run has only one", Do: "use at least -instances 2"},
}, sentinelRules...)

// sentinelRules says which Redis flags need or exclude each other. All commands with these flags
// use the rules.
var sentinelRules = []flags.Rule{
	{Flags: "sentinel", Excludes: "-redis", Wrong: "the Sentinels replace -redis", Do: "leave out one of the two"},
	{Flags: "sentinel", Needs: "-sentinel-master", Wrong: "the name of the master is missing", Do: "add -sentinel-master NAME"},
	{Flags: "sentinel-master", Needs: "-sentinel", Wrong: "the addresses of the Sentinels are missing", Do: "add -sentinel ADDR"},
}

// flagsBut returns all flags of run except the given ones.
func flagsBut(names string) string {
	var rest []string
	for _, f := range defaults("").flags() {
		if !slices.Contains(strings.Fields(names), f.Name) {
			rest = append(rest, f.Name)
		}
	}
	return strings.Join(rest, " ")
}

// facts evaluates each condition that runRules mentions.
func (s *settings) facts() map[string]bool {
	uses := func(name string) bool { return s.Service != nil && s.Service.Uses(name) }
	bySQL := false
	for _, text := range s.spec.OpenOrders {
		bySQL = bySQL || strings.HasPrefix(strings.TrimSpace(text), "sql:")
	}
	return map[string]bool{
		"stack external":            s.Stack.Kind == stack.External,
		"stack local":               s.Stack.Kind == stack.Local,
		"foreign":                   s.testsService(),
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
