package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/lockbench"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// sample is a valid value of a flag, with the change that it must make to the settings of a run.
type sample struct {
	value string
	also  string // other flags that this flag needs
	want  func(*runSettings)
}

var samples = map[string]sample{
	"shard": {"1/4", targets + " -seed 1 -first-order 1 -db u:p@tcp(h:1)/d -shard-start 2026-11-20T21:30:00Z", func(s *runSettings) {
		s.shard.Share = load.Share{Index: 1, Count: 4}
		s.Shard = &s.shard
	}},
	"shard-start": {"2026-11-20T21:30:00Z", targets + " -seed 1 -first-order 1 -db u:p@tcp(h:1)/d -shard 1/4", func(s *runSettings) {
		s.shard.Start = time.Date(2026, 11, 20, 21, 30, 0, 0, time.UTC)
		s.Shard = &s.shard
	}},

	"scenario":   {"article", "", func(s *runSettings) { *s = *defaults("article") }},
	"strategies": {"setnx, none", "", func(s *runSettings) { s.Strategies = strategies("setnx", "none") }},
	"faults":     {"crash,none,pause", "", func(s *runSettings) { s.Faults = []catalog.Fault{catalog.NoFault, catalog.Pause, catalog.Crash} }},
	"only": {"setnx/pause", "", func(s *runSettings) {
		s.Strategies, s.Faults, s.Only = strategies("setnx"), []catalog.Fault{catalog.Pause}, []experiment.CellName{{Strategy: "setnx", Fault: catalog.Pause}}
	}},
	"at": {"handing over: before release 1", "-faults pause", func(s *runSettings) {
		s.At = &fault.Point{Role: fault.HandingOver, Point: control.Point{Phase: tap.Release, N: 1}}
	}},
	"seed": {"42", "", func(s *runSettings) { s.Seed = 42 }},
	"redis-topology": {"cluster", "-stack local", func(s *runSettings) {
		s.Stack.Kind, s.Stack.Topology = "local", catalog.RedisCluster
	}},
	"stack":     {"local", "", func(s *runSettings) { s.Stack.Kind = "local" }},
	"db":        {"u:p@tcp(h:1)/d", external, func(*runSettings) {}},
	"redis":     {"h:1", external, func(s *runSettings) { s.Stack.Redis = "h:1" }},
	"redlock":   {"h:1, h:2,h:3", external, func(s *runSettings) { s.Stack.Redlock = []string{"h:1", "h:2", "h:3"} }},
	"sentinel":  {"h:1, h:2", external + " -sentinel-master m", func(s *runSettings) { s.Stack.Sentinel = []string{"h:1", "h:2"} }},
	"instances": {"3", "", func(s *runSettings) { s.Instances = 3 }},
	"service": {"x {port}", "", func(s *runSettings) {
		service, _ := fleet.ParseService("x {port}")
		s.Service, s.Together = &service, s.Rate > 0
		started(s)
	}},
	"ready": {"/up", "-service x{port}", func(s *runSettings) {
		s.ready, s.Service.Ready = "/up", "/up"
		started(s)
	}},
	"targets": {"http://h:1/,https://h:2/shop/", "", func(s *runSettings) {
		s.Target.URLs, s.Together = []string{"http://h:1", "https://h:2/shop"}, s.Rate > 0
	}},
	"migrate": {"service", "-service x{port}", func(s *runSettings) {
		migration, _ := fleet.ParseMigration("service")
		s.migrations = []fleet.Migration{migration}
		s.Service.Migrations = s.migrations
		started(s)
	}},
	"target-pid": {"7,8", "-targets http://h:1,http://h:2 -faults pause", func(s *runSettings) {
		s.Target.PIDs, s.Workers, s.Budget = []int{7, 8}, 1, serviceBudget
	}},
	"path":    {"/g/{order}", targets, func(s *runSettings) { s.spec.Path = "/g/{order}" }},
	"method":  {"put", targets, func(s *runSettings) { s.spec.Method = "PUT" }},
	"body":    {"{driver}", targets, func(s *runSettings) { s.spec.Body = new("{driver}") }},
	"header":  {"A: {driver}", targets, func(s *runSettings) { s.spec.Headers = []string{"A: {driver}"} }},
	"grabbed": {"json:.code==0", targets, func(s *runSettings) { s.spec.Grabbed = "json:.code==0" }},
	"taken":   {"409,410", targets, func(s *runSettings) { s.spec.Taken = "409,410" }},
	"later": {"202 -> .at", targets + " -grabbed 201", func(s *runSettings) {
		s.spec.Later, s.spec.Grabbed = "202 -> .at", "201"
	}},
	"busy":          {"429", targets, func(s *runSettings) { s.spec.Busy = "429" }},
	"open-orders":   {"/orders", targets, func(s *runSettings) { s.spec.OpenOrders = []string{"/orders"} }},
	"ledger-query":  {"SELECT ? ?", targets + " -db u:p@tcp(h:1)/d", func(s *runSettings) { s.ledgerQuery = "SELECT ? ?" }},
	"lease":         {"7s", targets, func(s *runSettings) { s.Target.Lease = 7 * time.Second }},
	"first-order":   {"7", targets, func(s *runSettings) { s.Target.FirstOrder = 7 }},
	"probe-drivers": {"5001", targets, func(s *runSettings) { s.Target.ProbeDrivers = 5001 }},
	"admin-token":   {"x", targets, func(s *runSettings) { s.Target.Token = "x" }},
	"repeat":        {"7", "", func(s *runSettings) { s.Repeat = 7 }},
	"warmup":        {"7s", "", func(s *runSettings) { s.Warmup = 7 * time.Second }},
	"compensation":  {"5s", targets + " -db u:p@tcp(h:1)/d -ledger-query SELECT?,?", func(s *runSettings) { s.Target.Compensation = 5 * time.Second }},
	"no-expiry":     {"true", targets, func(s *runSettings) { s.Target.NoExpiry = true }},
	"idempotent":    {"true", targets, func(s *runSettings) { s.Target.Idempotent = true }},
	"settle":        {"7s", targets, func(s *runSettings) { s.Settle = 7 * time.Second }},
	"orders":        {"3", "", func(s *runSettings) { s.Orders = 3 }},
	"drivers":       {"4", "", func(s *runSettings) { s.Drivers = 4 }},
	"stock":         {"5", "", func(s *runSettings) { s.Stock = 5 }},
	"per-driver":    {"2", "-stock 5", func(s *runSettings) { s.Stock, s.PerDriver = 5, 2 }},
	"rate":          {"12.5", "", func(s *runSettings) { s.Rate = 12.5 }},
	"duration":      {"10s", "-rate 100", func(s *runSettings) { s.Rate, s.Duration, s.Orders = 100, 10*time.Second, max(1, 1000/s.Drivers) }},
	"timeout":       {"4s", "", func(s *runSettings) { s.Timeout, s.Asked.Timeout = 4*time.Second, true }},
	"max-workers":   {"4", "", func(s *runSettings) { s.MaxWorkers = 4 }},
	"p99":           {"7ms", "-scenario peak", func(s *runSettings) { s.PeakP99 = 7 * time.Millisecond }},
	"budget":        {"7s", "-scenario peak", func(s *runSettings) { s.Budget = 7 * time.Second }},
	"work":          {"7ms", "", func(s *runSettings) { s.Work, s.Asked.Work = 7*time.Millisecond, true }},
	"ttl":           {"7s", "", func(s *runSettings) { s.TTL, s.Asked.TTL = 7*time.Second, true }},
	"wait":          {"0", "", func(s *runSettings) { s.Wait, s.Asked.Wait = 0, true }},
	"guard":         {"guarded", "", func(s *runSettings) { s.Guard = order.Guarded }},
	"on-lost":       {"ignore", "", func(s *runSettings) { s.OnLost = grab.Ignore }},
	"clock-offset":  {"-3s", "", func(s *runSettings) { s.ClockOffset = -3 * time.Second }},
	"otlp":          {"http://h:4318", "", func(s *runSettings) { s.OTLP = "http://h:4318" }},
	"out":           {"x/y", "", func(s *runSettings) { s.Out = "x/y" }},
	"format":        {"json", "", func(s *runSettings) { s.format = "json" }},
	"assert": {"setnx:grabs<5", "", func(s *runSettings) {
		s.asserts = []experiment.Assert{{Strategy: "setnx", Figure: "grabs", Op: "<", Number: 5}}
	}},
	"sentinel-master": {"n", external + " -sentinel h:1", func(s *runSettings) { s.Stack.SentinelMaster = "n" }},
	"zk":              {"z:1,y:2", external, func(s *runSettings) { s.Stack.ZooKeeper = []string{"z:1", "y:2"} }},
	"etcd":            {"e:1", external, func(s *runSettings) { s.Stack.Etcd = []string{"e:1"} }},
	"budget-total":    {"5m", "", func(s *runSettings) { s.BudgetTotal = 5 * time.Minute }},
	"junit":           {"x/y.xml", "", func(s *runSettings) { s.junit = "x/y.xml" }},
	"quiet":           {"true", "", func(s *runSettings) { s.quiet = true }},
}

// started changes the settings in the same way as -service does.
func started(s *runSettings) {
	s.Stack.Kind, s.Workers, s.TTL = stack.Local, 2, target.DefaultLease
	if s.Scenario != "peak" {
		s.Budget = serviceBudget
	}
}

const (
	external = "-stack external -worker-stacks 4 -db u:p@tcp(h:1)/d -strategies none"
	targets  = "-targets http://h:1"
)

func strategies(names ...string) []lock.Strategy {
	list, err := parseStrategies(strings.Join(names, ","))
	if err != nil {
		panic(err)
	}
	return list
}

// fields returns the comparable part of settings, without functions.
func fields(s *runSettings) any {
	c := *s
	c.line, c.unrecordedArgs, c.Args = nil, nil, nil
	c.strategyWords, c.note = nil, "" // skip the words, which s.Strategies repeats, and the note, which is only printed
	c.Target.Shape, c.Target.Open, c.Target.Database, c.Target.Strategies = nil, nil, target.Database{}, nil
	var names []string
	for _, st := range c.Strategies {
		names = append(names, st.Name)
	}
	c.Strategies, c.Stack.Needs = nil, 0
	return struct {
		runSettings
		names []string
	}{c, names}
}

// TestFlagsOverrideScenarios checks that each flag changes its own setting and no other, in every
// scenario and at any place in the command line.
func TestFlagsOverrideScenarios(t *testing.T) {
	for _, f := range defaults("rush").flags() {
		if _, ok := samples[f.Name]; !ok && f.About != "" && !slices.Contains([]string{"resume", "schedule", "target-file", "expectations", "baseline"}, f.Name) { // other tests cover these
			t.Errorf("-%s has no sample", f.Name)
		}
	}
	refuses := map[string][]string{
		"peak": {"shard", "shard-start", "target-pid", "repeat", "warmup", "rate", "orders", "duration", "faults", "only", "at", "stock", "per-driver"},
		"sale": {"target-pid", "faults", "only", "at"},
	}
	for _, scenario := range scenarioNames() {
		for name, sample := range samples {
			if name == "scenario" || strings.Contains(sample.also, "-scenario peak") != (scenario == "peak" && (name == "p99" || name == "budget")) ||
				slices.Contains(refuses[scenario], name) {
				continue
			}
			base := strings.Fields(sample.also)
			if !slices.Contains(base, "-scenario") {
				base = append(base, "-scenario", scenario)
			}
			if name != "seed" {
				base = append(base, "-seed", "1")
			}
			want := defaults(scenario)
			want.Seed = 1
			if err := errors.Join(want.parse(base), want.chooseNames()); err != nil {
				t.Fatal(err)
			}
			sample.want(want)

			arg := "-" + name + "=" + sample.value
			for _, args := range [][]string{append([]string{arg}, base...), append(slices.Clone(base), arg)} {
				got, err := parseRun(args)
				if err != nil {
					t.Errorf("parseRun(%q): %v", args, err)
				} else if !reflect.DeepEqual(fields(got), fields(want)) {
					t.Errorf("settings from %q:\ngot  %+v\nwant %+v", args, fields(got), fields(want))
				}
			}
		}
	}
}

func TestScenarios(t *testing.T) {
	for _, name := range scenarioNames() {
		got, err := parseRun([]string{"-scenario", name, "-seed", "1"})
		if err != nil {
			t.Fatal(err)
		}
		want := defaults(name)
		want.Seed = 1
		if !reflect.DeepEqual(fields(got), fields(want)) {
			t.Errorf("settings of the scenario %s: got %+v, want %+v", name, fields(got), fields(want))
		}
		if got.Scenario != name || got.Drivers == 0 || got.MaxWorkers == 0 || got.Timeout == 0 {
			t.Errorf("scenario %s does not set a required field: %+v", name, fields(got))
		}
	}
}

func TestNeedsAreThoseOfTheStrategies(t *testing.T) {
	for chosen, want := range map[string]lock.Backend{
		"none": 0, "setnx": lock.Redis, "setnx,redlock": lock.Redis | lock.RedisQuorum,
	} {
		s, err := parseRun([]string{"-strategies", chosen})
		if err != nil || s.Stack.Needs != want {
			t.Errorf("parseRun(%s): got %b, %v, want %b", chosen, s.Stack.Needs, err, want)
		}
	}
}

// TestSeedIsDrawn checks that runs without -seed get different seeds.
func TestSeedIsDrawn(t *testing.T) {
	drawn := map[uint64]bool{}
	for range 4 {
		s, err := parseRun(nil)
		if err != nil {
			t.Fatal(err)
		}
		drawn[s.Seed] = true
	}
	if len(drawn) == 1 {
		t.Errorf("four runs drew the same seed: %v", drawn)
	}
	if s, err := parseRun([]string{"-seed", "0"}); err != nil || s.Seed != 0 {
		t.Errorf("-seed 0 became %d, %v", s.Seed, err)
	}
}

func TestStrategyLists(t *testing.T) {
	for text, want := range map[string][]string{
		"core":             core,
		"all":              lock.Names(),
		"peers":            {"redsync", "redislock", "rueidislock", "rueidislock-1", "etcd-mutex", "zk-lock"},
		"zk-lock,none":     {"zk-lock", "none"},
		"redlock,none":     {"redlock", "none"},
		"redlock,core":     {"redlock", "none", "mutex", "setnx", "watchdog"},
		" setnx , mutex  ": {"setnx", "mutex"},
	} {
		var got []string
		list, err := parseStrategies(text)
		for _, s := range list {
			got = append(got, s.Name)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("strategies for %q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestOnly(t *testing.T) {
	for args, want := range map[string]string{
		"-targets http://127.0.0.1:1 -first-order 1 -only foreign/none":       "foreign/none",
		"-only redlock/none -only none/none":                                  "redlock/none none/none",
		"-only setnx/none -only setnx/none":                                   "setnx/none",
		"-strategies none,setnx,redlock -only redlock/none":                   "redlock/none",
		"-only none/none -strategies setnx,none -faults none":                 "none/none",
		"-only setnx/pause":                                                   "setnx/pause",
		"-only setnx/pause -only none/crash":                                  "setnx/pause none/crash",
		"-only setnx/crash -only setnx/pause -only setnx/none":                "setnx/none setnx/pause setnx/crash",
		"-strategies none,setnx -faults pause,crash -only setnx/crash":        "setnx/crash",
		"-strategies none,setnx -faults pause,none":                           "none/none none/pause setnx/none setnx/pause",
		"-strategies setnx,none -faults all -only none/none -only setnx/slow": "setnx/slow none/none",
	} {
		s, err := parseRun(strings.Fields(args))
		if err != nil {
			t.Errorf("parseRun(%s): %v", args, err)
			continue
		}
		var got []string
		for _, c := range s.Plan() {
			got = append(got, c.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got the cells %q, want %q", args, got, want)
		}
	}
}

// TestAllFaults checks that -faults all leaves out the faults that cannot affect the Redis topology of
// the run.
func TestAllFaults(t *testing.T) {
	for topology, without := range map[catalog.Topology]catalog.Fault{
		catalog.SingleRedis: catalog.SlotMoves, catalog.RedisCluster: catalog.SentinelFailover, catalog.RedisSentinel: catalog.RedisRestart,
	} {
		s := defaults("rush")
		s.Stack.Topology = topology
		var err error
		if s.Faults, err = s.parseFaults("all"); err == nil {
			err = s.chooseCells()
		}
		if err != nil || slices.Contains(s.Faults, without) || !slices.Contains(s.Faults, catalog.Pause) {
			t.Errorf("faults on the topology %s: %v, %v", topology, s.Faults, err)
		}
	}
}

func TestFaultLists(t *testing.T) {
	for text, want := range map[string][]catalog.Fault{
		"all":         catalog.RunFaults,
		"none":        {catalog.NoFault},
		"all,pause":   catalog.RunFaults,
		"slow, none ": {catalog.NoFault, catalog.Slow},
	} {
		if got, err := new(runSettings).parseFaults(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("parseFaults(%q): got %q, %v, want %q", text, got, err, want)
		}
	}
}

// TestOldFaultNames checks that old names of faults are accepted.
func TestOldFaultNames(t *testing.T) {
	s, err := parseRun([]string{"-strategies", "setnx", "-faults", "expiry,restart,slow", "-only", "setnx/expiry"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []catalog.Fault{catalog.Slow}; !slices.Equal(s.Faults, want) {
		t.Errorf("-faults is %v, want %v", s.Faults, want)
	}
	if len(s.Only) != 1 || s.Only[0].Fault != catalog.Slow {
		t.Errorf("-only is %v", s.Only)
	}
}

const noon = "2026-11-20T12:00:00Z"

// TestBadUsage checks that each wrong command line exits with exitUsage and prints exactly one line.
func TestBadUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for args, want := range map[string]string{
		"-shard 1/4":                     "-shard 1/4: all shards must send to the same instances, so a shard cannot start instances of its own; add -targets URL,URL",
		"-shard 4/4":                     "-shard 4/4: must be I/N, as in 0/4 to 3/4 for four shards",
		"-shard-start noon":              "-shard-start noon: must be a time such as 2026-11-20T21:30:00Z",
		"-shard-start " + noon:           "this flag sets the start time of a shard, and this run is not a shard; add -shard I/N",
		"-shard 1/4 -targets http://h:1": "-shard 1/4: all shards must begin at the same time; add -shard-start TIME, with the same time for all shards",
		"-shard 1/4 -targets http://h:1 -shard-start " + noon:                                               "-shard 1/4: all shards must choose the same orders and drivers; add -seed N",
		"-shard 1/4 -targets http://h:1 -seed 1 -shard-start " + noon:                                       "-shard 1/4: all shards must send to the same orders; open the orders before the run, and name the first one with -first-order ID",
		"-shard 1/4 -targets http://h:1 -seed 1 -first-order 1 -shard-start " + noon:                        "-shard 1/4: each shard must compare its clock with the database clock; add -db DSN",
		"-shard 1/4 -targets http://h:1 -seed 1 -first-order 1 -db x -scenario peak -shard-start " + noon:   "-shard 1/4: the scenario peak cannot be split into shards; use another scenario",
		"-shard 1/4 -targets http://h:1 -seed 1 -first-order 1 -db x -assert expected -shard-start " + noon: "-assert expected: a shard only sends its share of one load, so this flag has no effect; leave out this flag",

		"bogus":                             "there is no command \"bogus\"; there are run, check, init, explore, bench, report, merge, compare, baseline, explain, lab, workshop",
		"run stray":                         "stray: this is not a flag: flags begin with -, and -h lists them",
		"-nosuch":                           "-nosuch: there is no such flag: use -h to list the flags",
		"-rte 5":                            "did you mean -rate?",
		"-scenario rash":                    "-scenario rash: must be one of rush, article, peak, sale",
		"-strategies setnxx":                "did you mean setnx?",
		"-strategies rueidislok":            "did you mean rueidislock?",
		"-strategies pers":                  "did you mean peers?",
		"-strategies foo":                   "there are none, mutex",
		"-strategies none,,setnx":           "-strategies none,,setnx: must be a list of names separated by commas, such as a,b,c",
		"-faults paus":                      "did you mean pause?",
		"-faults earthquake":                "there are none, slow, pause",
		"-faults pause,":                    "-faults pause,: must be a list of names separated by commas, such as a,b,c",
		"-only setnx":                       "-only setnx: must be a strategy and a fault, separated by a slash, such as setnx/pause",
		"-only setnx/paus":                  "did you mean pause?",
		"-only setnx/pause -faults none":    "-strategies or -faults does not include this combination",
		"-faults pause -scenario peak":      "-faults pause: the scenario peak does not support faults; use -faults none",
		"-only setnx/pause -instances 1":    "-instances 1: a test with a fault needs two instances, because the fault hits one of them; use -instances 2 or more",
		"-targets http://h:1 -faults slow":  "-faults slow: loadgen does not know which processes to stop; give their process IDs with -target-pid, or use -faults none",
		"-worker-stacks 0":                  "-worker-stacks 0: must be a whole number from 1 to 16",
		"-only setnxx/none":                 "did you mean setnx?",
		"-strategies none -only setnx/none": "-strategies or -faults does not include this combination",
		"-schedule f":                       "-schedule f: a schedule can be replayed only on the servers that -stack local starts; add -stack local",
		"-schedule f -stack local":          "no such file",
		"-schedule f -stack local -ttl 1s":  "-ttl 1s: with -schedule, the schedule file determines every step; leave out this flag",
		"-seed -1":                          "-seed -1: must be a whole number of 0 or more",
		"-stack remote":                     "-stack remote: must be one of embedded, local, external",
		"-stack external":                   "-stack external: the database for the ledger is missing: add -db DSN",
		"-stack external -db x":             "-stack external: the servers that strategy setnx needs are missing: add -redis ADDR or -sentinel ADDR",
		"-stack external -db x -redis h:1":  "-stack external: the servers that strategy redlock needs are missing: add -redlock with the addresses of at least 3",
		"-stack external -db x -redis h:1 -redlock a:1,b:1,a:1": "-redlock a:1,b:1,a:1: a:1 is named twice: name it once",
		"-stack external -db x -sentinel h:1":                   "-sentinel h:1: the Redis master name is missing; add -sentinel-master NAME",
		"-stack external -db x -sentinel-master m":              "-sentinel-master m: the Sentinel addresses are missing; add -sentinel ADDR",
		"-schedule f -stack local -strategies all":              "-strategies all: a schedule runs with exactly one strategy; name only one",
		"-stack external -db x -redis h:1 -sentinel h:2":        "-sentinel h:2: -sentinel and -redis both say where Redis is; use only one of these flags",
		"-sentinel h:1":                            "-sentinel h:1: only -stack external uses servers that are already running; add -stack external",
		"-redis h:1":                               "-redis h:1: only -stack external uses servers that are already running; add -stack external",
		"-stack local -redlock h:1":                "-redlock h:1: only -stack external uses servers that are already running; add -stack external",
		"-redis-topology cluster":                  "-redis-topology cluster: only -stack local can start several Redis servers; add -stack local",
		"-service x{port} -redis-topology cluster": "-redis-topology cluster: a service that loadgen starts can use only a single Redis; leave out this flag",
		"-db x":                           "-db: only -stack external and -targets use a database that is already running; add -stack external or -targets",
		"-instances 0":                    "-instances 0: must be a whole number from 1 to 64",
		"-targets h:1":                    "-targets h:1: \"h:1\" must be the base URL of an instance, such as http://127.0.0.1:8004 or http://127.0.0.1:8080/shop",
		"-targets ftp://h":                "-targets ftp://h: \"ftp://h\" must be the base URL of an instance, such as http://127.0.0.1:8004 or http://127.0.0.1:8080/shop",
		"-targets http://h:65536":         "-targets http://h:65536: \"http://h:65536\" must be the base URL of an instance, such as http://127.0.0.1:8004 or http://127.0.0.1:8080/shop",
		"-targets http://h:1?x=1":         "-targets http://h:1?x=1: \"http://h:1?x=1\" must be the base URL of an instance, such as http://127.0.0.1:8004 or http://127.0.0.1:8080/shop",
		"-targets http://h:1,http://h:1/": "named twice",
		"-targets eureka:A,http://h:1":    "-targets eureka:A,http://h:1: eureka:A already finds all instances: leave out the other URLs",
		"-otlp h:1":                       "-otlp h:1: \"h:1\" must be the URL of an OpenTelemetry collector, such as http://127.0.0.1:4318",
		"-targets k8s:":                   "-targets k8s:: \"k8s:\" must be a source of instances: ",
		"-targets eureka:A -target-pid 7 -faults pause":        "-target-pid 7: a test with a fault needs two targets, because the fault stops one of them; add another URL to -targets",
		"-targets http://h:1 -stack local":                     "-stack local: with -targets, the instances are already running, so loadgen starts none; leave out this flag",
		"-targets http://h:1 -instances 3":                     "-instances 3: with -targets, the instances are already running, so loadgen starts none; leave out this flag",
		"-first-order 5":                                       "-first-order 5: this flag describes your own service, but no service is named; name the service with -service or -targets",
		"-targets http://h:1 -first-order 0":                   "-first-order 0: must be an order ID, which is a number of 1 or more",
		"-probe-drivers 501":                                   "-probe-drivers 501: this flag describes your own service, but no service is named; name the service with -service or -targets",
		"-targets http://h:1 -first-order 1 -probe-drivers 1":  "-probe-drivers 1: must be the first driver ID for test grabs, from 2 to 9007199254740992",
		"-targets http://h:1 -first-order 1 -probe-drivers 20": "-probe-drivers 20: drivers 1 to 20 take part in the load: choose a number above 20",
		"-targets http://h:1,http://g:1 -target-pid 4711,4712 -faults pause -first-order 1 -probe-drivers 501": "-probe-drivers 501: drivers 1 to 1000 take part in the load: choose a number above 1000",
		"-admin-token x":                                             "-admin-token: this flag describes your own service, but no service is named; name the service with -service or -targets",
		"-path /x/{order}":                                           "-path /x/{order}: this flag describes your own service, but no service is named; name the service with -service or -targets",
		"-ledger-query SELECT":                                       "-ledger-query SELECT: this flag describes your own service, but no service is named; name the service with -service or -targets",
		"-target-file none.yaml":                                     "-target-file none.yaml: open none.yaml: no such file or directory",
		"-expectations none.yaml":                                    "-expectations none.yaml: open none.yaml: no such file or directory",
		"-service x":                                                 "without {port}, all instances would listen on the same port",
		"-service x{port}{redsi}":                                    "did you mean {redis}?",
		"-service x{port} -targets http://h:1":                       "-targets http://h:1: -targets names running instances, but -service starts new ones; use only one of these flags",
		"-service x{port} -stack embedded":                           "-stack embedded: a service that loadgen starts can use only the servers of -stack local; use -stack local",
		"-service x{port} -db u@tcp(h)/d":                            "-db: loadgen creates a new database for a service that it starts; leave out -db, and use placeholders such as {db_host} in the command",
		"-service x{port} -work 5ms":                                 "-work 5ms: the command in -service does not contain {work_ms}, so the service would not get this value; add {work_ms} to the command, or leave out -work",
		"-service x{port} -ttl 5s":                                   "-ttl 5s: the command in -service does not contain {ttl_ms}, so the service would not get this value; add {ttl_ms} to the command, or give the lifetime of the service's lock with -lease",
		"-service x{port}{ttl_ms} -lease 5s":                         "-lease 5s: the command in -service contains {ttl_ms}, so -ttl already sets the lock's lifetime; leave out lease, even in the target file, and pass -ttl instead",
		"-service x{port} -wait 5s":                                  "-wait 5s: this flag configures grabsvc, Grab Lab's service, and not your own; leave out this flag",
		"-service x{port} -instances 1 -faults pause":                "-instances 1: a test with a fault needs two instances, because the fault hits one of them; use -instances 2 or more",
		"-service x{port} -ledger-query UPDATE":                      "the query must begin with SELECT",
		"-ready /up":                                                 "-ready /up: this flag applies only to a service that loadgen starts; add -service COMMAND",
		"-target-pid 7 -faults pause":                                "-target-pid 7: -target-pid names the processes of the targets, but there are no targets; add -targets URL,URL",
		"-targets http://h:1,http://h:2 -target-pid 7,8":             "-target-pid 7,8: process IDs have no effect, because none of the chosen faults stops a process; add -faults pause or -faults crash",
		"-targets http://h:1,http://h:2 -target-pid 7 -faults pause": "-target-pid 7: the number of process IDs differs from the number of targets; give one process ID for each target, in the same order",
		"-targets http://h:1 -target-pid 7 -faults pause":            "-target-pid 7: a test with a fault needs two targets, because the fault stops one of them; add another URL to -targets",
		"-targets http://h:1,http://h:2 -target-pid 7,7":             "7 is named twice",
		"-targets http://h:1,http://h:2 -target-pid 7,07":            "7 is named twice",
		"-targets http://h:1,http://h:2 -target-pid 7,x":             "-target-pid 7,x: \"x\" must be a process ID of 2 or more, such as pgrep prints",
		"-targets http://h:1,http://h:2 -target-pid 7,1":             "-target-pid 7,1: \"1\" must be a process ID of 2 or more, such as pgrep prints",
		"-targets http://h:1,http://h:2 -faults pause":               "-faults pause: loadgen does not know which processes to stop; give their process IDs with -target-pid, or use -faults none",
		"-service x{port} -ready up":                                 "-ready up: must be a path that begins with a slash, such as /healthz",
		"-targets http://h:1 -work 5ms":                              "-work 5ms: loadgen cannot change this setting in instances that are already running; leave out this flag",
		"-targets http://h:1 -ttl 5s":                                "-ttl 5s: loadgen cannot change this setting in instances that are already running; leave out this flag",
		"-targets http://h:1 -wait 5s":                               "-wait 5s: loadgen cannot change this setting in instances that are already running; leave out this flag",
		"-targets http://h:1 -guard naive":                           "-guard naive: loadgen cannot change this setting in instances that are already running; leave out this flag",
		"-targets http://h:1 -ledger-query x":                        "-ledger-query x: the database address is missing; add -db DSN",
		"-targets http://h:1 -db u@tcp(h)/d -ledger-query UPDATE":    "-ledger-query: bad query: the query must begin with SELECT",
		"-targets http://h:1 -db x -ledger-query SELECT(?,?)":        "-db: bad database address",
		"-targets http://h:1 -path /grab":                            "-path: without {order}, every grab would be for the same order",
		"-targets http://h:1 -path /{ordre}":                         "did you mean {order}?",
		"-targets http://h:1 -grabbed ok":                            "write statuses or fields",
		"-targets http://h:1 -grabbed 200 -taken 200":                "-taken: a response with status 200 matches the rules for both grabbed and taken",
		"-targets http://h:1 -header x":                              "must be NAME: VALUE",
		"-targets http://h:1 -open-orders orders":                    "must be a call",
		"-targets http://h:1 -open-orders /orders -first-order 1":    "-first-order 1: -open-orders calls the service, which chooses the order IDs itself; use only one of these flags",
		"-targets http://h:1 -open-orders sql:DELETE -first-order 1": "-open-orders sql:DELETE: the database address is missing; add -db DSN",
		"-targets http://h:1 -compensation 5s":                       "-compensation 5s: only the ledger, which lists the grabs in the database, shows that a grab was undone; add -ledger-query SQL",
		"-targets http://h:1 -open-orders sql:DELETE -db u@tcp(h)/d": "-open-orders sql:DELETE: the SQL statements in -open-orders need the first order ID; add -first-order 1, or the key first-order to the target file",
		"-targets http://h:1 -strategies a -only b/pause":            "-only b/pause: loadgen does not know which processes to stop; give their process IDs with -target-pid, or use -faults none",
		"-scenario peak -warmup 1s":                                  "-warmup 1s: the scenario peak needs no warm-up, because each of its steps warms up the next one; leave out this flag",
		"-stock 0":                                                   "-stock 0: must be a whole number from 1 to 1000000",
		"-stock 2 -scenario peak":                                    "-stock 2: in the scenario peak, every order has one unit; leave out this flag",
		"-stock 21 -faults pause":                                    "-faults pause: a test with a fault would need too many drivers, because each unit needs its own driver; use -stock 20 or less, or -faults none",
		"-targets http://h:1 -stock 2 -faults pause":                 "-faults pause: with your own service, a test with a fault needs orders of one unit; leave out -stock, or use -faults none",
		"-scenario sale -faults pause":                               "-faults pause: a fault needs orders with few drivers, but the scenario sale sends 2,000 drivers to one order; use -faults none, or another",
		"-scenario sale -stock 2 -only setnx/pause":                  "-only setnx/pause: a fault needs orders with few drivers, but the scenario sale sends 2,000 drivers to one order; use -faults none, or ano",
		"-per-driver 2":                                              "-per-driver 2: a driver can get several units only from an order that has several units; add -stock with a number of 2 or more",
		"-stock 2 -per-driver 0":                                     "-per-driver 0: must be a whole number from 1 to 1000000",
		"-targets http://h:1 -stock 2 -per-driver 2":                 "-per-driver 2: loadgen cannot change this setting in instances that are already running; leave out this flag",
		"-orders 0":                      "-orders 0: must be a whole number from 1 to 1000000",
		"-orders 1e3":                    "-orders 1e3: must be a whole number from 1 to 1000000",
		"-drivers 0":                     "-drivers 0: must be a whole number from 1 to 100000000",
		"-orders 1000000 -drivers 200":   "more than 100000000 requests",
		"-orders 1000001":                "-orders 1000001: must be a whole number from 1 to 1000000",
		"-rate 1e-9":                     "from 0.001 to 1000000",
		"-rate 0":                        "from 0.001 to 1000000",
		"-rate -1":                       "from 0.001 to 1000000",
		"-rate NaN":                      "from 0.001 to 1000000",
		"-rate +Inf":                     "from 0.001 to 1000000",
		"-rate fast":                     "from 0.001 to 1000000",
		"-duration 5":                    "-duration 5: must be a duration such as 30s, 500ms or 1m30s",
		"-duration 0s":                   "-duration 0s: must be at least 1ms",
		"-duration 5s -orders 3":         "-duration 5s: -orders and -duration both set the number of orders; use only one of these flags",
		"-duration 5s -scenario article": "-duration 5s: this scenario sends all requests at once, so a duration has no effect; add -rate",
		"-duration 99999h":               "more than 100000000 requests",
		"-timeout 0":                     "-timeout 0: must be at least 1ms",
		"-timeout 2h":                    "-timeout 2h: must be at most 1h0m0s",
		"-max-workers 0":                 "-max-workers 0: must be a whole number from 1 to 1000000",
		"-repeat 0":                      "-repeat 0: must be a whole number from 1 to 1000",
		"-repeat 2 -scenario peak":       "-repeat 2: this flag does not work with -scenario peak, which is one long search for the highest rate; leave out this flag",
		"-repeat 2 -faults pause":        "-repeat 2: only tests without a fault are repeated, and this run has none; add the word none to -faults",
		"-p99 5ms":                       "-p99 5ms: only the scenario peak uses this limit; add -scenario peak",
		"-budget 5s":                     "-budget 5s: this flag sets a time limit for the scenario peak and for tests with a fault, but this run has neither; add -scenario peak or -faults",
		"-scenario peak -rate 5":         "-rate 5: the scenario peak searches for the highest rate by itself; leave out this flag",
		"-work -1ms":                     "-work -1ms: must be at least 0s",
		"-ttl 0":                         "-ttl 0: must be at least 1ms",
		"-wait -1s":                      "-wait -1s: must be at least 0s",
		"-wait soon":                     "-wait soon: must be a duration such as 30s, 500ms or 1m30s",
		"-guard strict":                  "-guard strict: must be one of naive, guarded, fence-write, fenced, decrement, unique",
		"-guard fenced":                  "-guard fenced: strategy mutex has no fencing tokens: use another guard, or strategies with tokens such as setnx-fenced",
		"-guard fence-write -strategies none,setnx": "-guard fence-write: strategy setnx has no fencing tokens: use another guard, or strategies with tokens such as setnx-fenced",
		"-on-lost panic":                "-on-lost panic: must be one of abort, ignore",
		"-clock-offset 1":               "-clock-offset 1: must be a duration such as 30s, 500ms or 1m30s",
		"-clock-offset 1s -instances 1": "-clock-offset 1s: this flag sets the second instance's clock, but the run has only one instance; use -instances 2 or more",
		"-out=":                         "-out: must not be empty",
		"-format xml":                   "-format xml: must be one of text, json",
		"-assert grabs":                 "must be FIELD OP NUMBER",
		"-assert grab==1":               `no field "grab"; did you mean grabs?`,
		"-assert foreign:grabs==1":      "-assert foreign:grabs==1: the run does not include this strategy or fault: use a strategy and a fault of the run",
		"-strategies none -assert setnx:grabs==1":                       "-assert setnx:grabs==1: the run does not include this strategy or fault: use a strategy and a fault of the run",
		"-assert setnx/pause:grabs==1":                                  "-assert setnx/pause:grabs==1: the run does not include this strategy or fault: use a strategy and a fault of the run",
		"-only setnx/pause -only none/slow -assert none/pause:grabs==1": "-assert none/pause:grabs==1: the run does not include this strategy or fault: use a strategy and a fault of the run",
		"-targets http://127.0.0.1:1,http://127.0.0.1:2 -target-pid 77,78 -faults crash -assert foreign/pause:grabs==1": "the run does not include this strategy or fault",
		"-junit .": "-junit .: is a folder: give the path of a file",
		"-strategies none -only none/none -only nosuch/none": `-only nosuch/none: there is no strategy "nosuch"`,
		"-strategies nosuch -strategies mutexx":              `-strategies mutexx: there is no strategy "mutexx"; did you mean mutex?`,
		"-quiet=maybe":                                       "-quiet maybe: must be true or false",
		"report":                                             "report: no result folder was given: name one, as in loadgen report results/latest",
		"report -fromat json nowhere":                        "did you mean -format?",
		"-service x{port} -path /{order_uuid} -open-orders /o -ledger-query SELECT(1)": "-ledger-query: the service chooses the order IDs, so the query must list them: use WHERE order_id IN ({orders})",
		"report nowhere":             "nowhere has no run.json",
		"report -format pdf nowhere": "-format pdf: must be one of text, markdown, html, json",
	} {
		var stdout, stderr bytes.Buffer
		code := exitOf(context.Background(), strings.Fields(args), &stdout, &stderr)
		if code != int(exitUsage) || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit %d, %q, want 2, …%s…", args, code, &stderr, want)
		}
		if strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "loadgen: ") || stdout.Len() > 0 {
			t.Errorf("%s: want exactly one line on stderr and nothing on stdout, got %q, %q", args, &stderr, &stdout)
		}
	}
}

// TestLastFlagCounts checks that the last of several flags with the same name counts, even if an earlier
// one had an invalid value.
func TestLastFlagCounts(t *testing.T) {
	s, err := parseRun(strings.Fields("-strategies nosuch -strategies none -faults all -faults pause"))
	if err != nil || len(s.Strategies) != 1 || s.Strategies[0].Name != "none" || !slices.Equal(s.Faults, []catalog.Fault{catalog.Pause}) || s.allFaults {
		t.Errorf("parseRun: %+v, %v", s, err)
	}
}

// TestBadPoint checks that -at is refused if its value is not a point of a grab. It must also be
// refused if the run has no fault to inject there.
func TestBadPoint(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		at, with string
		want     string
	}{
		{"", "-faults pause", "is not a point of a grab"},
		{"before claim", "-faults pause", `"before claim" is not a point of a grab: use "before claim 1"`},
		{"before clam 1", "-faults pause", "is not a point of a grab"},
		{"waitng: before claim 1", "-faults pause", `use "waiting" or "handing over"`},
		{"before acquire 1 at redlock-1", "-faults pause", `is not a point of a grab`},
		{"before claim 1", "", "this flag says where to inject a fault, but the run has no fault"},
		{"before claim 1", "-only setnx/none", "the run has no fault"},
		{"before claim 1", "-scenario peak", "the run has no fault"},
		{"before claim 1", targets, "-at before claim 1: loadgen cannot pause a grab at a chosen point"},
		{"before claim 1", targets + " -faults pause", "loadgen does not know which processes to stop"},
		{"before claim 1", "-schedule f -stack local", "-at before claim 1: with -schedule, the schedule file determines"},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"-at", tt.at}, strings.Fields(tt.with)...)
		code := exitOf(context.Background(), args, &stdout, &stderr)
		if code != int(exitUsage) || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%q: exit %d, %q, want 2, …%s…", args, code, &stderr, tt.want)
		}
		if strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "loadgen: ") || stdout.Len() > 0 {
			t.Errorf("%q: want exactly one line on stderr and nothing on stdout, got %q, %q", args, &stderr, &stdout)
		}
	}
	for _, with := range []string{"-faults pause", "-only setnx/pause", "-faults none,pause"} {
		if _, err := parseRun(append([]string{"-at", "after read"}, strings.Fields(with)...)); err != nil {
			t.Errorf("-at with %s: %v", with, err)
		}
	}
}

// TestGoodUsage checks command lines that could be refused by mistake. For example, a strategy with a
// fixed guard accepts -guard fenced, and targets can turn out to have no strategies.
func TestGoodUsage(t *testing.T) {
	for _, args := range []string{
		"-guard fenced -strategies none",
		"-targets http://h:1 -assert foreign:double_grabs==0",
		"-targets http://h:1 -db u:p@tcp(h)/d -ledger-query SELECT(?,?)",
		"-targets http://h:1/shop/v2 -strategies RLock,fair",
		"-targets http://h:1 -only RLock/none -assert RLock:double_grabs==0",
		"-stack external -db x -strategies none",
		"-faults all -strategies all -stack local -assert expected -assert setnx/pause:double_grabs>0",
		"-only setnx/pause -budget 10s",
		"-targets http://h:1 -faults none",
		"-scenario peak -faults none",
		"-quiet",
	} {
		if _, err := parseRun(strings.Fields(args)); err != nil {
			t.Errorf("parseRun(%s): %v", args, err)
		}
	}
}

// TestHelp checks that the overview fits on one screen. The help of run must list only the ten most used
// flags, and "all" must list every flag.
func TestHelp(t *testing.T) {
	help := func(args string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := exitOf(context.Background(), strings.Fields(args), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%s: exit %d, %q", args, code, &stderr)
		}
		for line := range strings.Lines(stdout.String()) {
			if n := len([]rune(line)); n > 101 && !strings.Contains(line, "{") {
				t.Errorf("%s: a line has %d characters: %s", args, n, line)
			}
		}
		return stdout.String()
	}
	for _, args := range []string{"-h", "-help", "--help", "help"} {
		text := help(args)
		if n := strings.Count(text, "\n"); n > 30 || strings.Count(text, "\n  loadgen ") != 5 {
			t.Errorf("%s prints %d lines:\n%s", args, n, text)
		}
		for _, c := range commands() {
			if strings.Contains(text, "\n  "+c.name+" ") != (c.about != "") {
				t.Errorf("%s: the command %s is missing or should be hidden", args, c.name)
			}
		}
	}
	for _, args := range []string{"run -h", "help run", "-rate 5 -h"} {
		if n := strings.Count(help(args), "\n  -"); n != 10 || len(commonFlags) != 10 {
			t.Errorf("%s lists %d flags", args, n)
		}
	}
	all := help("run -h all")
	if help("help run all") != all {
		t.Error("help run all differs from run -h all")
	}
	for _, f := range defaults("rush").flags() {
		if strings.Contains(all, "\n  -"+strings.TrimSpace(f.Name+" "+f.Arg)) != (f.About != "") {
			t.Errorf("run -h all: -%s is missing or should be hidden", f.Name)
		}
	}
	if text := help("report -h"); !strings.Contains(text, "markdown") {
		t.Errorf("report -h: %q", text)
	}
	if _, err := parseRun([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h is %v", err)
	}
}

// TestHelpTables checks the first column of the flag table in the help of every command. It must contain the
// name of the flag and a placeholder in capital letters, but no part of the help text.
func TestHelpTables(t *testing.T) {
	row := regexp.MustCompile(`^  -[a-z0-9-]+( [A-Z][A-Z,…/|:]*( (->|[A-Z]+))*)?(  +\S|$)`)
	for _, c := range commands() {
		if c.about == "" {
			continue
		}
		var stdout, stderr bytes.Buffer
		exitOf(context.Background(), []string{c.name, "-h", "all"}, &stdout, &stderr)
		for line := range strings.Lines(stdout.String()) {
			if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "  -") && !row.MatchString(line) {
				t.Errorf("%s: the help has the line %q, want a flag, its placeholder and its help text", c.name, line)
			}
		}
	}
}

// TestNamesKeepTheirOrder checks that a service's strategies run in the order of the words in
// -strategies. A word can stand for several strategies, and a repeated word counts once.
func TestNamesKeepTheirOrder(t *testing.T) {
	meaning := map[string][]string{"core": core, "peers": catalog.Map(lock.Peers, nameOf), "mine": {"mine"}, "other": {"other"}}
	for _, words := range [][]string{{"mine", "core"}, {"core", "mine"}, {"peers", "mine", "core"}, {"mine", "peers", "other"}, {"core", "core", "peers"}} {
		s := &runSettings{strategyWords: words}
		s.Target.URLs = []string{"http://h:1"}
		if err := s.chooseNames(); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, word := range catalog.Distinct(words) {
			want = append(want, meaning[word]...)
		}
		if !slices.Equal(s.Target.Strategies, want) {
			t.Errorf("%q stands for %q, want %q", words, s.Target.Strategies, want)
		}
	}
}

// TestBenchNames checks the groups of locks: ours stands for the locks of this project, peers for those
// of other libraries, and all for both groups.
func TestBenchNames(t *testing.T) {
	for word, belongs := range map[string]func(lockbench.Subject) bool{
		"ours": func(c lockbench.Subject) bool { return !c.Peer }, "peers": func(c lockbench.Subject) bool { return c.Peer },
		"all": func(lockbench.Subject) bool { return true }, "setnx": func(c lockbench.Subject) bool { return c.Name == "setnx" },
	} {
		name := func(c lockbench.Subject) string { return c.Name }
		got, err := parseSubjects(word)
		want := catalog.Map(catalog.Filter(lockbench.Subjects(), belongs), name)
		if err != nil || len(want) == 0 || !slices.Equal(catalog.Map(got, name), want) {
			t.Errorf("subjects for %s: %q, want %q: %v", word, catalog.Map(got, name), want, err)
		}
	}
}
