package main

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/ledger"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// validate checks how the flags go together, and fills in what follows from
// them. Its errors are one sentence each.
func (s *settings) validate() error {
	for _, step := range []func() error{
		s.checkSchedule, s.checkNames, s.chooseCells, s.checkCombinations, s.describeTarget, s.sizeLoad, s.checkGuard, s.checkServers, s.checkAsserts,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkCombinations rejects flags that conflict, or that need another flag.
func (s *settings) checkCombinations() error {
	service, foreign, external := s.Service != nil, s.attaches(), s.Stack.Kind == stack.External
	targets, pids := len(s.Target.URLs) > 0, s.given["target-pid"]
	knob := func(name string) bool { return service && s.Service.Uses(name) }
	isPeak, faulty := s.Scenario == "peak", s.faulty()
	for _, rule := range []struct {
		flags []string
		wrong bool
		why   string
	}{
		{[]string{"targets"}, service, "cannot be combined with -service, which starts its own"},
		{[]string{"ready"}, !service, "goes with -service"},
		{[]string{"stack"}, service && s.Stack.Kind != stack.Local, "must be local with -service, which is to be struck at servers of its own"},
		{[]string{"db"}, service, "cannot be combined with -service, which gets a database of its own ({db_host} and so on)"},
		{[]string{"stack", "redis", "sentinel", "sentinel-master", "redlock", "zk", "etcd", "instances"}, targets, "cannot be combined with -targets, whose instances run already"},
		{[]string{"redis", "sentinel", "sentinel-master", "redlock", "zk", "etcd"}, !external, "goes with -stack external, for the other stacks start their own"},
		{[]string{"db"}, !external && !targets, "goes with -stack external or -targets, for the other stacks start their own"},
		{[]string{"work", "ttl", "wait", "guard", "per-driver", "on-lost", "clock-offset"}, targets, "has no effect on -targets, which are set up already"},
		{[]string{"wait", "guard", "per-driver", "on-lost", "clock-offset"}, service, "has no effect on a -service, which does as it does"},
		{[]string{"work"}, service && !knob("work_ms"), "has no effect: {work_ms} does not stand in the command of -service"},
		{[]string{"ttl"}, service && !knob("ttl_ms"), "has no effect: {ttl_ms} does not stand in the command of -service; say with -lease for how long its lock lives"},
		{[]string{"lease"}, knob("ttl_ms"), "has no effect: {ttl_ms} stands in the command of -service, and is -ttl"},
		{[]string{"ledger-query"}, targets && !s.given["db"], "needs -db DSN, where that ledger is"},
		{[]string{"first-order"}, foreign && s.opensByCall(), "has no effect with a call of -open-orders, which says where orders begin"},
		{[]string{"open-orders"}, targets && s.opensBySQL() && !s.given["db"], "needs -db DSN with it, where its statements are run"},
		{[]string{"open-orders"}, foreign && s.opensBySQL() && !s.given["first-order"], "needs -first-order ID with it, where the orders begin that its statements open"},
		{[]string{"warmup"}, isPeak, "cannot be combined with -scenario peak, whose every step warms up the next"},
		{[]string{"repeat"}, isPeak, "cannot be combined with -scenario peak, which searches once"},
		{[]string{"repeat"}, !s.calm(), "has no effect: no cell is without a fault"},
		{[]string{"sentinel"}, s.given["redis"], "cannot be combined with -redis, which it replaces"},
		{[]string{"sentinel"}, !s.given["sentinel-master"], "needs -sentinel-master NAME with it"},
		{[]string{"sentinel-master"}, !s.given["sentinel"], "needs -sentinel ADDR with it"},
		{[]string{"first-order", "admin-token", "target-file", "path", "method", "body", "header", "grabbed", "taken", "busy", "open-orders", "ledger-query", "lease"}, !foreign, "goes with -service or -targets"},
		{[]string{"rate", "orders", "duration"}, isPeak, "cannot be combined with -scenario peak, which searches the rate by itself"},
		{[]string{"stock"}, isPeak, "cannot be combined with -scenario peak, which asks for orders of one unit"},
		{[]string{"faults", "only", "at"}, s.Scenario == "sale" && faulty, "cannot be combined with -scenario sale, unless the fault is none: a fault strikes orders after which few drivers come, each in its turn, and of the sale all 2,000 come at once; -stock 2 gives such orders more units"},
		{[]string{"faults", "only", "at"}, s.Stock > 1 && faulty && foreign, "cannot be combined with -stock 2 or more of a -service or -targets, unless the fault is none: their faults strike orders of one unit"},
		{[]string{"faults", "only", "at"}, s.Stock > maxStruckUnits && faulty, fmt.Sprintf("cannot be combined with -stock %d or more, unless the fault is none: a fault strikes many orders at once, and after each come as many drivers as it has units and more", maxStruckUnits+1)},
		{[]string{"per-driver"}, s.Stock == 1, "has no effect without -stock 2 or more"},
		{[]string{"p99"}, !isPeak, "goes with -scenario peak"},
		{[]string{"budget"}, !isPeak && !faulty, "goes with -scenario peak or with faults"},
		{[]string{"faults", "only"}, isPeak && faulty, "cannot be combined with -scenario peak, unless the fault is none"},
		{[]string{"faults", "only"}, targets && faulty && !pids, "cannot be combined with -targets, which are not ours to strike, unless the fault is none or -target-pid names their processes"},
		{[]string{"target-pid"}, !targets, "goes with -targets, whose processes it names"},
		{[]string{"target-pid"}, !faulty, "has no effect without -faults pause or crash, which strike what it names"},
		{[]string{"target-pid"}, !proc.CanStop(runtime.GOOS), "needs signals by which a process is stopped and goes on, and " + runtime.GOOS + " has none"},
		{[]string{"target-pid"}, len(s.Target.PIDs) != len(s.Target.URLs), fmt.Sprintf("needs one process for each of -targets, in their order: %d for %d are named", len(s.Target.PIDs), len(s.Target.URLs))},
		{[]string{"target-pid"}, len(s.Target.URLs) < 2, "needs two -targets or more: a fault strikes one of them, and what it has left open another one must find"},
		{[]string{"at"}, targets, "cannot be combined with -targets, whose grabs cannot be held"},
		{[]string{"at"}, !faulty, "needs -faults, or -only with a fault: it says where they strike"},
		{[]string{"instances"}, faulty && s.Instances < 2, "must be 2 or more with a fault, which strikes one of them"},
		{[]string{"duration"}, s.given["orders"], "cannot be combined with -orders, which it replaces"},
		{[]string{"duration"}, s.Rate == 0, "needs -rate, for this scenario fires all at once"},
		{[]string{"clock-offset"}, !foreign && s.Instances < 2, "needs -instances 2 or more, for it sets the second one's clock"},
	} {
		for _, name := range rule.flags {
			if rule.wrong && s.given[name] {
				return fmt.Errorf("-%s %s", name, rule.why)
			}
		}
	}
	return nil
}

// maxStruckUnits bounds the units of an order that a fault strikes.
const maxStruckUnits = 20

func (s *settings) opensBySQL() bool {
	return slices.ContainsFunc(s.spec.OpenOrders, func(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "sql:") })
}

func (s *settings) opensByCall() bool { return len(s.spec.OpenOrders) > 0 && !s.opensBySQL() }

// checkNames refuses strategies that are not there; those of targets are known once they
// answer.
func (s *settings) checkNames() error {
	if !s.attaches() {
		return s.unknown
	}
	for _, c := range s.Only {
		if !slices.Contains(s.chosen, c.Strategy) {
			s.chosen = append(s.chosen, c.Strategy)
		}
	}
	for _, word := range s.chosen {
		switch word {
		case "all":
			s.Target.Strategies = nil
			return nil
		case "core":
			s.Target.Strategies = append(s.Target.Strategies, core...)
		case "peers":
			s.Target.Strategies = append(s.Target.Strategies, namesOf(lock.Peers, nameOf)...)
		default:
			s.Target.Strategies = append(s.Target.Strategies, word)
		}
	}
	return nil
}

// describeTarget compiles what the flags say of targets.
func (s *settings) describeTarget() (err error) {
	if s.expect != "" {
		if s.Expect, err = target.ReadExpectations(s.expect); err != nil {
			return fmt.Errorf("-expectations: %w", err)
		}
	}
	if !s.attaches() {
		for _, e := range s.Expect {
			if _, err := findStrategy(e.Strategy); err != nil {
				return fmt.Errorf("-expectations: %s:%d: %w", s.expect, e.Line, err)
			}
		}
		return nil
	}
	shape, open, err := s.spec.Compile()
	if err != nil {
		return fmt.Errorf("-%w", err)
	}
	if s.Target.Open = open; !s.spec.IsOwn() {
		s.Target.Shape = shape
	}
	if s.Target.PIDs != nil {
		s.Workers = 1 // there is one fleet
		s.lengthenBudget()
	}
	if !shape.TellsDrivers() {
		s.notes.add("note: neither -path, -body nor a -header has {driver}: the service cannot tell one driver from another")
	}
	dsn := s.Stack.DSN
	if s.Service != nil {
		s.startService()
		dsn = "grablab@tcp(127.0.0.1:3306)/grablab" // as it will be
	}
	if dsn == "" {
		return nil
	}
	s.Target.Database = target.Database{DSN: s.Stack.DSN, Query: s.query}
	if err := ledger.Check(dsn, s.query); err != nil {
		flag := "-db"
		if errors.Is(err, ledger.ErrQuery) {
			flag = "-ledger-query"
		}
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// startService sets what follows from a service that is to be started.
func (s *settings) startService() {
	s.Service.Ready, s.Stack.Kind = s.ready, stack.Local
	if !s.Service.Uses("ttl_ms") {
		s.TTL = cmp.Or(s.Target.Lease, target.DefaultLease)
	}
	if !s.given["worker-stacks"] {
		s.Workers = 2 // its instances may be large
	}
	s.lengthenBudget()
}

func (s *settings) lengthenBudget() {
	if !s.given["budget"] && s.Scenario != "peak" {
		s.Budget = serviceBudget
	}
}

// serviceBudget is for a cell in which the points are struck one after the other.
const serviceBudget = 15 * time.Minute

// faulty says whether any cell has a fault.
func (s *settings) faulty() bool {
	if s.attaches() { // whose cells are not known yet
		return slices.ContainsFunc(s.Faults, func(f catalog.Fault) bool { return f != catalog.NoFault }) ||
			slices.ContainsFunc(s.Only, func(c experiment.CellName) bool { return c.Fault != catalog.NoFault })
	}
	return slices.ContainsFunc(s.Plan(), func(c experiment.CellName) bool { return c.Fault != catalog.NoFault })
}

// calm says whether any cell is without a fault.
func (s *settings) calm() bool {
	if s.attaches() {
		return slices.Contains(s.Faults, catalog.NoFault)
	}
	return slices.ContainsFunc(s.Plan(), func(c experiment.CellName) bool { return c.Fault == catalog.NoFault })
}

// chooseCells has strategies and faults follow from what -only names, where they
// are not given beside it, and says which settings a fault must leave alone.
func (s *settings) chooseCells() error {
	s.Asked = experiment.Asked{Work: s.given["work"], TTL: s.given["ttl"], Wait: s.given["wait"], Timeout: s.given["timeout"]}
	if s.Stack.Kind == stack.External && !s.given["worker-stacks"] {
		s.Workers = 1 // there is one stack
	}
	if len(s.Only) == 0 {
		return nil
	}
	if s.attaches() { // whose strategies are not known yet
		if !s.given["faults"] {
			s.Faults = slices.DeleteFunc(slices.Clone(catalog.RunFaults), func(f catalog.Fault) bool {
				return !slices.ContainsFunc(s.Only, func(c experiment.CellName) bool { return c.Fault == f })
			})
		}
		return nil
	}
	if !s.given["strategies"] {
		named := namesOf(s.Only, func(c experiment.CellName) string { return c.Strategy })
		var err error
		if s.Strategies, err = parseStrategies(strings.Join(named, ",")); err != nil {
			return err
		}
	}
	if !s.given["faults"] {
		s.Faults = catalog.RunFaults
	}
	plan := s.Plan()
	for _, c := range s.Only {
		if !slices.Contains(plan, c) {
			return fmt.Errorf("-only %s is not among -strategies and -faults", c)
		}
	}
	s.Strategies = slices.DeleteFunc(s.Strategies, func(o lock.Strategy) bool {
		return !slices.ContainsFunc(plan, func(c experiment.CellName) bool { return c.Strategy == o.Name })
	})
	s.Faults = slices.DeleteFunc(slices.Clone(s.Faults), func(f catalog.Fault) bool {
		return !slices.ContainsFunc(plan, func(c experiment.CellName) bool { return c.Fault == f })
	})
	return nil
}

// sizeLoad turns a duration into orders, and limits the number of requests.
func (s *settings) sizeLoad() error {
	if s.Duration > 0 {
		requests := s.Rate * s.Duration.Seconds()
		if requests > maxRequests {
			return fmt.Errorf("-duration %v at -rate %g makes more than %d requests", s.Duration, s.Rate, maxRequests)
		}
		s.Orders = max(1, int(requests)/s.Drivers)
	}
	if s.Orders > maxRequests/s.Drivers {
		return fmt.Errorf("%d orders x %d drivers make more than %d requests", s.Orders, s.Drivers, maxRequests)
	}
	return nil
}

func (s *settings) checkGuard() error {
	for _, strategy := range s.Strategies {
		if strategy.GuardedBy(s.Guard).NeedsFence() && !strategy.Fences {
			return fmt.Errorf("-guard %s needs fencing tokens, and strategy %s hands out none", s.Guard, strategy.Name)
		}
	}
	return nil
}

// checkServers collects the servers that the strategies need, and requires their
// addresses.
func (s *settings) checkServers() error {
	for _, strategy := range s.Strategies {
		s.Stack.Needs |= strategy.Needs
	}
	if s.attaches() || s.Stack.Kind != stack.External {
		return nil
	}
	if s.Stack.DSN == "" {
		return fmt.Errorf("-stack external needs -db DSN, where the ledger is kept")
	}
	for _, server := range []struct {
		of    lock.Backend
		given bool
		flags string
	}{
		{lock.Redis, s.Stack.Redis != "" || s.Stack.Sentinel != nil, "-redis ADDR or -sentinel ADDR"},
		{lock.RedisQuorum, len(s.Stack.Redlock) >= 3, "-redlock with 3 addresses or more"},
		{lock.ZooKeeper, len(s.Stack.ZooKeeper) > 0, "-zk ADDR"},
		{lock.Etcd, len(s.Stack.Etcd) > 0, "-etcd ADDR"},
	} {
		for _, strategy := range s.Strategies {
			if strategy.Needs&server.of != 0 && !server.given {
				return fmt.Errorf("strategy %s needs %s with -stack external", strategy.Name, server.flags)
			}
		}
	}
	nodes := slices.Sorted(slices.Values(s.Stack.Redlock))
	if len(slices.Compact(nodes)) < len(s.Stack.Redlock) {
		return fmt.Errorf("-redlock %s names a node twice, and they must be independent", strings.Join(s.Stack.Redlock, ","))
	}
	return nil
}

// checkAsserts requires every -assert to name a cell that will be run.
func (s *settings) checkAsserts() error {
	plan := s.Plan()
	for _, a := range s.asserts {
		if s.attaches() && (a.Fault == "" || a.Fault == catalog.NoFault) { // which strategies they have is not known yet
			continue
		}
		if !slices.ContainsFunc(plan, func(c experiment.CellName) bool {
			return (a.Strategy == "" || a.Strategy == c.Strategy) && (a.Fault == "" || a.Fault == c.Fault)
		}) {
			return fmt.Errorf("-assert %q speaks of no cell that is run", a)
		}
	}
	return nil
}
