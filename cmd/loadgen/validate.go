package main

import (
	"cmp"
	_ "embed"
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

// validate checks that the flags of run, check or merge fit together, and derives other settings from
// them.
func (s *runSettings) validate() error {
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
func (s *runSettings) chooseNames() (err error) {
	if s.strategyWords != nil {
		if s.Strategies, err = parseStrategies(strings.Join(s.strategyWords, ",")); err != nil && !s.TestsService() {
			return fmt.Errorf("%s: %w", s.line.Label("strategies"), err)
		}
	}
	if s.TestsService() {
		s.nameServiceStrategies()
		return nil
	}
	for _, c := range s.Only {
		if _, err := findStrategy(c.Strategy); err != nil {
			return fmt.Errorf("%s: %w", flags.Label("only", c.String()), err)
		}
	}
	return nil
}

// nameServiceStrategies names the strategies of the user's service to test. No name means all of them.
func (s *runSettings) nameServiceStrategies() {
	for _, word := range catalog.Distinct(slices.Concat(s.strategyWords, catalog.Map(s.Only, strategyOf))) {
		switch word {
		case "all":
			s.Target.Strategies = nil
			return
		case "core":
			s.Target.Strategies = append(s.Target.Strategies, core...)
		case "peers":
			s.Target.Strategies = append(s.Target.Strategies, catalog.Map(lock.Peers, nameOf)...)
		default:
			s.Target.Strategies = append(s.Target.Strategies, word)
		}
	}
}

func strategyOf(c experiment.CellName) string { return c.Strategy }

// chooseCells keeps only the strategies and faults that the -only flag selects. It also records which
// settings the user has chosen, because a test with a fault must not change those settings.
func (s *runSettings) chooseCells() error {
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
func (s *runSettings) anyCell(has func(catalog.Fault) bool) bool {
	cellHas := func(c experiment.CellName) bool { return has(c.Fault) }
	if s.TestsService() {
		return slices.ContainsFunc(s.Faults, has) || slices.ContainsFunc(s.Only, cellHas)
	}
	return slices.ContainsFunc(s.Plan(), cellHas)
}

func (s *runSettings) readExpectations() (err error) {
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
func (s *runSettings) describeTarget() error {
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
func (s *runSettings) startService() {
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
func (s *runSettings) sizeLoad() error {
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
func (s *runSettings) checkProbes() error {
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
func (s *runSettings) checkServers() error {
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
func (s *runSettings) checkAsserts() error {
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

// maxFaultUnits is the maximum number of units per order in a test with a fault.
const maxFaultUnits = 20

// rules lists, by command, the rules for flags that need or exclude others. A rule with Excludes is broken only if all
// of its conditions hold, and a rule with Needs only if none does. The user sees only the first rule that is broken.
var rules = catalog.Parse[map[string][]flags.Rule](rulesText)

//go:embed rules.json
var rulesText string

var runRules = slices.Concat([]flags.Rule{
	{Flags: flagsBut("schedule stack strategies quiet"), Excludes: "-schedule", Wrong: "with -schedule, the schedule file determines every step", Do: "leave out this flag"},
}, rules["run"], instance.SentinelRules)

func flagsBut(names string) string {
	rest := catalog.Filter(defaults("").flags(), func(f flags.Flag) bool { return !slices.Contains(strings.Fields(names), f.Name) })
	return catalog.Join(rest, " ", func(f flags.Flag) string { return f.Name })
}

// facts reports which of the conditions named in runRules, such as "a fault", are true.
func (s *runSettings) facts() map[string]bool {
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
