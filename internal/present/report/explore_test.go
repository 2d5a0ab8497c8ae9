package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/explore/schedule"
	"grablab/internal/order"
	"grablab/internal/present/report"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// late returns the failure F11 of setnx in the form in which the explorer reports it.
func late() explore.Failure {
	key := "redis grab:setnx:{1} = A1 (3s left)"
	call := func(actor, phase, target string) schedule.Step {
		return schedule.Step{Kind: schedule.Call, Actor: actor, Phase: phase, N: 1, Target: target}
	}
	s := schedule.Schedule{
		Strategy: "setnx", Guard: "naive", Nodes: []string{"redis"}, TTL: 3 * time.Second, Property: "one-winner", Mode: "F11",
		Actors: []schedule.Actor{{Name: "A", Instance: 1}, {Name: "B", Instance: 2}},
		Steps: []schedule.Step{
			{Kind: schedule.Begins, Actor: "A"}, call("A", "acquire", "redis"), call("A", "read", "db"), {Kind: schedule.LeaseEnd},
			{Kind: schedule.Begins, Actor: "B"}, call("B", "acquire", "redis"), call("B", "read", "db"), call("B", "claim", "db"), call("A", "claim", "db"),
		},
	}
	open := "order 1: open"
	moments := []explore.Moment{
		{Store: []string{open}},
		{Did: "SET grab:setnx:{1} A1 PX 3000 NX → OK", Store: []string{key, open}, Believes: []string{"A"}, Holds: []string{"A"}},
		{Did: "reads order 1 → open", Store: []string{key, open}, Believes: []string{"A"}, Holds: []string{"A"}},
		{At: 3001 * time.Millisecond, Store: []string{open}, Believes: []string{"A"}},
		{At: 3001 * time.Millisecond, Store: []string{open}, Believes: []string{"A"}},
		{At: 3001 * time.Millisecond, Did: "SET grab:setnx:{1} B1 PX 3000 NX → OK", Store: []string{"redis grab:setnx:{1} = B1 (3s left)", open}, Believes: []string{"A", "B"}, Holds: []string{"B"}},
		{At: 3001 * time.Millisecond, Did: "reads order 1 → open", Store: []string{"redis grab:setnx:{1} = B1 (3s left)", open}, Believes: []string{"A", "B"}, Holds: []string{"B"}},
		{At: 3001 * time.Millisecond, Did: "claims order 1 → written", Store: []string{"redis grab:setnx:{1} = B1 (3s left)", "order 1: B"}, Believes: []string{"A", "B"}, Holds: []string{"B"}},
		{At: 3001 * time.Millisecond, Did: "claims order 1 → written", Store: []string{"redis grab:setnx:{1} = B1 (3s left)", "order 1: B A"}, Believes: []string{"A", "B"}, Holds: []string{"B"}, Broken: true},
	}
	for i := range moments {
		moments[i].Step = s.Steps[i]
	}
	return explore.Failure{
		Property: "one-winner", Mode: "F11", Schedule: s, Moments: moments,
		Why: "the order was given to B and to A",
	}
}

func exploration() report.Exploration {
	return report.Exploration{
		Config: explore.Config{Actors: 2, Preemptions: 2, Faults: []catalog.Fault{catalog.Slow, catalog.Pause}, FaultCount: 1},
		Timing: true,
		Replay: func(f explore.Failure) string {
			return "loadgen explore -replay results/explore/" + f.Schedule.Strategy + "-" + f.Property + ".txt"
		},
		Results: []explore.Result{
			{Strategy: "setnx", Guard: order.Naive, Verdict: catalog.Unsafe, Expected: catalog.Unsafe, Complete: true, Schedules: 807, States: 512, Elapsed: 340 * time.Millisecond, Failures: []explore.Failure{late()}},
			{Strategy: "setnx-fenced", Guard: order.Fenced, Verdict: catalog.Safe, Expected: catalog.Safe, Complete: true, Schedules: 41022, States: 20311, Elapsed: 8204 * time.Millisecond},
			{Strategy: "redlock", Guard: order.Naive, Verdict: catalog.Unknown, Expected: catalog.Safe, Reason: "the search ran out of time", Schedules: 14112, States: 9000, Elapsed: 30 * time.Second,
				Levels: []explore.Level{{Run: 1}, {Preemptions: 1, Run: 99}, {Faults: 1, Run: 200}, {Preemptions: 2, Run: 1200},
					{Preemptions: 1, Faults: 1, Run: 4112, Waiting: 2630}, {Preemptions: 2, Faults: 1}}},
		},
	}
}

// portfolio returns a search with three complete parts, of which the second has found a failure.
func portfolio() report.Exploration {
	e := exploration()
	e.Config.FaultCount, e.Results = 0, e.Results[1:2]
	bounds := e.Config
	bounds.Wait, bounds.Work = 600*time.Millisecond, 100*time.Millisecond
	e.Parts = []explore.Part{{Name: "waiting", Config: bounds}, {Name: "calls sent twice", Config: bounds}, {Name: "two outages", Config: bounds}}
	complete := explore.Result{Strategy: "setnx-fenced", Verdict: catalog.Safe, Complete: true, Schedules: 3, States: 4, Elapsed: time.Second}
	for _, p := range e.Parts {
		complete.Part = p.Name
		e.Results[0].Parts = append(e.Results[0].Parts, complete)
	}
	found := &e.Results[0].Parts[1]
	found.Verdict, found.Failures = catalog.Unsafe, []explore.Failure{late()}
	return e
}

func TestExplored(t *testing.T) {
	for _, tt := range []struct {
		file   string
		of     report.Exploration
		render func(io.Writer, report.Exploration) error
	}{
		{"explore.txt", exploration(), report.Explored},
		{"portfolio.txt", portfolio(), report.Explored},
		{"portfolio.json", portfolio(), report.ExploredJSON},
		{"portfolio.html", portfolio(), report.ExploredHTML},
		{"explore.json", exploration(), report.ExploredJSON},
		{"explore.html", exploration(), report.ExploredHTML},
		{"explore.mmd", exploration(), func(w io.Writer, e report.Exploration) error { return report.Mermaid(w, e.Results[0].Failures[0]) }},
	} {
		t.Run(tt.file, func(t *testing.T) {
			var got bytes.Buffer
			if err := tt.render(&got, tt.of); err != nil {
				t.Fatal(err)
			}
			golden(t, tt.file, got.String())
		})
	}
}

// TestExploredJSONFitsSchema checks that the JSON output conforms to its schema.
func TestExploredJSONFitsSchema(t *testing.T) {
	text, err := os.ReadFile("explore.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("explore.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("explore.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	untold := exploration()
	untold.Timing = false
	for _, e := range []report.Exploration{exploration(), portfolio(), untold, {}} {
		var b bytes.Buffer
		if err := report.ExploredJSON(&b, e); err != nil {
			t.Fatal(err)
		}
		written, err := jsonschema.UnmarshalJSON(&b)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(written); (err == nil) != (len(e.Results) > 0) {
			t.Errorf("%d results: %v", len(e.Results), err) // a search without actors is invalid
		}
	}
}

// TestBoundsOfParts checks that each part of a search is shown with its own bounds, even if a strategy lacks
// one of the parts.
func TestBoundsOfParts(t *testing.T) {
	e := portfolio()
	for i := range e.Parts {
		e.Parts[i].Config.Actors = i + 1
	}
	parts := e.Results[0].Parts
	e.Results[0].Parts = []explore.Result{parts[0], parts[2]}
	var b bytes.Buffer
	var doc struct {
		Strategies []struct {
			Parts []struct{ Name, Bounds string }
		}
	}
	if err := errors.Join(report.ExploredJSON(&b, e), json.Unmarshal(b.Bytes(), &doc)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"1 actor ", "3 actors "} {
		if got := doc.Strategies[0].Parts[i]; !strings.HasPrefix(got.Bounds, want) {
			t.Errorf("%s has the bounds %q, want %s…", got.Name, got.Bounds, want)
		}
	}
}

// TestExploredEnd checks the report on a strategy that ends its process. It must show the schedule and the
// stack if they exist.
func TestExploredEnd(t *testing.T) {
	f := explore.Failure{
		Property: catalog.Survives, Why: "the process ended: panic: no", Stack: "panic: no\n\n" + strings.Repeat("a frame\n", 60),
		Schedule: schedule.Schedule{Strategy: "mine", Steps: late().Schedule.Steps[:2]},
	}
	alone := explore.Failure{Property: catalog.Survives, Why: "the process ended by itself", Schedule: schedule.Schedule{Strategy: "other"}}
	e := exploration()
	e.Results = []explore.Result{
		{Strategy: "mine", Verdict: catalog.Unsafe, Expected: catalog.Safe, Failures: []explore.Failure{f}},
		{Strategy: "other", Verdict: catalog.Unsafe, Expected: catalog.Safe, Failures: []explore.Failure{alone}},
	}
	var b bytes.Buffer
	if err := report.Explored(&b, e); err != nil {
		t.Fatal(err)
	}
	if last := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"); !strings.HasPrefix(last[len(last)-1], "   -  this happened before the search") {
		t.Errorf("without a stack, the table ends with %q", last[len(last)-1])
	}
	for _, want := range []string{
		"mine takes its process down\nthe process ended: panic: no\nstep  what happened\n   1  A begins\n   2  A acquire 1 redis\n      panic: no\n",
		"  a frame\n      and 23 lines more", "\nagain: loadgen explore -replay results/explore/mine-survives.txt\n",
		"other takes its process down\nthe process ended by itself\nstep  what happened\n   -  this happened before the search",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

// TestEveryStepIsShown checks that the text and the diagram contain every kind of step. A description must not
// be empty or contain a line break.
func TestEveryStepIsShown(t *testing.T) {
	f := late()
	f.Schedule.Nodes = []string{"redis", "redlock-2"}
	f.Moments = nil
	for kind := schedule.Begins; kind <= schedule.NodeClock; kind++ {
		s := schedule.Step{Kind: kind, Actor: "B", Phase: "acquire", N: 2, Target: "redlock-2", Instance: 2, Duration: time.Second}
		m := explore.Moment{Step: s}
		if kind.IsCall() {
			m.Did = "EVAL if a; then <b> # 100%\n\"end\""
		}
		f.Moments = append(f.Moments, m)
	}
	f.Moments = append(f.Moments, explore.Moment{Step: schedule.Step{Kind: schedule.Up, Target: "redis"}, Skipped: true})
	var text, drawn bytes.Buffer
	e := exploration()
	e.Results = e.Results[:1]
	e.Results[0].Failures = []explore.Failure{f}
	if err := errors.Join(report.Explored(&text, e), report.Mermaid(&drawn, f)); err != nil {
		t.Fatal(err)
	}
	for i := range f.Moments {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^ +%d +0s +[^ -]`, i+1)).MatchString(text.String()) {
			t.Errorf("step %d (%s) is missing in\n%s", i+1, f.Moments[i].Step, &text)
		}
	}
	allowed := regexp.MustCompile(`^(sequenceDiagram|    (title|participant|rect|end\b|Note over|(A|B|S\d)(->>|-->>|-x|-\))(A|B|S\d): )[^;<>%]*)$`)
	if shown := strings.NewReplacer("#35;", "#", "#59;", ";", "#lt;", "<", "#gt;", ">", "#37;", "%").Replace(drawn.String()); !strings.Contains(shown, `EVAL if a; then <b> # 100% "end"`) {
		t.Errorf("the diagram does not show the call as it was made: %s", shown)
	}
	for line := range strings.Lines(strings.NewReplacer("#35;", "", "#59;", "", "#lt;", "", "#gt;", "", "#37;", "").Replace(drawn.String())) {
		if line = strings.TrimSuffix(line, "\n"); !allowed.MatchString(line) || strings.Contains(line, "#") {
			t.Errorf("not a valid line of a sequence diagram: %q", line)
		}
	}
}

// TestEveryPropertyIsAPromise checks that the report on a violated property says what the property
// promises.
func TestEveryPropertyIsAPromise(t *testing.T) {
	for _, p := range explore.Properties {
		f := late()
		f.Property = p
		e := exploration()
		e.Results = []explore.Result{{Strategy: "x", Failures: []explore.Failure{f}}}
		var b bytes.Buffer
		if err := report.Explored(&b, e); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "Promised: .") {
			t.Errorf("the promise of %s is empty", p)
		}
	}
}

// TestExploredTooEarly checks the text of a search that was interrupted before any level was complete.
func TestExploredTooEarly(t *testing.T) {
	e := exploration()
	e.Results = []explore.Result{{Strategy: "redlock", Verdict: catalog.Unknown, Levels: []explore.Level{{Run: 9, Waiting: 1}, {Preemptions: 1}}}}
	var b strings.Builder
	if err := report.Explored(&b, e); err != nil {
		t.Fatal(err)
	}
	if want := "\nredlock: the search is not complete\n"; !strings.Contains(b.String(), want) {
		t.Errorf("%q is missing in\n%s", want, &b)
	}
}

// TestMermaidTitle checks that the title names the known failure mode, or the property if there is none.
func TestMermaidTitle(t *testing.T) {
	f := exploration().Results[0].Failures[0]
	for mode, want := range map[string]string{
		"F11": "title setnx, F11: the lease expires, and its holder writes anyway\n",
		"":    "title setnx, one-winner\n",
	} {
		f.Mode = mode
		var drawn bytes.Buffer
		if err := report.Mermaid(&drawn, f); err != nil || !strings.Contains(drawn.String(), want) {
			t.Errorf("mode %q: want %q, got %v\n%s", mode, want, err, &drawn)
		}
	}
}
