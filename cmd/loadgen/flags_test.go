package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"
	"grablab/internal/order"
	"grablab/internal/service/control"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// sample is a flag with what it must change in a run of scenario rush.
type sample struct {
	value string
	also  string // what it cannot be combined without
	want  func(*settings)
}

var samples = map[string]sample{
	"scenario":   {"article", "", func(s *settings) { *s = *defaults("article") }},
	"strategies": {"setnx, none", "", func(s *settings) { s.Strategies = strategies("setnx", "none") }},
	"faults":     {"crash,none,pause,crash", "", func(s *settings) { s.Faults = []catalog.Fault{catalog.NoFault, catalog.Pause, catalog.Crash} }},
	"only": {"setnx/pause", "", func(s *settings) {
		s.Strategies, s.Faults, s.Only = strategies("setnx"), []catalog.Fault{catalog.Pause}, []experiment.CellName{{Strategy: "setnx", Fault: catalog.Pause}}
	}},
	"at": {"handing over: before release 1", "-faults pause", func(s *settings) {
		s.At = &fault.Point{Role: fault.HandingOver, Point: control.Point{Phase: tap.Release, N: 1}}
	}},
	"seed":      {"42", "", func(s *settings) { s.Seed = 42 }},
	"stack":     {"local", "", func(s *settings) { s.Stack.Kind = "local" }},
	"db":        {"u:p@tcp(h:1)/d", external, func(*settings) {}},
	"redis":     {"h:1", external, func(s *settings) { s.Stack.Redis = "h:1" }},
	"redlock":   {"h:1, h:2,h:3", external, func(s *settings) { s.Stack.Redlock = []string{"h:1", "h:2", "h:3"} }},
	"sentinel":  {"h:1, h:2", external + " -sentinel-master m", func(s *settings) { s.Stack.Sentinel = []string{"h:1", "h:2"} }},
	"instances": {"3", "", func(s *settings) { s.Instances = 3 }},
	"service": {"x {port}", "", func(s *settings) {
		service, _ := fleet.ParseService("x {port}")
		s.Service, s.Together = &service, s.Rate > 0 && !s.given["rate"]
		started(s)
	}},
	"ready": {"/up", "-service x{port}", func(s *settings) {
		s.ready, s.Service.Ready = "/up", "/up"
		started(s)
	}},
	"targets": {"http://h:1/,https://h:2/shop/", "", func(s *settings) {
		s.Target.URLs, s.Together = []string{"http://h:1", "https://h:2/shop"}, s.Rate > 0 && !s.given["rate"]
	}},
	"target-pid": {"7,8", "-targets http://h:1,http://h:2 -faults pause", func(s *settings) {
		s.Target.PIDs, s.Workers, s.Budget = []int{7, 8}, 1, serviceBudget
	}},
	"path":         {"/g/{order}", targets, func(s *settings) { s.spec.Path = "/g/{order}" }},
	"method":       {"put", targets, func(s *settings) { s.spec.Method = "PUT" }},
	"body":         {"{driver}", targets, func(s *settings) { s.spec.Body = new("{driver}") }},
	"header":       {"A: {driver}", targets, func(s *settings) { s.spec.Headers = []string{"A: {driver}"} }},
	"grabbed":      {"json:.code==0", targets, func(s *settings) { s.spec.Grabbed = "json:.code==0" }},
	"taken":        {"409,410", targets, func(s *settings) { s.spec.Taken = "409,410" }},
	"busy":         {"429", targets, func(s *settings) { s.spec.Busy = "429" }},
	"open-orders":  {"/orders", targets, func(s *settings) { s.spec.OpenOrders = []string{"/orders"} }},
	"ledger-query": {"SELECT ? ?", targets + " -db u:p@tcp(h:1)/d", func(s *settings) { s.query = "SELECT ? ?" }},
	"lease":        {"7s", targets, func(s *settings) { s.Target.Lease = 7 * time.Second }},
	"first-order":  {"7", targets, func(s *settings) { s.Target.FirstOrder = 7 }},
	"admin-token":  {"x", targets, func(s *settings) { s.Target.Token = "x" }},
	"repeat":       {"7", "", func(s *settings) { s.Repeat = 7 }},
	"warmup":       {"7s", "", func(s *settings) { s.Warmup = 7 * time.Second }},
	"orders":       {"3", "", func(s *settings) { s.Orders = 3 }},
	"drivers":      {"4", "", func(s *settings) { s.Drivers = 4 }},
	"stock":        {"5", "", func(s *settings) { s.Stock = 5 }},
	"per-driver":   {"2", "-stock 5", func(s *settings) { s.Stock, s.PerDriver = 5, 2 }},
	"rate":         {"12.5", "", func(s *settings) { s.Rate = 12.5 }},
	"duration":     {"10s", "-rate 100", func(s *settings) { s.Rate, s.Duration, s.Orders = 100, 10*time.Second, max(1, 1000/s.Drivers) }},
	"timeout":      {"4s", "", func(s *settings) { s.Timeout, s.Asked.Timeout = 4*time.Second, true }},
	"max-workers":  {"4", "", func(s *settings) { s.MaxWorkers = 4 }},
	"p99":          {"7ms", "-scenario peak", func(s *settings) { s.Peak.P99 = 7 * time.Millisecond }},
	"budget":       {"7s", "-scenario peak", func(s *settings) { s.Budget = 7 * time.Second }},
	"work":         {"7ms", "", func(s *settings) { s.Work, s.Asked.Work = 7*time.Millisecond, true }},
	"ttl":          {"7s", "", func(s *settings) { s.TTL, s.Asked.TTL = 7*time.Second, true }},
	"wait":         {"0", "", func(s *settings) { s.Wait, s.Asked.Wait = 0, true }},
	"guard":        {"guarded", "", func(s *settings) { s.Guard = order.Guarded }},
	"on-lost":      {"ignore", "", func(s *settings) { s.OnLost = grab.Ignore }},
	"clock-offset": {"-3s", "", func(s *settings) { s.ClockOffset = -3 * time.Second }},
	"out":          {"x/y", "", func(s *settings) { s.Out = "x/y" }},
	"format":       {"json", "", func(s *settings) { s.format = "json" }},
	"assert": {"setnx:grabs<5", "", func(s *settings) {
		s.asserts = []experiment.Assert{{Strategy: "setnx", Figure: "grabs", Op: "<", Number: 5}}
	}},
	"sentinel-master": {"n", external + " -sentinel h:1", func(s *settings) { s.Stack.SentinelMaster = "n" }},
	"zk":              {"z:1,y:2", external, func(s *settings) { s.Stack.ZooKeeper = []string{"z:1", "y:2"} }},
	"etcd":            {"e:1", external, func(s *settings) { s.Stack.Etcd = []string{"e:1"} }},
	"quiet":           {"true", "", func(s *settings) { s.quiet = true }},
}

// started is what follows from a -service.
func started(s *settings) {
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

// fields is what can be compared of settings: functions cannot.
func fields(s *settings) any {
	c := *s
	c.given, c.unrecorded, c.Args = nil, nil, nil
	c.chosen, c.notes = nil, nil // what becomes of them is in other fields, or printed
	c.Target.Shape, c.Target.Open, c.Target.Database, c.Target.Strategies = nil, nil, target.Database{}, nil
	var names []string
	for _, st := range c.Strategies {
		names = append(names, st.Name)
	}
	c.Strategies, c.Stack.Needs, c.Stack.Log = nil, 0, nil
	return struct {
		settings
		names []string
	}{c, names}
}

// Every flag sets its field and no other, in every scenario, wherever it
// stands in the line.
func TestFlagsOverrideScenarios(t *testing.T) {
	for _, topic := range defaults("rush").topics() {
		for _, o := range topic.options {
			if _, ok := samples[o.name]; !ok && !slices.Contains([]string{"resume", "schedule", "target-file", "expectations"}, o.name) { // which have tests of their own
				t.Errorf("-%s has no sample", o.name)
			}
		}
	}
	refuses := map[string][]string{
		"peak": {"target-pid", "repeat", "warmup", "rate", "orders", "duration", "faults", "only", "at", "stock", "per-driver"},
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
			if err := want.parse(base); err != nil {
				t.Fatal(err)
			}
			sample.want(want)

			arg := "-" + name + "=" + sample.value
			for _, args := range [][]string{append([]string{arg}, base...), append(slices.Clone(base), arg)} {
				got, err := parseRun(args)
				if err != nil {
					t.Errorf("%q: %v", args, err)
				} else if !reflect.DeepEqual(fields(got), fields(want)) {
					t.Errorf("%q:\ngot  %+v\nwant %+v", args, fields(got), fields(want))
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
			t.Errorf("%s: got %+v, want %+v", name, fields(got), fields(want))
		}
		if got.Scenario != name || got.Drivers == 0 || got.MaxWorkers == 0 || got.Timeout == 0 {
			t.Errorf("%s leaves something open: %+v", name, fields(got))
		}
	}
}

func TestNeedsAreThoseOfTheStrategies(t *testing.T) {
	for chosen, want := range map[string]lock.Backend{
		"none": 0, "setnx": lock.Redis, "setnx,redlock": lock.Redis | lock.RedisQuorum,
	} {
		s, err := parseRun([]string{"-strategies", chosen})
		if err != nil || s.Stack.Needs != want {
			t.Errorf("%s: got %b, %v, want %b", chosen, s.Stack.Needs, err, want)
		}
	}
}

// Without a seed every run draws its own.
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
		"none,none":        {"none"},
		"redlock,core":     {"redlock", "none", "mutex", "setnx", "watchdog"},
		" setnx , mutex  ": {"setnx", "mutex"},
	} {
		var got []string
		list, err := parseStrategies(text)
		for _, s := range list {
			got = append(got, s.Name)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestOnly(t *testing.T) {
	for args, want := range map[string]string{
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
			t.Errorf("%s: %v", args, err)
			continue
		}
		var got []string
		for _, c := range s.Plan() {
			got = append(got, c.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
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
		if got, err := new(settings).parseFaults(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

// An old name of a fault is taken, and its present one is told, once.
func TestOldFaultNames(t *testing.T) {
	s, err := parseRun([]string{"-strategies", "setnx", "-faults", "expiry,restart,slow", "-only", "setnx/expiry"})
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	s.notes.print(&told)
	if want := "expiry is now called slow\nrestart is now called redis-restart\n"; told.String() != want {
		t.Errorf("told %q, want %q", &told, want)
	}
	if len(s.Only) != 1 || s.Only[0].Fault != catalog.Slow {
		t.Errorf("-only is %v", s.Only)
	}
}

// Every wrong flag is told in one sentence and exit code 2, before anything is
// started or written.
func TestBadUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for args, want := range map[string]string{
		"bogus":                             `no command "bogus"; there are run, bench, explore, report`,
		"run stray":                         `"stray" is no flag`,
		"-nosuch":                           "no flag -nosuch; -h lists them",
		"-rte 5":                            "did you mean -rate?",
		"-scenario rash":                    "want one of rush, article, peak",
		"-strategies setnxx":                "did you mean setnx?",
		"-strategies rueidislok":            "did you mean rueidislock?",
		"-strategies pers":                  "did you mean peers?",
		"-strategies foo":                   "there are none, mutex",
		"-strategies none,,setnx":           "none of them empty",
		"-faults paus":                      "did you mean pause?",
		"-faults earthquake":                "there are none, slow, pause",
		"-faults pause,":                    "none of them empty",
		"-only setnx":                       "want STRATEGY/FAULT",
		"-only setnx/paus":                  "did you mean pause?",
		"-only setnx/pause -faults none":    "not among -strategies and -faults",
		"-faults pause -scenario peak":      "cannot be combined with -scenario peak",
		"-only setnx/pause -instances 1":    "must be 2 or more",
		"-targets http://h:1 -faults slow":  "not ours to strike",
		"-worker-stacks 0":                  "want a whole number from 1",
		"-only setnxx/none":                 "did you mean setnx?",
		"-strategies none -only setnx/none": "not among -strategies",
		"-schedule f":                       "-schedule goes with -stack local",
		"-schedule f -stack local":          "no such file",
		"-schedule f -stack local -ttl 1s":  "-ttl cannot be combined with -schedule",
		"-seed -1":                          "want a whole number",
		"-stack remote":                     "want one of embedded, local, external",
		"-stack external":                   "needs -db",
		"-stack external -db x":             "strategy setnx needs -redis",
		"-stack external -db x -redis h:1":  "strategy redlock needs -redlock with 3",
		"-stack external -db x -redis h:1 -redlock a:1,b:1,a:1": "names a node twice",
		"-stack external -db x -sentinel h:1":                   "needs -sentinel-master NAME",
		"-stack external -db x -sentinel-master m":              "needs -sentinel ADDR",
		"-schedule f -stack local -strategies all":              "one of -strategies at a time",
		"-stack external -db x -redis h:1 -sentinel h:2":        "cannot be combined with -redis",
		"-sentinel h:1":                                  "goes with -stack external",
		"-redis h:1":                                     "goes with -stack external",
		"-stack local -redlock h:1":                      "goes with -stack external",
		"-db x":                                          "goes with -stack external or -targets",
		"-instances 0":                                   "want a whole number from 1",
		"-targets h:1":                                   "want the base URL",
		"-targets ftp://h":                               "want the base URL",
		"-targets http://h:65536":                        "want the base URL",
		"-targets http://h:1?x=1":                        "want the base URL",
		"-targets http://h:1,http://h:1/":                "named twice",
		"-targets http://h:1 -stack local":               "-stack cannot be combined with -targets",
		"-targets http://h:1 -instances 3":               "-instances cannot be combined with -targets",
		"-first-order 5":                                 "goes with -service or -targets",
		"-targets http://h:1 -first-order 0":             "want the id of an order",
		"-admin-token x":                                 "goes with -service or -targets",
		"-path /x/{order}":                               "-path goes with -service or -targets",
		"-ledger-query SELECT":                           "-ledger-query goes with -service or -targets",
		"-target-file none.yaml":                         "-target-file: open none.yaml",
		"-expectations none.yaml":                        "-expectations: open none.yaml",
		"-service x":                                     "{port} does not stand in it",
		"-service x{port}{redsi}":                        "did you mean {redis}?",
		"-service x{port} -targets http://h:1":           "-targets cannot be combined with -service",
		"-service x{port} -stack embedded":               "-stack must be local with -service",
		"-service x{port} -db u@tcp(h)/d":                "-db cannot be combined with -service",
		"-service x{port} -work 5ms":                     "-work has no effect: {work_ms}",
		"-service x{port} -ttl 5s":                       "-ttl has no effect: {ttl_ms}",
		"-service x{port}{ttl_ms} -lease 5s":             "-lease has no effect: {ttl_ms}",
		"-service x{port} -wait 5s":                      "-wait has no effect on a -service",
		"-service x{port} -instances 1 -faults pause":    "must be 2 or more",
		"-service x{port} -ledger-query UPDATE":          "want one that begins with SELECT",
		"-ready /up":                                     "-ready goes with -service",
		"-target-pid 7 -faults pause":                    "-target-pid goes with -targets",
		"-targets http://h:1,http://h:2 -target-pid 7,8": "-target-pid has no effect without -faults pause or crash",
		"-targets http://h:1,http://h:2 -target-pid 7 -faults pause": "1 for 2 are named",
		"-targets http://h:1 -target-pid 7 -faults pause":            "needs two -targets or more",
		"-targets http://h:1,http://h:2 -target-pid 7,7":             "7 is named twice",
		"-targets http://h:1,http://h:2 -target-pid 7,x":             `"x": want the id of a process`,
		"-targets http://h:1,http://h:2 -target-pid 7,1":             `"1": want the id of a process`,
		"-targets http://h:1,http://h:2 -faults pause":               "unless the fault is none or -target-pid names their processes",
		"-service x{port} -ready up":                                 "want a path",
		"-targets http://h:1 -work 5ms":                              "-work has no effect on -targets",
		"-targets http://h:1 -ttl 5s":                                "-ttl has no effect on -targets",
		"-targets http://h:1 -wait 5s":                               "-wait has no effect on -targets",
		"-targets http://h:1 -guard naive":                           "-guard has no effect on -targets",
		"-targets http://h:1 -ledger-query x":                        "-ledger-query needs -db",
		"-targets http://h:1 -db u@tcp(h)/d -ledger-query UPDATE":    "-ledger-query: ledger: bad query: want one that begins with SELECT",
		"-targets http://h:1 -db x -ledger-query SELECT(?,?)":        "-db: ledger: bad database address",
		"-targets http://h:1 -path /grab":                            "-path: {order} stands neither there",
		"-targets http://h:1 -path /{ordre}":                         "did you mean {order}?",
		"-targets http://h:1 -grabbed ok":                            "want statuses and fields",
		"-targets http://h:1 -grabbed 200 -taken 200":                "-taken: an answer of 200 would be both grabbed and taken",
		"-targets http://h:1 -header x":                              "want NAME: VALUE",
		"-targets http://h:1 -open-orders orders":                    "want a call",
		"-targets http://h:1 -open-orders /orders -first-order 1":    "-first-order has no effect with a call of -open-orders",
		"-targets http://h:1 -open-orders sql:DELETE -first-order 1": "-open-orders needs -db",
		"-targets http://h:1 -open-orders sql:DELETE -db u@tcp(h)/d": "-open-orders needs -first-order",
		"-targets http://h:1 -strategies a -only b/pause":            "not ours to strike",
		"-scenario peak -warmup 1s":                                  "-warmup cannot be combined with -scenario peak",
		"-stock 0":                                                   "want a whole number from 1 to 1000000",
		"-stock 2 -scenario peak":                                    "-stock cannot be combined with -scenario peak",
		"-stock 21 -faults pause":                                    "-faults cannot be combined with -stock 21 or more",
		"-targets http://h:1 -stock 2 -faults pause":                 "-faults cannot be combined with -stock 2 or more of a -service or -targets",
		"-scenario sale -faults pause":                               "-faults cannot be combined with -scenario sale",
		"-scenario sale -stock 2 -only setnx/pause":                  "-only cannot be combined with -scenario sale",
		"-per-driver 2":                              "-per-driver has no effect without -stock 2",
		"-stock 2 -per-driver 0":                     "want a whole number from 1",
		"-targets http://h:1 -stock 2 -per-driver 2": "-per-driver has no effect on -targets",
		"-orders 0":                                  "want a whole number from 1",
		"-orders 1e3":                                "want a whole number from 1",
		"-drivers 0":                                 "want a whole number from 1",
		"-orders 1000000 -drivers 200":               "more than 100000000 requests",
		"-orders 1000001":                            "want a whole number from 1 to 1000000",
		"-rate 1e-9":                                 "from 0.001 to 1000000",
		"-rate 0":                                    "from 0.001 to 1000000",
		"-rate -1":                                   "from 0.001 to 1000000",
		"-rate NaN":                                  "from 0.001 to 1000000",
		"-rate +Inf":                                 "from 0.001 to 1000000",
		"-rate fast":                                 "from 0.001 to 1000000",
		"-duration 5":                                "want a duration",
		"-duration 0s":                               "want 1ms or more",
		"-duration 5s -orders 3":                     "cannot be combined with -orders",
		"-duration 5s -scenario article":             "needs -rate",
		"-duration 99999h":                           "more than 100000000 requests",
		"-timeout 0":                                 "want 1ms or more",
		"-timeout 2h":                                "want 1h0m0s or less",
		"-max-workers 0":                             "want a whole number from 1",
		"-repeat 0":                                  "want a whole number from 1",
		"-repeat 2 -scenario peak":                   "cannot be combined with -scenario peak, which searches once",
		"-repeat 2 -faults pause":                    "has no effect: no cell is without a fault",
		"-p99 5ms":                                   "goes with -scenario peak",
		"-budget 5s":                                 "goes with -scenario peak",
		"-scenario peak -rate 5":                     "searches the rate by itself",
		"-work -1ms":                                 "want 0s or more",
		"-ttl 0":                                     "want 1ms or more",
		"-wait -1s":                                  "want 0s or more",
		"-wait soon":                                 "want a duration",
		"-guard strict":                              "want one of naive, guarded, fence-write, fenced",
		"-guard fenced":                              "strategy mutex hands out none",
		"-guard fence-write -strategies none,setnx": "strategy setnx hands out none",
		"-on-lost panic":                "want one of abort, ignore",
		"-clock-offset 1":               "want a duration",
		"-clock-offset 1s -instances 1": "needs -instances 2",
		"-out=":                         "not empty",
		"-format xml":                   "want one of text, json",
		"-assert grabs":                 "want FIELD OP NUMBER",
		"-assert grab==1":               `no field "grab"; did you mean grabs?`,
		"-assert foreign:grabs==1":      "no cell that is run",
		"-strategies none -assert setnx:grabs==1":                       "no cell that is run",
		"-assert setnx/pause:grabs==1":                                  "no cell that is run",
		"-only setnx/pause -only none/slow -assert none/pause:grabs==1": "no cell that is run",
		"-quiet=maybe":                "want true or false",
		"report":                      "needs a result folder",
		"report nowhere":              "nowhere has no run.json",
		"report -format pdf nowhere":  "want one of text, markdown, html, json",
		"report -fromat json nowhere": "did you mean -format?",
	} {
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), strings.Fields(args), &stdout, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit %d, %q, want 2, …%s…", args, code, &stderr, want)
		}
		if strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "loadgen: ") || stdout.Len() > 0 {
			t.Errorf("%s: not one line alone: %q, %q", args, &stderr, &stdout)
		}
	}
}

// So is a wrong point, or one that no fault is to strike at.
func TestBadPoint(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		at, with string
		want     string
	}{
		{"", "-faults pause", "is no point of a grab"},
		{"before claim", "-faults pause", `"before claim" is no point of a grab; one is "before claim 1"`},
		{"before clam 1", "-faults pause", "is no point of a grab"},
		{"waitng: before claim 1", "-faults pause", `one may be "waiting" or "handing over"`},
		{"before acquire 1 at redlock-1", "-faults pause", `is no point of a grab`},
		{"before claim 1", "", "-at needs -faults"},
		{"before claim 1", "-only setnx/none", "-at needs -faults"},
		{"before claim 1", "-scenario peak", "-at needs -faults"},
		{"before claim 1", targets, "-at cannot be combined with -targets"},
		{"before claim 1", targets + " -faults pause", "cannot be combined with -targets"},
		{"before claim 1", "-schedule f -stack local", "-at cannot be combined with -schedule"},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"-at", tt.at}, strings.Fields(tt.with)...)
		code := run(context.Background(), args, &stdout, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%q: exit %d, %q, want 2, …%s…", args, code, &stderr, tt.want)
		}
		if strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "loadgen: ") || stdout.Len() > 0 {
			t.Errorf("%q: not one line alone: %q, %q", args, &stderr, &stdout)
		}
	}
	for _, with := range []string{"-faults pause", "-only setnx/pause", "-faults none,pause"} {
		if _, err := parseRun(append([]string{"-at", "after read"}, strings.Fields(with)...)); err != nil {
			t.Errorf("-at beside %s: %v", with, err)
		}
	}
}

// Strategies whose guard is fixed do not mind a fence guard, and targets may
// turn out to be foreign.
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
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"-h", "-help", "--help", "help", "run -h", "-rate 5 -h"} {
		var stdout, stderr bytes.Buffer
		if code := run(context.Background(), strings.Fields(args), &stdout, &stderr); code != exitDone || stderr.Len() > 0 {
			t.Errorf("%s: exit %d, %q", args, code, &stderr)
		}
		for _, topic := range defaults("rush").topics() {
			for _, o := range topic.options {
				if !strings.Contains(stdout.String(), "-"+o.name+" ") {
					t.Errorf("%s does not tell of -%s", args, o.name)
				}
			}
		}
		if strings.Contains(stdout.String(), "\n  "+fleet.Command) {
			t.Errorf("%s tells of a hidden command", args)
		}
	}
	var stdout, stderr bytes.Buffer
	if code := run(context.Background(), []string{"report", "-h"}, &stdout, &stderr); code != exitDone || !strings.Contains(stdout.String(), "markdown") {
		t.Errorf("report -h: exit %d, %q", code, &stdout)
	}
	if _, err := parseRun([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h is %v", err)
	}
}
