package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/order"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// settings is a run as it was asked for.
type settings struct {
	experiment.Config
	asserts []experiment.Assert
	format  string
	quiet   bool
	resume  string // the result folder to go on in; "": a new one

	schedule string // the file to be forced, instead of a table; "": none

	ready  string      // path by which a service says that it is
	spec   target.Spec // the calls of targets
	file   string      // that describes them too; "": none does
	query  string      // of their ledger
	expect string      // the file of expectations; "": there is none
	// chosen are the strategies by the words of -strategies and -only, and unknown says
	// which of them is none of ours: targets may have it.
	chosen  []string
	unknown error

	given      map[string]bool // the flags that were
	unrecorded []string        // those of them that are not in Args, as they were given
	notes      notes
}

// topic is what flags are grouped by in the help.
type topic struct {
	title   string
	options []option
}

// topics is every flag of run.
func (s *settings) topics() []topic {
	return []topic{
		{"What is run", []option{
			{"scenario", "NAME", "sets the load; other flags override it: " + strings.Join(scenarioNames(), ", "), one(&s.Scenario, oneOf(scenarioNames()...))},
			{"strategies", "A,B,…", "strategies, in this order; or core, or all, or peers: the libraries (with -targets: by their own names)", one(&s.Strategies, s.chooseStrategies)},
			{"faults", "A,B,…", "what goes wrong, each in cells of its own; or all (default none)", one(&s.Faults, s.parseFaults)},
			{"only", "STRATEGY/FAULT", "run this cell alone (repeatable)", many(&s.Only, s.parseCell)},
			{"at", "POINT", `faults strike at this point of a grab alone, as in "before claim 1", "waiting: after acquire 2" (a report names them)`, one(&s.At, parseAt)},
			{"schedule", "FILE", "instead: force this schedule on real servers, step by step; with -strategies, another strategy", one(&s.schedule, nonEmpty)},
			{"seed", "N", "permutes orders and drivers (default: drawn, and printed first)", one(&s.Seed, parseSeed)},
		}},
		{"What it runs on", slices.Concat([]option{
			{"stack", "KIND", "what runs underneath: " + strings.Join(stack.Kinds(), ", "), one(&s.Stack.Kind, oneOf(stack.Kinds()...))},
		}, serverOptions(&s.Stack), []option{
			{"instances", "N", "how many instances are started", one(&s.Instances, wholeNumber(1, 64))},
		})},
		{"A service of yours, in any language (docs/your-service.md)", s.targetOptions()},
		{"The load (defaults: of scenario rush)", []option{
			{"orders", "N", "orders of each cell", one(&s.Orders, wholeNumber(1, maxOrders))},
			{"drivers", "N", "drivers after each order", one(&s.Drivers, wholeNumber(1, maxRequests))},
			{"stock", "N", "units of each order", one(&s.Stock, wholeNumber(1, order.MaxStock))},
			{"rate", "R", "requests a second over all instances", one(&s.Rate, parseRate)},
			{"duration", "D", "instead of -orders: as many as fit at -rate", one(&s.Duration, atLeast(time.Millisecond))},
			{"timeout", "D", "a client gives up after this", one(&s.Timeout, between(time.Millisecond, time.Hour))},
			{"repeat", "N", "cells without a fault are run so often, interleaved over the strategies: only then are costs printed, as medians with intervals", one(&s.Repeat, wholeNumber(1, 1000))},
			{"warmup", "D", "grabs are sent for so long before each load, to orders of their own, and forgotten", one(&s.Warmup, atLeast(0))},
			{"max-workers", "N", "at most so many requests in flight", one(&s.MaxWorkers, wholeNumber(1, 1_000_000))},
			{"p99", "D", "scenario peak: bound on the 99th percentile from the schedule", one(&s.Peak.P99, atLeast(time.Millisecond))},
			{"budget", "D", "bounds a cell with a fault, and the search of scenario peak", one(&s.Budget, atLeast(time.Millisecond))},
		}},
		{"The grab, of instances that are started (defaults: of scenario rush)", []option{
			{"work", "D", "what a driver does between read and write", one(&s.Work, atLeast(0))},
			{"ttl", "D", "how long a lock lives without renewal", one(&s.TTL, atLeast(time.Millisecond))},
			{"wait", "D", "how long a driver waits for the lock; 0 tries once", one(&s.Wait, atLeast(0))},
			{"guard", "NAME", "how the winner is written: " + strings.Join(order.GuardNames(), ", ") + " (default: the strategy's own)", one(&s.Guard, parseGuard)},
			{"per-driver", "N", "units that one driver may have of an order that has several", one(&s.PerDriver, wholeNumber(1, order.MaxStock))},
			{"on-lost", "ACTION", "when a lease is lost: abort, ignore", one(&s.OnLost, parseOnLost)},
			{"clock-offset", "D", "added to the wall clock of the second instance", one(&s.ClockOffset, parseDuration)},
		}},
		{"What comes out", []option{
			{"out", "DIR", "result folder, without the results of another run (default: results/TIME-SCENARIO)", one(&s.Out, nonEmpty)},
			{"resume", "DIR", "go on with the interrupted run in DIR, with the flags that it had", one(&s.resume, nonEmpty)},
			{"format", "NAME", "of standard output: text, json", one(&s.format, oneOf("text", "json"))},
			{"assert", "CLAIM", `exit 3 unless it holds (repeatable): [strategy[/fault]:]field OP number, as in double_grabs==0; or "expected"`, many(&s.asserts, parseAssert)},
			{"expectations", "FILE", "what is expected, instead of what the registry claims: STRATEGY: VERDICT, or STRATEGY: {FAULT: VERDICT}", one(&s.expect, nonEmpty)},
			{"quiet", "", "no progress", toggle{&s.quiet}},
		}},
	}
}

// targetOptions are the flags that describe a service of others. A target file has them
// as its keys, those that stand in target.FileSchema.
func (s *settings) targetOptions() []option {
	return []option{
		{"service", "COMMAND", "start it so, as often as -instances says, behind proxies, on the servers of -stack local. Filled in are " + fleet.Placeholders(), one(&s.Service, parseService)},
		{"ready", "PATH", "with -service: an instance is ready once this answers 2xx (default: once it takes connections)", one(&s.ready, parseReady)},
		{"targets", "URL,URL", "drive these instances instead of starting any, by their base URLs", one(&s.Target.URLs, parseTargets)},
		{"target-pid", "PID,PID", "with -targets: the process of each of them, in their order, which -faults pause,crash may strike; crash kills it for good", one(&s.Target.PIDs, parsePIDs)},
		{"target-file", "FILE", "these flags from a file (YAML: targets, path, body, header, grabbed, …); those given override it", one(&s.file, nonEmpty)},
		{"path", "TEMPLATE", "of the grab, with {order} and {driver} (default /orders/{order}/grab)", one(&s.spec.Path, checked(target.CheckPath))},
		{"method", "NAME", "of the grab (default POST)", one(&s.spec.Method, target.ParseMethod)},
		{"body", "TEMPLATE", `of the grab (default {"driver_id":{driver}})`, one(&s.spec.Body, parseBody)},
		{"header", "NAME: VALUE", "of the grab, with {order} and {driver} (repeatable)", many(&s.spec.Headers, checked(target.CheckHeader))},
		{"grabbed", "RULE", "answers of one who has won: statuses, or fields of JSON as json:.code==0 (default 200)", one(&s.spec.Grabbed, checked(checkRule))},
		{"taken", "RULE", "answers of one who has lost for good (default 409)", one(&s.spec.Taken, checked(checkRule))},
		{"busy", "RULE", "answers of one who did not get the lock (default 423)", one(&s.spec.Busy, checked(checkRule))},
		{"first-order", "ID", "where orders begin, for targets that cannot open any", one(&s.Target.FirstOrder, parseID)},
		{"open-orders", "CALL", `opens orders: METHOD PATH BODY -> FIELD, as 'POST /orders {"n":{count}} -> .first_id'; or sql: STATEMENT with {order}, or {first} and {last} (repeatable)`, many(&s.spec.OpenOrders, checked(target.CheckOpening))},
		{"ledger-query", "SQL", "reads their ledger over -db: order and driver of each grab, as 'SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?'", one(&s.query, nonEmpty)},
		{"lease", "D", "for how long a lock of theirs lives without renewal, by which a stuck order is told (default 30s)", one(&s.Target.Lease, atLeast(time.Millisecond))},
		{"admin-token", "TOKEN", "bearer token for the targets' control calls", one(&s.Target.Token, bearer)},
	}
}

func parseService(text string) (*fleet.Service, error) {
	s, err := fleet.ParseService(text)
	return &s, err
}

func parseReady(text string) (string, error) {
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "# \t\r\n") {
		return "", errors.New("want a path behind the base URL, as in /healthz")
	}
	return text, nil
}

func checkRule(text string) error {
	_, err := target.ParseRule(text)
	return err
}

func parseBody(text string) (*string, error) { return &text, target.CheckBody(text) }

// The bounds of what a cell can do: to open the orders, and to read their ledger, takes a
// minute for a million of them.
const (
	maxOrders   = 1_000_000
	maxRequests = 100_000_000 // orders x drivers
	minRate     = 0.001       // requests/s
	maxRate     = 1e6
)

func parseAt(text string) (*fault.Point, error) {
	p, err := fault.ParsePoint(text)
	return &p, err
}

// core is the five strategies that -strategies has by default.
var core = []string{"none", "mutex", "setnx", "watchdog", "redlock"}

// defaultWorkers is how many cells with a fault run at a time: they wait more
// than they work.
const defaultWorkers = 4

// defaults is a run of the named scenario in which nothing else was asked for.
func defaults(scenario string) *settings {
	s := &settings{format: "text", given: map[string]bool{}}
	for _, sc := range experiment.Scenarios {
		if sc.Name == scenario {
			s.Config = sc.Config
			s.Scenario = sc.Name
		}
	}
	s.Stack.Kind, s.Instances, s.Workers = stack.Embedded, 2, defaultWorkers
	s.Strategies, _ = parseStrategies("core")
	s.Faults = []catalog.Fault{catalog.NoFault}
	s.OnLost = grab.Abort
	s.Stock, s.PerDriver = max(s.Stock, 1), 1
	return s
}

// parseRun reads the flags of run. Its errors wrap errUsage, or flag.ErrHelp.
func parseRun(args []string) (*settings, error) {
	s, err := parseWithScenario(args)
	if err != nil {
		return nil, err
	}
	if s.resume != "" {
		if s, err = s.resumed(); err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
	}
	if !s.given["seed"] {
		s.Seed = uint64(rand.Uint32())
		s.Args = append(s.Args, fmt.Sprintf("-seed=%d", s.Seed))
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return s, nil
}

// parseWithScenario parses twice: for the scenario, then over what that one sets.
func parseWithScenario(args []string) (*settings, error) {
	s := defaults(experiment.Scenarios[0].Name)
	if err := s.parse(args); err != nil {
		return nil, err
	}
	s = defaults(s.Scenario)
	return s, s.parse(args)
}

func (s *settings) parse(args []string) error {
	fs := flag.NewFlagSet("loadgen run", flag.ContinueOnError)
	for _, t := range s.topics() {
		for _, o := range t.options {
			fs.Var(recorded{o.value, o.name, s.argsOf(o.name)}, o.name, o.about)
		}
	}
	fs.Var(one(&s.Workers, wholeNumber(1, 16)), "worker-stacks", "") // not in the help: it is for tests
	if err := readFlags(fs, args, s.given); err != nil {
		return err
	}
	if err := s.readFile(fs); err != nil {
		return fmt.Errorf("%w: -target-file: %w", errUsage, err)
	}
	// A service that is slow to answer hides its races from drivers who come one by one.
	s.Together = s.attaches() && !s.given["rate"] && s.Rate > 0
	return nil
}

// readFile sets the flags of the target file that are not given. They are not written down
// with the run: the file's name is.
func (s *settings) readFile(fs *flag.FlagSet) error {
	if s.file == "" {
		return nil
	}
	lines, err := target.ReadFile(s.file)
	if err != nil {
		return err
	}
	given := maps.Clone(s.given)
	for _, l := range lines {
		if given[l.Key] {
			continue
		}
		if err := fs.Lookup(l.Key).Value.(recorded).Value.Set(l.Value); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", s.file, l.Line, l.Key, err)
		}
		s.given[l.Key] = true
	}
	return nil
}

// attaches says whether the run is against a service that runs already.
func (s *settings) attaches() bool { return len(s.Target.URLs) > 0 || s.Service != nil }

// unrecorded flags do not make a run what it is, or hold secrets: they are not
// written down with it, and may be given anew when it is resumed.
var unrecorded = []string{"out", "resume", "format", "assert", "quiet", "schedule", "db", "admin-token", "header"}

// argsOf is the list that the flag of the name is kept in.
func (s *settings) argsOf(name string) *[]string {
	if slices.Contains(unrecorded, name) {
		return &s.unrecorded
	}
	return &s.Args
}

// recorded is a flag that also appends to args how it was given.
type recorded struct {
	flag.Value
	name string
	args *[]string
}

func (n recorded) Set(text string) error {
	err := n.Value.Set(text)
	if err == nil {
		*n.args = append(*n.args, "-"+n.name+"="+text)
	}
	return err
}

func (n recorded) IsBoolFlag() bool {
	_, ok := n.Value.(toggle)
	return ok
}

// String is also asked of the zero value, which package flag makes.
func (n recorded) String() string {
	if n.Value == nil {
		return ""
	}
	return n.Value.String()
}

func scenarioNames() []string {
	return namesOf(experiment.Scenarios, func(s experiment.Scenario) string { return s.Name })
}

func parseRate(text string) (float64, error) {
	r, err := strconv.ParseFloat(text, 64)
	if err != nil || !(r >= minRate && r <= maxRate) {
		return 0, fmt.Errorf("want a number of requests a second, from %g to %.0f", minRate, maxRate)
	}
	return r, nil
}

func parseID(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, errors.New("want the id of an order, 1 or more")
	}
	return n, nil
}

func parseOnLost(text string) (grab.OnLost, error) {
	name, err := oneOf(string(grab.Abort), string(grab.Ignore))(text)
	return grab.OnLost(name), err
}

func parseGuard(text string) (order.Guard, error) {
	name, err := oneOf(order.GuardNames()...)(text)
	return order.Guard(name), err
}

func parseAssert(text string) (experiment.Assert, error) {
	a, err := experiment.ParseAssert(text)
	switch {
	case errors.Is(err, experiment.ErrNoFigure):
		return a, noSuch("field", a.Figure, experiment.Figures)
	case err != nil:
		return a, errors.New(strings.TrimPrefix(err.Error(), experiment.ErrAssert.Error()+": "))
	}
	return a, nil
}

// chooseStrategies is parseStrategies, but that a name may be one of targets.
func (s *settings) chooseStrategies(text string) ([]lock.Strategy, error) {
	words, err := parseList(text)
	if err != nil {
		return nil, err
	}
	s.chosen = words
	list, err := parseStrategies(text)
	if err != nil {
		s.unknown = fmt.Errorf("invalid value %q for flag -strategies: %w", text, err)
	}
	return list, nil
}

// parseStrategies reads names, core, all and peers; each counts once.
func parseStrategies(text string) ([]lock.Strategy, error) {
	return parseEach(text, nameOf, func(word string) ([]lock.Strategy, error) {
		switch word {
		case "core":
			return parseStrategies(strings.Join(core, ","))
		case "all":
			return lock.Strategies, nil
		case "peers":
			return lock.Peers, nil
		}
		s, err := findStrategy(word)
		return []lock.Strategy{s}, err
	})
}

func nameOf(s lock.Strategy) string { return s.Name }

func findStrategy(name string) (lock.Strategy, error) {
	s, err := lock.Find(name)
	if err != nil {
		return s, noSuch("strategy", name, namesOf(slices.Concat(lock.Strategies, lock.Peers), nameOf), "core", "all", "peers")
	}
	return s, nil
}

// parseFaults reads names, and all; each counts once. They come in the order of
// the table.
func (s *settings) parseFaults(text string) ([]catalog.Fault, error) {
	chosen, err := parseEach(text, faultName, func(word string) ([]catalog.Fault, error) {
		if word == "all" {
			return catalog.RunFaults, nil
		}
		f, err := s.findFault(word)
		return []catalog.Fault{f}, err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(catalog.RunFaults), func(f catalog.Fault) bool { return !slices.Contains(chosen, f) }), nil
}

func faultName(f catalog.Fault) string { return string(f) }

// findFault finds a fault of run by its name or an old one, of which it notes
// what it is called now.
func (s *settings) findFault(name string) (catalog.Fault, error) {
	found, note, _ := catalog.FindFault(name)
	if slices.Contains(catalog.RunFaults, found.Name) {
		s.notes.add(note)
		return found.Name, nil
	}
	return "", noSuch("fault", name, namesOf(catalog.RunFaults, faultName), "all")
}

func (s *settings) parseCell(text string) (experiment.CellName, error) {
	strategy, fault, ok := strings.Cut(text, "/")
	if !ok {
		return experiment.CellName{}, errors.New("want STRATEGY/FAULT, as in setnx/pause")
	}
	if _, err := findStrategy(strategy); err != nil {
		s.unknown = fmt.Errorf("invalid value %q for flag -only: %w", text, err)
	}
	f, err := s.findFault(fault)
	return experiment.CellName{Strategy: strategy, Fault: f}, err
}

func parsePIDs(text string) ([]int, error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	pids := make([]int, len(list))
	for i, word := range list {
		if pids[i], err = strconv.Atoi(word); err != nil || pids[i] < 2 {
			return nil, fmt.Errorf("%q: want the id of a process, 2 or more, as ps and pgrep tell it", word)
		}
		if slices.Contains(pids[:i], pids[i]) {
			return nil, fmt.Errorf("%d is named twice: a process that is all of the targets leaves none to go on", pids[i])
		}
	}
	return pids, nil
}

func parseTargets(text string) ([]string, error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	for i, target := range list {
		u, err := url.Parse(target)
		if err == nil && u.Port() != "" {
			_, err = strconv.ParseUint(u.Port(), 10, 16)
		}
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("%q: want the base URL of an instance, as in http://127.0.0.1:8004 or http://127.0.0.1:8080/shop", target)
		}
		list[i] = u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/")
		if slices.Contains(list[:i], list[i]) {
			return nil, fmt.Errorf("%s is named twice", list[i])
		}
	}
	return list, nil
}
