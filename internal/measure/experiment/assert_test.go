package experiment_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/measure/experiment"
	"grablab/internal/testbed/load"
)

func TestParseAssert(t *testing.T) {
	for text, want := range map[string]experiment.Assert{
		"expected":                            {},
		" setnx/none : expected ":             {Strategy: "setnx", Fault: catalog.NoFault},
		"double_grabs==0":                     {Figure: "double_grabs", Op: "==", Number: 0},
		" double_grabs  <=  1e3 ":             {Figure: "double_grabs", Op: "<=", Number: 1e3},
		"setnx:latency_ms.p99<50":             {Strategy: "setnx", Figure: "latency_ms.p99", Op: "<", Number: 50},
		"redlock/pause:grabs != -1":           {Strategy: "redlock", Fault: catalog.Pause, Figure: "grabs", Op: "!=", Number: -1},
		"outcomes.grabbed>=100":               {Figure: "outcomes.grabbed", Op: ">=", Number: 100},
		"errors.http 502==0":                  {Figure: "errors.http 502", Op: "==", Number: 0},
		"served_by.127.0.0.1:8004>0":          {Figure: "served_by.127.0.0.1:8004", Op: ">", Number: 0},
		"peak.held_rps>1.5":                   {Figure: "peak.held_rps", Op: ">", Number: 1.5},
		"redis_commands_per_request < 2.0001": {Figure: "redis_commands_per_request", Op: "<", Number: 2.0001},
	} {
		got, err := experiment.ParseAssert(text)
		if err != nil || got != want {
			t.Errorf("ParseAssert(%q): got %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestParseAssertRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "must be FIELD OP NUMBER",
		"double_grabs":           "must be FIELD OP NUMBER",
		"==0":                    `no field ""`,
		"double_grab==0":         `no field "double_grab"`,
		"double_grabs=0":         "this operator does not exist",
		"double_grabs!0":         "this operator does not exist",
		"double_grabs==":         "is not a number",
		"double_grabs==none":     "is not a number",
		"double_grabs==NaN":      "is not a number",
		"double_grabs<Inf":       "is not a number",
		"double_grabs.sum==0":    `no field "double_grabs.sum"`,
		"latency_ms<50":          `no field "latency_ms"`,
		"latency_ms.p42<50":      `no field "latency_ms.p42"`,
		"outcomes==0":            `no field "outcomes"`,
		"outcomes.lost==0":       `no field "outcomes.lost"`,
		"peak.steps==0":          `no field "peak.steps"`,
		"verdict<safe":           `no field "verdict"`,
		"verdict==sure":          `no field "verdict"`,
		"errors.==0":             `no field "errors."`,
		"load_held==yes":         `no field "load_held"`,
		"setnx/nofault:grabs==0": `no fault "nofault"`,
		"setnx/:grabs==0":        `no fault ""`,
		"pause:grabs==0":         "as in foreign/pause",
		":grabs==0":              "the strategy before the colon is missing: write it as in setnx:double_grabs==0",
	} {
		_, err := experiment.ParseAssert(text)
		if !errors.Is(err, experiment.ErrAssert) && !errors.Is(err, experiment.ErrNoFigure) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseAssert(%q) = %v, want …%s…", text, err, want)
		}
	}
}

func FuzzParseAssert(f *testing.F) {
	for _, seed := range []string{
		"expected", "setnx:expected", "double_grabs==0", "setnx/pause:latency_ms.p99<50", "served_by.127.0.0.1:8004>0", "a:b:c", "errors.a=b<1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := experiment.ParseAssert(text)
		if err != nil {
			return
		}
		again, err := experiment.ParseAssert(a.String())
		if err != nil || again != a {
			t.Errorf("%q is %+v; printed as %q it is %+v, %v", text, a, a, again, err)
		}
		a.Misses(&experiment.Run{Cells: []experiment.Cell{{}, {Requests: 1}}}) // must not panic
	})
}

// assertRun returns a run with one cell of each kind: fully counted, not counted, without an expected
// verdict, not run, and counted only as a lower bound.
func assertRun() *experiment.Run {
	return &experiment.Run{Cells: []experiment.Cell{
		{
			Strategy: "setnx", Fault: catalog.NoFault, Verdict: catalog.Safe, Expected: new(catalog.Safe), Requests: 10,
			Outcomes: map[grab.Outcome]int{grab.Grabbed: 1, grab.Taken: 9}, Errors: map[string]int{"reset": 2},
			ServedBy: map[string]int{"8004": 6, "127.0.0.1:9": 4}, DoubleGrabs: new(0), Grabs: new(100),
			Latency: &load.Latency{P99: 42.5}, LoadHeld: new(true),
		},
		{Strategy: "redlock", Fault: catalog.NoFault, Verdict: catalog.Unknown, Expected: new(catalog.Safe)},
		{Strategy: "watchdog", Fault: catalog.NoFault, Verdict: catalog.Unsafe, Requests: 1, DoubleGrabs: new(3)},
		{Strategy: "mutex", Fault: catalog.Failover, Verdict: catalog.NA},
		{Strategy: "etcd", Fault: catalog.NoFault, Verdict: catalog.Unknown, DoubleGrabs: new(2), LowerBound: true, LoadHeld: new(true)},
	}}
}

func TestMisses(t *testing.T) {
	for text, want := range map[string][]string{
		"setnx:double_grabs==0":              nil,
		"setnx:grabs>=100":                   nil,
		"setnx:grabs>100":                    {"setnx:grabs>100: setnx/none: grabs is 100"},
		"setnx:latency_ms.p99<42.5":          {"setnx:latency_ms.p99<42.5: setnx/none: latency_ms.p99 is 42.5"},
		"setnx:latency_ms.p99<=42.5":         nil,
		"setnx:errors.reset==2":              nil,
		"setnx:errors.timeout==0":            nil, // no timeout occurred
		"setnx:served_by.8004==6":            nil,
		"setnx:served_by.127.0.0.1:9==4":     nil,
		"setnx:outcomes.busy==0":             nil,
		"setnx:peak.held_rps>=0":             {"setnx:peak.held_rps>=0: setnx/none: peak.held_rps could not be counted"},
		"mutex:double_grabs==0":              {"mutex:double_grabs==0: there is nothing to compare: this combination was not run, or no verdict is expected"},
		"mutex/failover:expected":            {"mutex/failover:expected: there is nothing to compare: this combination was not run, or no verdict is expected"},
		"setnx/pause:double_grabs==0":        {"setnx/pause:double_grabs==0: there is nothing to compare: this combination was not run, or no verdict is expected"},
		"redlock:double_grabs==0":            {"redlock:double_grabs==0: redlock/none: double_grabs could not be counted"},
		"redlock:double_grabs!=0":            {"redlock:double_grabs!=0: redlock/none: double_grabs could not be counted"},
		"redlock:latency_ms.p99<1000":        {"redlock:latency_ms.p99<1000: redlock/none: latency_ms.p99 could not be counted"},
		"redlock:outcomes.error==0":          {"redlock:outcomes.error==0: redlock/none: outcomes.error could not be counted"},
		"watchdog:expected":                  {"watchdog:expected: there is nothing to compare: this combination was not run, or no verdict is expected"},
		"setnx:expected":                     nil,
		"expected":                           {"expected: redlock/none: is unknown, expected safe"},
		"double_grabs<=0":                    {"double_grabs<=0: redlock/none: double_grabs could not be counted", "double_grabs<=0: watchdog/none: double_grabs is 3", "double_grabs<=0: etcd/none: double_grabs is 2 or more"},
		"handoff:double_grabs==0":            {"handoff:double_grabs==0: there is nothing to compare: this combination was not run, or no verdict is expected"},
		"etcd:double_grabs>=2":               nil,
		"etcd:double_grabs>1":                nil,
		"etcd:double_grabs==2":               {"etcd:double_grabs==2: etcd/none: double_grabs is 2 or more"},
		"etcd:double_grabs<3":                {"etcd:double_grabs<3: etcd/none: double_grabs is 2 or more"},
		"etcd:double_grabs>=3":               {"etcd:double_grabs>=3: etcd/none: double_grabs is 2 or more"},
		"setnx:redis_commands_per_request<9": {"setnx:redis_commands_per_request<9: setnx/none: redis_commands_per_request could not be counted"},
	} {
		a, err := experiment.ParseAssert(text)
		if err != nil {
			t.Errorf("ParseAssert(%q): %v", text, err)
			continue
		}
		if got := a.Misses(assertRun()); !slices.Equal(got, want) {
			t.Errorf("%q: Misses: got %q, want %q", text, got, want)
		}
	}
}

// TestFigures checks that assertions know exactly the numbers in a cell's JSON.
func TestFigures(t *testing.T) {
	var cell any
	text, err := json.Marshal(fullCell())
	if err == nil {
		err = json.Unmarshal(text, &cell)
	}
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	var walk func(path string, at any)
	walk = func(path string, at any) {
		switch at := at.(type) {
		case float64:
			found[path] = true
		case map[string]any:
			for key, below := range at {
				if path == "errors" || path == "served_by" {
					key = ""
				}
				walk(strings.TrimPrefix(path+"."+key, "."), below)
			}
		}
	}
	walk("", cell)
	want := slices.Sorted(slices.Values(experiment.Figures))
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("a cell has the numbers\n%q, assertions know\n%q", got, want)
	}
}

// fullCell returns a cell in which every figure is known.
func fullCell() experiment.Cell {
	n, x, latency := 1, 1.5, &load.Latency{}
	c := experiment.Cell{
		Errors: map[string]int{"reset": 1}, ServedBy: map[string]int{"8004": 1}, Outcomes: map[grab.Outcome]int{},
		Latency: latency, LatencySent: latency, Peak: &experiment.Peak{GrabsPerS: &x},
	}
	for _, o := range grab.Outcomes {
		c.Outcomes[o] = 1
	}
	for _, p := range []**int{
		&c.Grabs, &c.OrdersGrabbed, &c.DoubleGrabs, &c.OrdersDoubleGrabbed, &c.StuckOrders, &c.PhantomGrabs,
		&c.UnacknowledgedGrabs, &c.Overlaps, &c.NearMisses, &c.Struck, &c.ContendedOrders, &c.RedisCommands, &c.RepeatedRows,
	} {
		*p = &n
	}
	for _, p := range []**float64{
		&c.TTLMS, &c.LeaseMS, &c.WorkMS, &c.WaitMS, &c.BeliefGapMS, &c.OfferedRPS, &c.CompletedRPS, &c.DurationS,
		&c.RedisCommandsPerRequest, &c.DBStatementsPerRequest, &c.SettleMS,
	} {
		*p = &x
	}
	return c
}

// TestMissesOfNothing checks that no assertion holds for a run without cells.
func TestMissesOfNothing(t *testing.T) {
	for _, text := range []string{"expected", "double_grabs==0"} {
		a, err := experiment.ParseAssert(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Misses(&experiment.Run{})) == 0 {
			t.Errorf("%q holds for a run without cells", text)
		}
	}
}

// TestEveryFigureIsCompared compares every figure with numbers below, at and above its value, using
// every operator. An assertion about a figure that was not counted must fail.
func TestEveryFigureIsCompared(t *testing.T) {
	holds := map[string][3]bool{ // whether the assertion holds for a number below, at and above the figure
		"==": {false, true, false}, "!=": {true, false, true}, "<": {false, false, true},
		"<=": {false, true, true}, ">": {true, false, false}, ">=": {true, true, false},
	}
	cell := fullCell()
	cell.Verdict, cell.Requests, cell.Orders = catalog.Safe, 3, 4
	text, err := json.Marshal(cell)
	if err != nil {
		t.Fatal(err)
	}
	var figures map[string]any
	if err := json.Unmarshal(text, &figures); err != nil {
		t.Fatal(err)
	}
	of := func(c experiment.Cell) *experiment.Run { return &experiment.Run{Cells: []experiment.Cell{c}} }
	empty := experiment.Cell{Strategy: "setnx", Verdict: catalog.Unknown}
	for _, figure := range experiment.Figures {
		switch figure {
		case "errors.":
			figure += "reset"
		case "served_by.":
			figure += "8004"
		}
		name, rest, deeper := strings.Cut(figure, ".")
		at := figures[name]
		if deeper {
			at = at.(map[string]any)[rest]
		}
		value, ok := at.(float64)
		if !ok {
			t.Errorf("%s is %v, want a number", figure, at)
			continue
		}
		for op, want := range holds {
			for i, number := range []float64{value - 0.5, value, value + 0.5} {
				a := experiment.Assert{Figure: figure, Op: op, Number: number}
				if misses := a.Misses(of(cell)); (len(misses) == 0) != want[i] {
					t.Errorf("%v, and the figure is %v: got misses %q, want none: %v", a, value, misses, want[i])
				}
				counted := name == "orders" || name == "requests"
				if misses := a.Misses(of(empty)); len(misses) == 0 && !counted {
					t.Errorf("%v holds in a cell without figures", a)
				}
			}
		}
	}
}

// TestLowerBounds compares each figure of a cell whose double-grabs may be too few. Of the figures that a hidden win may
// raise, only a lower limit can hold.
func TestLowerBounds(t *testing.T) {
	cell := fullCell()
	cell.LowerBound, cell.Requests, cell.Orders = true, 3, 4
	for _, figure := range experiment.Figures {
		if strings.HasSuffix(figure, ".") {
			continue
		}
		raised := slices.Contains([]string{"double_grabs", "orders_double_grabbed", "orders_grabbed"}, figure)
		for op, number := range map[string]float64{"<": 1e9, "<=": 1e9, "!=": 1e9, ">": -1, ">=": -1} {
			a := experiment.Assert{Figure: figure, Op: op, Number: number}
			want := !raised || op[0] == '>'
			if misses := a.Misses(&experiment.Run{Cells: []experiment.Cell{cell}}); (len(misses) == 0) != want {
				t.Errorf("%v: %q, want it to hold: %v", a, misses, want)
			}
		}
	}
}

// TestCountsThatNeverOccurred compares an outcome, an error and an instance that no response had. They are 0 if there were
// requests, and unknown otherwise.
func TestCountsThatNeverOccurred(t *testing.T) {
	for _, figure := range []string{"outcomes.busy", "errors.reset", "served_by.8006"} {
		for requests := range 2 {
			a := experiment.Assert{Figure: figure, Op: "==", Number: 0}
			misses := a.Misses(&experiment.Run{Cells: []experiment.Cell{{Verdict: catalog.Safe, Requests: requests}}})
			if (len(misses) == 0) != (requests > 0) {
				t.Errorf("%v with %d requests: %q", a, requests, misses)
			}
		}
	}
}
