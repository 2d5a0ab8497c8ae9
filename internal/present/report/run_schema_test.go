package report_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/grab"
	"grablab/internal/history"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/shard"
	"grablab/internal/order"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func runSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(experiment.RunSchema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("run.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("run.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fits(t *testing.T, s *jsonschema.Schema, runJSON []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(runJSON)))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

func outcomes() map[grab.Outcome]int {
	m := map[grab.Outcome]int{}
	for _, o := range grab.Outcomes {
		m[o] = 0
	}
	return m
}

// schemaRun returns a run with a cell in which every figure is known, and a cell in which none is.
func schemaRun() experiment.Run {
	lat := &load.Latency{Min: 1, Mean: 1, P50: 1, P90: 1, P99: 1, P999: 1, Max: 1}
	full := experiment.Cell{
		Strategy: "none", Fault: catalog.NoFault, Verdict: catalog.Unsafe, Expected: new(catalog.Unsafe), Guard: order.Naive, OnLost: grab.Abort,
		Outcomes: outcomes(), Errors: map[string]int{"reset": 1}, CountedFrom: "ledger",
		Grabs: new(1), OrdersGrabbed: new(1), DoubleGrabs: new(0), OrdersDoubleGrabbed: new(0), RepeatedRows: new(0), SettleMS: new(0.5), StuckOrders: new(0),
		PhantomGrabs: new(0), UnacknowledgedGrabs: new(0), Overlaps: new(0), NearMisses: new(0), BeliefGapMS: new(0.5), Struck: new(1),
		ServedBy: map[string]int{"8004": 1}, ContendedOrders: new(1), Latency: lat, LatencySent: lat, LoadHeld: new(true),
		OverTime:      &load.OverTime{SliceMS: 1, N: []int{1}, P50: []*float64{nil}, P99: []*float64{new(1.0)}, SentP50: []*float64{nil}, SentP99: []*float64{nil}},
		Strikes:       []experiment.Window{{FromMS: 1, ToMS: new(2.0)}},
		RedisCommands: new(1), RedisCommandsPerRequest: new(0.5), DBStatementsPerRequest: new(0.5),
		Exclusive: new(experiment.Yes), ExpectedExclusive: new(experiment.No),
		Points:      []experiment.Point{{Point: "before claim 1", Strikes: 1, Struck: 1, Verdict: catalog.Unsafe, Overlaps: new(1), DoubleGrabs: new(1), StuckOrders: new(0), NearMisses: new(0), FailureMode: "F11", Unsold: new(0)}},
		Repetitions: []experiment.Repetition{{Verdict: catalog.Unsafe, Exclusive: new(experiment.Yes), Latency: lat, LatencySent: lat, LoadHeld: new(true), CompletedRPS: new(1.0), GrabsPerS: new(1.0), RedisCommandsPerRequest: new(1.0), DBStatementsPerRequest: new(1.0)}},
		Sale:        &experiment.Sale{Stock: 2, Undersold: new(1), LostUpdates: new(1), OverLimit: new(1), SoldOutMS: new(1.0), InOrder: new(0.5), OverTime: &experiment.SoldOverTime{SliceMS: 1, Sold: []int{0, 2}}},
		Shard:       &shard.Record{Index: 1, Count: 2, BeganAt: time.Now(), ClockMS: 0.5},
		Merged:      &shard.Merged{Count: 2, Lost: []string{"shard 1 of 2: no folder has its result"}, ClocksApartMS: 0.5},
		Peak:        &experiment.Peak{Steps: []experiment.PeakStep{{RPS: 1, P99MS: new(1.0), P99SentMS: new(1.0)}}},
		Checks:      []check.Verdict{{Property: "one-winner", Result: check.Fail, Why: "two won"}},
		Timeline: &check.Timeline{
			Order: 1, Property: "one-winner", Mode: "F1", Name: "check, then act", Cure: "a lock",
			Steps: []check.Step{{Event: "writes", Believed: "has won", True: "grabbed"}},
			Events: []history.Event{{
				Seq: 1, T: 1, Instance: "8004", Incarnation: 1, Kind: history.OK, Op: history.Claim, Order: 1, Driver: 1,
				Strategy: "none", Token: "a", Fence: 1, Code: history.Taken, Lease: 1, Note: "x",
			}},
			Further: 1, Begins: 1, Rows: []check.Row{{Driver: 1, Instance: "8004", Token: "a"}},
		},
	}
	bare := experiment.Cell{
		Strategy: "setnx", Fault: catalog.NoFault, Verdict: catalog.Unknown, Guard: order.Naive, OnLost: grab.Abort,
		Outcomes: outcomes(), Errors: map[string]int{}, ServedBy: map[string]int{}, CountedFrom: "answers",
	}
	return experiment.Run{
		Schema: experiment.Schema, ID: "x", StartedAt: time.Now(),
		Environment: experiment.Environment{Go: "go1", OS: "linux", Arch: "amd64", CPUs: 1, Stack: "embedded"},
		Config:      experiment.RunConfig{Scenario: "rush", Stock: 2, PerDriver: 2, Repeat: 1, Rules: &target.Rules{Grabbed: "200"}},
		Cells:       []experiment.Cell{full, bare},
		Bare:        &experiment.Bare{Endpoint: "GET /healthz", Peak: experiment.Peak{Steps: []experiment.PeakStep{{RPS: 1}}, LimitedBy: experiment.ByInstances}},
	}
}

func TestSchemaTakesRuns(t *testing.T) {
	b, err := json.Marshal(schemaRun())
	if err != nil {
		t.Fatal(err)
	}
	if err := fits(t, runSchema(t), b); err != nil {
		t.Errorf("fits: %v", err)
	}
}

// TestSchemaIsTheTypes checks that the schema has exactly the fields of the Go types. A field must
// be required unless it has omitempty, and nullable if and only if it is a pointer without
// omitempty.
func TestSchemaIsTheTypes(t *testing.T) {
	t.Parallel()
	s := runSchema(t)
	b, err := json.Marshal(schemaRun())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		typ  reflect.Type
		path []any
	}{
		{reflect.TypeFor[experiment.Run](), nil},
		{reflect.TypeFor[experiment.Environment](), []any{"environment"}},
		{reflect.TypeFor[experiment.Bare](), []any{"bare"}},
		{reflect.TypeFor[experiment.RunConfig](), []any{"config"}},
		{reflect.TypeFor[target.Rules](), []any{"config", "rules"}},
		{reflect.TypeFor[experiment.Cell](), []any{"cells", 0}},
		{reflect.TypeFor[experiment.Repetition](), []any{"cells", 0, "repetitions", 0}},
		{reflect.TypeFor[load.Latency](), []any{"cells", 0, "latency_ms"}},
		{reflect.TypeFor[load.Latency](), []any{"cells", 0, "latency_sent_ms"}},
		{reflect.TypeFor[experiment.Peak](), []any{"cells", 0, "peak"}},
		{reflect.TypeFor[shard.Record](), []any{"cells", 0, "shard"}},
		{reflect.TypeFor[shard.Merged](), []any{"cells", 0, "merged"}},
		{reflect.TypeFor[check.Verdict](), []any{"cells", 0, "checks", 0}},
		{reflect.TypeFor[load.OverTime](), []any{"cells", 0, "over_time"}},
		{reflect.TypeFor[experiment.SoldOverTime](), []any{"cells", 0, "sale", "over_time"}},
		{reflect.TypeFor[experiment.Window](), []any{"cells", 0, "strikes", 0}},
		{reflect.TypeFor[experiment.Point](), []any{"cells", 0, "points", 0}},
		{reflect.TypeFor[check.Timeline](), []any{"cells", 0, "story"}},
		{reflect.TypeFor[check.Step](), []any{"cells", 0, "story", "steps", 0}},
		{reflect.TypeFor[history.Event](), []any{"cells", 0, "story", "events", 0}},
		{reflect.TypeFor[check.Row](), []any{"cells", 0, "story", "rows", 0}},
		{reflect.TypeFor[experiment.PeakStep](), []any{"cells", 0, "peak", "steps", 0}},
	} {
		// with applies change to this part of the run, and returns an error if the result violates
		// the schema.
		with := func(change func(map[string]any)) error {
			var doc any
			if err := json.Unmarshal(b, &doc); err != nil {
				t.Fatal(err)
			}
			at := doc
			for _, step := range part.path {
				switch step := step.(type) {
				case string:
					at = at.(map[string]any)[step]
				case int:
					at = at.([]any)[step]
				}
			}
			change(at.(map[string]any))
			changed, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			return fits(t, s, changed)
		}
		if err := with(func(m map[string]any) { m["of_no_type"] = 1 }); err == nil {
			t.Errorf("%v: the schema accepts an unknown field", part.typ)
		}
		for _, f := range reflect.VisibleFields(part.typ) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || f.Anonymous {
				continue
			}
			if err := with(func(m map[string]any) { delete(m, name) }); (err == nil) != (options == "omitempty") {
				t.Errorf("%v without %s: got error %v, but the field has the options %q", part.typ, name, err, options)
			}
			nullable := f.Type.Kind() == reflect.Pointer && options != "omitempty"
			if err := with(func(m map[string]any) { m[name] = nil }); (err == nil) != nullable {
				t.Errorf("%v with %s null: got error %v, want nullable: %v", part.typ, name, err, nullable)
			}
		}
	}
}

// TestCommittedRuns checks that the figures of every committed run are consistent, and that the run
// fits the schema. It validates only every tenth cell, because a validation takes 10 ms of CPU.
func TestCommittedRuns(t *testing.T) {
	t.Parallel()
	s := runSchema(t)
	err := filepath.WalkDir("../../../results", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "run.json" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(b)))
		if err != nil {
			return err
		}
		var tenth []any
		for i, c := range doc.(map[string]any)["cells"].([]any) {
			if i%10 == 0 {
				tenth = append(tenth, c)
			}
		}
		doc.(map[string]any)["cells"] = tenth
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: Validate: %v", path, err)
			return nil
		}
		var run experiment.Run
		if err := json.Unmarshal(b, &run); err != nil {
			return err
		}
		for _, c := range run.Cells {
			for _, wrong := range disagreements(c, max(run.Config.Stock, 1)) {
				t.Errorf("contradiction in %s: %s/%s: %s", path, c.Strategy, c.Fault, wrong)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDisagreements(t *testing.T) {
	sound := experiment.Cell{
		Requests: 10, Outcomes: map[grab.Outcome]int{grab.Grabbed: 3, grab.Taken: 5, grab.Timeout: 2}, CountedFrom: "ledger",
		Grabs: new(4), OrdersGrabbed: new(3), DoubleGrabs: new(1), PhantomGrabs: new(1), UnacknowledgedGrabs: new(2),
	}
	for name, tt := range map[string]struct {
		spoil func(*experiment.Cell)
		want  int
	}{
		"sound":                  {func(*experiment.Cell) {}, 0},
		"a request is missing":   {func(c *experiment.Cell) { c.Requests = 11 }, 1},
		"a row is missing":       {func(c *experiment.Cell) { c.PhantomGrabs = new(0) }, 1},
		"a double-grab is not":   {func(c *experiment.Cell) { c.DoubleGrabs = new(0) }, 1},
		"nothing was counted":    {func(c *experiment.Cell) { c.Grabs = nil }, 0},
		"phantoms not counted":   {func(c *experiment.Cell) { c.PhantomGrabs = nil }, 0},
		"counted from answers":   {func(c *experiment.Cell) { *c = experiment.Cell{CountedFrom: "answers"} }, 0},
		"everything at the same": {func(c *experiment.Cell) { c.Requests, c.DoubleGrabs, c.PhantomGrabs = 0, new(9), new(9) }, 3},
	} {
		c := sound
		tt.spoil(&c)
		if got := disagreements(c, 1); len(got) != tt.want {
			t.Errorf("%s: disagreements: %q, want %d", name, slices.Clip(got), tt.want)
		}
	}
}

// disagreements returns a sentence for each pair of figures in a cell that contradict each other.
// It ignores unknown figures. A disagreement means that the harness has a bug.
func disagreements(c experiment.Cell, units int) []string {
	var wrong []string
	answered := 0
	for _, n := range c.Outcomes {
		answered += n
	}
	if answered != c.Requests {
		wrong = append(wrong, fmt.Sprintf("%d requests have %d outcomes", c.Requests, answered))
	}
	if c.Grabs != nil && c.PhantomGrabs != nil && c.UnacknowledgedGrabs != nil {
		told := c.Outcomes[grab.Grabbed]
		if told+*c.UnacknowledgedGrabs-*c.PhantomGrabs != *c.Grabs {
			wrong = append(wrong, fmt.Sprintf("%d grabbed + %d unacknowledged - %d phantom are not %d ledger rows",
				told, *c.UnacknowledgedGrabs, *c.PhantomGrabs, *c.Grabs))
		}
	}
	if c.Grabs != nil && c.OrdersGrabbed != nil && c.DoubleGrabs != nil {
		if sold := *c.Grabs - *c.DoubleGrabs; sold < *c.OrdersGrabbed || sold > *c.OrdersGrabbed*units {
			wrong = append(wrong, fmt.Sprintf("%d ledger rows with %d double-grabs do not fit %d grabbed orders of %d units each",
				*c.Grabs, *c.DoubleGrabs, *c.OrdersGrabbed, units))
		}
	}
	return wrong
}
