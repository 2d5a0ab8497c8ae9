package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"grablab/internal/bench"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/stack"
)

// settings is a run as it was asked for.
type settings struct {
	bench.Config
	asserts []bench.Assert
	format  string
	quiet   bool
	resume  string // the result folder to go on in; "": a new one

	schedule string // the file to be forced, instead of a table; "": none

	given map[string]bool // the flags that were
	aside []string        // those of them that are not in Args, as they were given
}

// option is one flag, as it is parsed and as it is told.
type option struct {
	name, arg, about string
	value            flag.Value
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
			{"scenario", "NAME", "sets the load; other flags override it: " + strings.Join(scenarioNames(), ", "), one(&s.Scenario, among(scenarioNames()...))},
			{"strategies", "A,B,…", "strategies, in this order; or core, or all", one(&s.Strategies, parseStrategies)},
			{"faults", "A,B,…", "what goes wrong, each in cells of its own; or all (default none)", one(&s.Faults, parseFaults)},
			{"only", "STRATEGY/FAULT", "run this cell alone (repeatable)", many(&s.Only, parseCell)},
			{"schedule", "FILE", "instead: force this schedule on real servers, step by step; with -strategies, another strategy", one(&s.schedule, nonEmpty)},
			{"seed", "N", "permutes orders and drivers (default: drawn, and printed first)", one(&s.Seed, parseSeed)},
		}},
		{"What it runs on", []option{
			{"stack", "KIND", "what runs underneath: " + strings.Join(stack.Kinds(), ", "), one(&s.Stack.Kind, among(stack.Kinds()...))},
			{"db", "DSN", "database, with -stack external or -targets", one(&s.Stack.DB, nonEmpty)},
			{"redis", "ADDR", "the single Redis, with -stack external", one(&s.Stack.Redis, nonEmpty)},
			{"redlock", "ADDR,ADDR,…", "the Redlock nodes, with -stack external; NAME@ADDR is the master NAME of the Sentinel at ADDR", one(&s.Stack.Redlock, parseList)},
			{"sentinel", "ADDR,ADDR,…", "Sentinels that know the Redis, instead of -redis", one(&s.Stack.Sentinel, parseList)},
			{"sentinel-master", "NAME", "the name of the master that they watch", one(&s.Stack.SentinelMaster, nonEmpty)},
			{"zk", "ADDR,ADDR,…", "the servers of a ZooKeeper, with -stack external", one(&s.Stack.ZooKeeper, parseList)},
			{"etcd", "ADDR,ADDR,…", "the members of an etcd, with -stack external", one(&s.Stack.Etcd, parseList)},
			{"instances", "N", "how many instances are started", one(&s.Instances, whole(1, 64))},
			{"targets", "URL,URL", "drive these instances instead of starting any", one(&s.Targets, parseTargets)},
			{"first-order", "ID", "where orders begin, for targets that cannot open any", one(&s.FirstOrder, parseID)},
			{"admin-token", "TOKEN", "bearer token for the targets' control calls", one(&s.AdminToken, nonEmpty)},
		}},
		{"The load (defaults: of scenario rush)", []option{
			{"orders", "N", "orders of each cell", one(&s.Orders, whole(1, maxRequests))},
			{"drivers", "N", "drivers after each order", one(&s.Drivers, whole(1, maxRequests))},
			{"rate", "R", "requests a second over all instances", one(&s.Rate, parseRate)},
			{"duration", "D", "instead of -orders: as many as fit at -rate", one(&s.Duration, atLeast(time.Millisecond))},
			{"timeout", "D", "a client gives up after this", one(&s.Timeout, between(time.Millisecond, time.Hour))},
			{"max-workers", "N", "at most so many requests in flight", one(&s.MaxWorkers, whole(1, 1_000_000))},
			{"p99", "D", "scenario peak: bound on the 99th percentile from the schedule", one(&s.Peak.P99, atLeast(time.Millisecond))},
			{"budget", "D", "bounds a cell with a fault, and the search of scenario peak", one(&s.Budget, atLeast(time.Millisecond))},
		}},
		{"The grab (defaults: of scenario rush; with -targets: what those were started with)", []option{
			{"work", "D", "what a driver does between read and write", one(&s.Work, atLeast(0))},
			{"ttl", "D", "how long a lock lives without renewal", one(&s.TTL, atLeast(time.Millisecond))},
			{"wait", "D", "how long a driver waits for the lock; 0 tries once", one(&s.Wait, atLeast(0))},
			{"guard", "NAME", "how the winner is written: " + strings.Join(guardNames(), ", ") + " (default: the strategy's own)", one(&s.Guard, parseGuard)},
			{"on-lost", "ACTION", "when a lease is lost: abort, ignore", one(&s.OnLost, parseOnLost)},
			{"clock-offset", "D", "added to the wall clock of the second instance", one(&s.ClockOffset, parseDuration)},
		}},
		{"What comes out", []option{
			{"out", "DIR", "result folder; replaces an earlier run there (default: results/TIME-SCENARIO)", one(&s.Out, nonEmpty)},
			{"resume", "DIR", "go on with the interrupted run in DIR, with the flags that it had", one(&s.resume, nonEmpty)},
			{"format", "NAME", "of standard output: text, json", one(&s.format, among("text", "json"))},
			{"assert", "CLAIM", `exit 3 unless it holds (repeatable): [strategy[/fault]:]field OP number, as in double_grabs==0; or "expected"`, many(&s.asserts, parseAssert)},
			{"quiet", "", "no progress", toggle{&s.quiet}},
		}},
	}
}

// maxRequests bounds orders x drivers.
const maxRequests = 100_000_000

// core is the five strategies that tell the story.
var core = []string{"none", "mutex", "setnx", "watchdog", "redlock"}

// defaultLanes is how many cells with a fault run at a time: they wait more
// than they work.
const defaultLanes = 4

// defaults is a run of the named scenario in which nothing else was asked for.
func defaults(scenario string) *settings {
	s := &settings{format: "text", given: map[string]bool{}}
	for _, sc := range bench.Scenarios {
		if sc.Name == scenario {
			s.Config = sc.Config
			s.Scenario = sc.Name
		}
	}
	s.Stack.Kind, s.Instances, s.Lanes = stack.Embedded, 2, defaultLanes
	s.Strategies, _ = parseStrategies("core")
	s.Faults = []lock.Fault{lock.NoFault}
	s.OnLost = grab.Abort
	return s
}

// parseRun reads the flags of run. Its errors wrap errUsage, or flag.ErrHelp.
func parseRun(args []string) (*settings, error) {
	s, err := parseTwice(args)
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
	if err := s.settle(); err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	return s, nil
}

// parseTwice parses once for the scenario, and once more over what that one sets.
func parseTwice(args []string) (*settings, error) {
	s := defaults(bench.Scenarios[0].Name)
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
			fs.Var(noted{o.value, o.name, s.notesOf(o.name)}, o.name, o.about)
		}
	}
	fs.Var(one(&s.Lanes, whole(1, 16)), "lanes", "") // not in the help: nobody should need it
	return readFlags(fs, args, s.given)
}

// readFlags reads args, and notes in given which flags are there. Its errors wrap
// errUsage, or flag.ErrHelp.
func readFlags(fs *flag.FlagSet, args []string, given map[string]bool) error {
	fs.SetOutput(io.Discard) // the caller says what is wrong, in one line
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %s", errUsage, explain(err, fs))
	case fs.NArg() > 0:
		return fmt.Errorf("%w: %q is no flag; flags begin with -", errUsage, fs.Arg(0))
	}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return nil
}

// readOptions is readFlags over the options of the named command.
func readOptions(command string, options []option, args []string) (given map[string]bool, err error) {
	fs := flag.NewFlagSet("loadgen "+command, flag.ContinueOnError)
	for _, o := range options {
		fs.Var(o.value, o.name, o.about)
	}
	given = map[string]bool{}
	return given, readFlags(fs, args, given)
}

// asides are the flags that do not make a run what it is, or that hold secrets.
// They are not written down with it.
var asides = []string{"out", "resume", "format", "assert", "quiet", "schedule", "db", "admin-token"}

func (s *settings) notesOf(name string) *[]string {
	if slices.Contains(asides, name) {
		return &s.aside
	}
	return &s.Args
}

// noted is a flag of which is noted how it was given.
type noted struct {
	flag.Value
	name  string
	notes *[]string
}

func (n noted) Set(text string) error {
	err := n.Value.Set(text)
	if err == nil {
		*n.notes = append(*n.notes, "-"+n.name+"="+text)
	}
	return err
}

func (n noted) IsBoolFlag() bool {
	_, ok := n.Value.(toggle)
	return ok
}

// String is also asked of the zero value, which package flag makes.
func (n noted) String() string {
	if n.Value == nil {
		return ""
	}
	return n.Value.String()
}

// explain is the error of a parse, and for an unknown flag the one that may
// have been meant. (Package flag has no error to tell that by but its text.)
func explain(err error, fs *flag.FlagSet) string {
	name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return err.Error()
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("there is no flag -%s; did you mean -%s?", name, near)
	}
	return fmt.Sprintf("there is no flag -%s; -h lists them", name)
}

func scenarioNames() []string {
	names := make([]string, len(bench.Scenarios))
	for i, s := range bench.Scenarios {
		names[i] = s.Name
	}
	return names
}

// value is a flag whose parser says what would have been right.
type value[T any] struct {
	set   func(T)
	get   func() T // nil: the help shows no default
	parse func(string) (T, error)
}

func one[T any](p *T, parse func(string) (T, error)) flag.Value {
	return value[T]{set: func(v T) { *p = v }, get: func() T { return *p }, parse: parse}
}

// many is a flag that may be repeated.
func many[T any](p *[]T, parse func(string) (T, error)) flag.Value {
	return value[T]{set: func(v T) { *p = append(*p, v) }, parse: parse}
}

func (v value[T]) Set(text string) error {
	x, err := v.parse(text)
	if err == nil {
		v.set(x)
	}
	return err
}

// String is the value as the help shows it; "" where there is nothing to show.
func (v value[T]) String() string {
	if v.get == nil { // also the zero value, which package flag makes
		return ""
	}
	switch x := any(v.get()).(type) {
	case []lock.Strategy:
		return "core"
	case []lock.Fault, []string, uint64, int64:
		return ""
	default:
		return fmt.Sprint(x)
	}
}

// toggle is a flag without a value.
type toggle struct{ on *bool }

func (t toggle) IsBoolFlag() bool { return true }
func (t toggle) String() string   { return "" }

func (t toggle) Set(text string) (err error) {
	if *t.on, err = strconv.ParseBool(text); err != nil {
		return errors.New("want true or false")
	}
	return nil
}

func nonEmpty(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("want something that is not empty")
	}
	return text, nil
}

func among(names ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		if !slices.Contains(names, text) {
			return "", fmt.Errorf("want one of %s", strings.Join(names, ", "))
		}
		return text, nil
	}
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("want a duration, as in 30s, 500ms or 1m30s")
	}
	return d, nil
}

func atLeast(least time.Duration) func(string) (time.Duration, error) {
	return between(least, math.MaxInt64)
}

func between(least, most time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := parseDuration(text)
		switch {
		case err != nil:
			return 0, err
		case d < least:
			return 0, fmt.Errorf("want %v or more", least)
		case d > most:
			return 0, fmt.Errorf("want %v or less", most)
		}
		return d, nil
	}
}

func whole(least, most int) func(string) (int, error) {
	return func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		return n, nil
	}
}

func parseRate(text string) (float64, error) {
	r, err := strconv.ParseFloat(text, 64)
	if err != nil || !(r > 0 && r <= 1e6) {
		return 0, errors.New("want a number of requests a second above 0, and no more than 1000000")
	}
	return r, nil
}

func parseSeed(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, errors.New("want a whole number, 0 or more")
	}
	return n, nil
}

func parseID(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, errors.New("want the id of an order, 1 or more")
	}
	return n, nil
}

func parseOnLost(text string) (grab.OnLost, error) {
	name, err := among(string(grab.Abort), string(grab.Ignore))(text)
	return grab.OnLost(name), err
}

func guardNames() []string {
	names := make([]string, len(order.Guards))
	for i, g := range order.Guards {
		names[i] = string(g)
	}
	return names
}

func parseGuard(text string) (order.Guard, error) {
	name, err := among(guardNames()...)(text)
	return order.Guard(name), err
}

func parseAssert(text string) (bench.Assert, error) {
	a, err := bench.ParseAssert(text)
	if err != nil {
		return a, errors.New(strings.TrimPrefix(err.Error(), bench.ErrAssert.Error()+": "))
	}
	return a, nil
}

// parseList splits at commas. No element is empty.
func parseList(text string) ([]string, error) {
	list := strings.Split(text, ",")
	for i := range list {
		if list[i] = strings.TrimSpace(list[i]); list[i] == "" {
			return nil, errors.New("want names or addresses with commas between them, none of them empty")
		}
	}
	return list, nil
}

// parseStrategies reads names, core and all; each counts once.
func parseStrategies(text string) ([]lock.Strategy, error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	var strategies []lock.Strategy
	chosen := map[string]bool{}
	for _, word := range list {
		names := []string{word}
		switch word {
		case "core":
			names = core
		case "all":
			names = lock.Names()
		}
		for _, name := range names {
			s, err := findStrategy(name)
			if err != nil {
				return nil, err
			}
			if !chosen[name] {
				chosen[name] = true
				strategies = append(strategies, s)
			}
		}
	}
	return strategies, nil
}

func findStrategy(name string) (lock.Strategy, error) {
	s, err := lock.Find(name)
	if err == nil {
		return s, nil
	}
	known := append([]string{"core", "all"}, lock.Names()...)
	if near := nearest(name, known); near != "" {
		return s, fmt.Errorf("there is no strategy %q; did you mean %s?", name, near)
	}
	return s, fmt.Errorf("there is no strategy %q; there are %s", name, strings.Join(lock.Names(), ", "))
}

// parseFaults reads names, and all; each counts once. They come in the order of
// the table.
func parseFaults(text string) ([]lock.Fault, error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		if _, err := findFault(name); name != "all" && err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(lock.Faults), func(f lock.Fault) bool {
		return !slices.Contains(list, string(f)) && !slices.Contains(list, "all")
	}), nil
}

func findFault(name string) (lock.Fault, error) {
	if slices.Contains(lock.Faults, lock.Fault(name)) {
		return lock.Fault(name), nil
	}
	if near := nearest(name, append(faultNames(), "all")); near != "" {
		return "", fmt.Errorf("there is no fault %q; did you mean %s?", name, near)
	}
	return "", fmt.Errorf("there is no fault %q; there are %s", name, strings.Join(faultNames(), ", "))
}

func faultNames() []string {
	names := make([]string, len(lock.Faults))
	for i, f := range lock.Faults {
		names[i] = string(f)
	}
	return names
}

func parseCell(text string) (bench.CellName, error) {
	strategy, fault, ok := strings.Cut(text, "/")
	if !ok {
		return bench.CellName{}, errors.New("want STRATEGY/FAULT, as in setnx/pause")
	}
	if _, err := findStrategy(strategy); err != nil {
		return bench.CellName{}, err
	}
	f, err := findFault(fault)
	return bench.CellName{Strategy: strategy, Fault: f}, err
}

func parseTargets(text string) ([]string, error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	for i, target := range list {
		u, err := url.Parse(target)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			strings.TrimRight(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("%q: want the base URL of an instance, as in http://127.0.0.1:8004", target)
		}
		list[i] = u.Scheme + "://" + u.Host
		if slices.Contains(list[:i], list[i]) {
			return nil, fmt.Errorf("%s is named twice", list[i])
		}
	}
	return list, nil
}
