package compare

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/measure/experiment"
	"grablab/internal/order"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/target"
)

func optional(x *float64) any {
	if x == nil {
		return nil
	}
	return *x
}

// around returns n different values close to x.
func around(x float64, n int) (values []float64) {
	for i := range n {
		values = append(values, x*(1+0.001*float64(i)))
	}
	return values
}

func TestJudge(t *testing.T) {
	mixed := []float64{1, 9, 2, 8, 3, 7}
	for name, tt := range map[string]struct {
		old, new []float64
		more     bool
		beside   int // the number of further costs in the comparison, which do not differ
		want     Answer
		why      string
	}{
		"slower":                 {old: around(10, 6), new: around(12, 6), want: Slower},
		"faster":                 {old: around(10, 6), new: around(8, 6), want: Faster},
		"a lower rate is slower": {old: around(10, 6), new: around(8, 6), more: true, want: Slower},
		"a higher one faster":    {old: around(10, 6), new: around(12, 6), more: true, want: Faster},
		"the same":               {old: around(10, 6), new: around(10, 6), want: Same},
		"the same, once":         {old: around(10, 1), new: around(10, 1), want: Same},
		"from zero":              {old: around(0, 6), new: around(10, 6), want: Slower},
		"a rate from zero":       {old: around(0, 6), new: around(10, 6), more: true, want: Faster},
		"to zero":                {old: around(10, 6), new: around(0, 6), want: Faster},
		"zero twice":             {old: around(0, 6), new: around(0, 7), want: NotShown},
		"from zero, once":        {old: around(0, 1), new: around(10, 1), want: NotKnown, why: "each run needs 4"},
		"too little to matter":   {old: around(10, 6), new: around(10.07, 6), want: Same},
		"nothing shown":          {old: mixed, new: []float64{2.5, 8.5, 1.5, 7.5, 3.5, 6.5}, want: NotShown},
		"once":                   {old: around(10, 1), new: around(20, 1), want: NotKnown, why: "1 and 1 measurements are too few, because with 1 costs each run needs 4"},
		"too few":                {old: around(10, 3), new: around(20, 3), want: NotKnown, why: "each run needs 4"},
		"not measured":           {old: around(10, 6), want: NotKnown, why: "not measured in both"},
		"not measured before":    {new: around(10, 6), want: NotKnown, why: "not measured in both"},
		"just enough":            {old: around(10, 1), new: around(9.9, 39), want: NotShown}, // p cannot be lower than 0.05
		"few enough":             {old: around(10, 5), new: around(20, 5), want: Slower},
		"too few among many":     {old: around(10, 5), new: around(20, 5), beside: 20, want: NotKnown, why: "with 21 costs each run needs 6"}, // p is 0.008, and among 21 costs, one could be that low by chance
	} {
		c := &Comparison{Cells: 1, Costs: []Cost{{old: tt.old, new: tt.new, more: tt.more}}}
		for range tt.beside {
			c.Costs = append(c.Costs, Cost{old: mixed, new: append([]float64{1.5}, mixed[1:]...)})
		}
		c.judge()
		x := c.Costs[0]
		if x.Answer != tt.want || !strings.Contains(x.Why, tt.why) || (tt.why == "") != (x.Why == "") {
			t.Errorf("%s: answer %s (%s), p %v, want %s (%s)", name, x.Answer, x.Why, optional(x.P), tt.want, tt.why)
		}
		if _, err := json.Marshal(c); err != nil {
			t.Errorf("%s: the comparison cannot be written as JSON: %v", name, err)
		}
		if compared := len(tt.old) > 0 && len(tt.new) > 0 && medianOf(tt.old) != 0; compared != (x.Change != nil) || compared && math.Abs(*x.Change-medianOf(tt.new)/medianOf(tt.old)) > 1e-9 {
			t.Errorf("%s: the change is %v", name, optional(x.Change))
		}
		if c.Alpha != 0.05 {
			t.Errorf("%s: alpha is %v, but docs/compare.md says 5 %%", name, c.Alpha)
		}
		if c.Worse() != (tt.want == Slower) {
			t.Errorf("%s: worse is %v", name, c.Worse())
		}
	}
}

// cellOf returns a cell of a run. If exclusive is not empty, it is the cell's verdict on the lock.
func cellOf(strategy string, fault catalog.Fault, v catalog.Verdict, exclusive string, p50 float64) experiment.Cell {
	c := experiment.Cell{Strategy: strategy, Fault: fault, Verdict: v, Latency: &load.Latency{P50: p50, P99: 2 * p50}, CompletedRPS: new(500.0)}
	if exclusive != "" {
		c.Exclusive, c.ExpectedExclusive = &exclusive, new(experiment.Yes)
	}
	return c
}

func TestRunsByCell(t *testing.T) {
	old := &experiment.Run{Cells: []experiment.Cell{
		cellOf("none", catalog.NoFault, catalog.Unsafe, "", 1), cellOf("setnx", catalog.NoFault, catalog.Safe, experiment.Yes, 1),
		cellOf("setnx", catalog.Pause, catalog.Safe, experiment.Yes, 1), cellOf("gone", catalog.NoFault, catalog.Safe, "", 1),
	}}
	now := &experiment.Run{Cells: []experiment.Cell{
		cellOf("none", catalog.NoFault, catalog.Safe, "", 1), cellOf("setnx", catalog.NoFault, catalog.Safe, experiment.Yes, 1),
		cellOf("setnx", catalog.Pause, catalog.Safe, experiment.No, 1), cellOf("come", catalog.NoFault, catalog.Safe, "", 1),
	}}
	now.Environment.Redis, now.Config.Orders, now.Cells[1].WorkMS = "Redis 8", 5, new(7.0)
	for i := range old.Cells {
		old.Cells[i].Reason, now.Cells[i].Reason = "was", "is"
	}
	c := Runs("a", old, "b", now)
	want := []Change{{"none/none", "unsafe", "safe", "is"}, {"setnx/pause", "safe with an exclusive lock", "safe with two holders inside", "is"}}
	if !slices.Equal(c.Changes, want) || c.Cells != 3 {
		t.Errorf("of %d cells, %+v", c.Cells, c.Changes)
	}
	if !slices.Equal(c.OnlyOld, []string{"gone/none"}) || !slices.Equal(c.OnlyNew, []string{"come/none"}) {
		t.Errorf("cells in only one run: %v, %v", c.OnlyOld, c.OnlyNew)
	}
	if want := []string{"Redis: none, now Redis 8", "orders: 0, now 5", "work ms: none, now 7"}; !slices.Equal(c.Unlike, want) {
		t.Errorf("unlike: %q", c.Unlike)
	}
	if !c.Worse() || c.Summary() != "2 of 3 verdicts changed" {
		t.Errorf("worse: %v, summary %q", c.Worse(), c.Summary())
	}
	if len(c.Costs) != 6 { // three costs for each of the two cells without a fault that both runs have
		t.Errorf("costs are %+v", c.Costs)
	}
	// If the verdict on a lock becomes unknown, that is a change too.
	now.Cells[1].Exclusive = nil
	if got := Runs("a", old, "b", now).Changes; len(got) != 3 {
		t.Errorf("changes are %+v", got)
	}
	if c := Runs("a", old, "a", old); c.Worse() || c.Summary() != "no difference" || len(c.Unlike) > 0 {
		t.Errorf("with itself: %q, unlike %q", c.Summary(), c.Unlike)
	}
	if c := Runs("a", old, "b", &experiment.Run{}); c.Summary() != "the runs have no cell or cost in common" {
		t.Errorf("with nothing: %q", c.Summary())
	}
}

// TestDirections checks for every figure of a run whether a larger value counts as slower or as faster. A
// smaller value must count as the opposite.
func TestDirections(t *testing.T) {
	largerIs := map[string]Answer{"p50 from the schedule, ms": Slower, "p99 from the schedule, ms": Slower, "answers a second": Faster}
	opposite := map[Answer]Answer{Slower: Faster, Faster: Slower}
	set := map[string]func(*experiment.Repetition, float64){
		"p50 from the schedule, ms": func(r *experiment.Repetition, x float64) { r.Latency.P50 = x },
		"p99 from the schedule, ms": func(r *experiment.Repetition, x float64) { r.Latency.P99 = x },
		"answers a second":          func(r *experiment.Repetition, x float64) { r.CompletedRPS = &x },
	}
	cells := func(figure string, x float64) *experiment.Run {
		c := cellOf("setnx", catalog.NoFault, catalog.Safe, experiment.Yes, 1)
		for _, v := range around(x, 6) {
			r := experiment.Repetition{Latency: &load.Latency{P50: 5, P99: 7}, CompletedRPS: new(100.0)}
			set[figure](&r, v)
			c.Repetitions = append(c.Repetitions, r)
		}
		return &experiment.Run{Cells: []experiment.Cell{c}}
	}
	for _, f := range loadFigures {
		want, ok := largerIs[f.name]
		if !ok {
			t.Errorf("%s: the test does not say what a larger value means", f.name)
			continue
		}
		for _, tt := range []struct {
			old, new float64
			want     Answer
		}{{10, 20, want}, {20, 10, opposite[want]}} {
			c := Runs("a", cells(f.name, tt.old), "b", cells(f.name, tt.new))
			for _, x := range c.Costs {
				switch {
				case x.Figure == f.name && x.Answer != tt.want:
					t.Errorf("%s: %v, now %v: %s, want %s", f.name, tt.old, tt.new, x.Answer, tt.want)
				case x.Figure != f.name && (x.Answer == Slower || x.Answer == Faster):
					t.Errorf("only %s was changed, but %s is %s", f.name, x.Figure, x.Answer)
				}
			}
			if c.Worse() != (tt.want == Slower) {
				t.Errorf("%s: %v, now %v: worse is %v", f.name, tt.old, tt.new, c.Worse())
			}
		}
	}
	for _, f := range peakFigures {
		if !f.more {
			t.Errorf("%s: a higher rate is better", f.name)
		}
	}
}

// TestFiguresThatOneRunLacks checks that a figure that only one run has is a cost with values on one side. A
// figure that neither run has must not be listed as a cost.
func TestFiguresThatOneRunLacks(t *testing.T) {
	clear := map[string]func(c *experiment.Cell){
		"p50 from the schedule, ms": func(c *experiment.Cell) { c.Latency = nil },
		"p99 from the schedule, ms": func(c *experiment.Cell) { c.Latency = nil },
		"answers a second":          func(c *experiment.Cell) { c.CompletedRPS = nil },
	}
	for _, f := range loadFigures {
		for _, lacks := range [][2]bool{{true, false}, {false, true}, {true, true}} {
			var cells [2]experiment.Cell
			for i := range cells {
				if cells[i] = cellOf("setnx", catalog.NoFault, catalog.Safe, "", 1); lacks[i] {
					clear[f.name](&cells[i])
				}
			}
			costs := costsOf(cells[0], cells[1])
			i := slices.IndexFunc(costs, func(x Cost) bool { return x.Figure == f.name })
			switch none := lacks[0] && lacks[1]; {
			case none != (i < 0):
				t.Errorf("%s, missing %v: cost %d of %d", f.name, lacks, i, len(costs))
			case !none && (costs[i].Old.N == 0) != lacks[0] || !none && (costs[i].New.N == 0) != lacks[1]:
				t.Errorf("%s, missing %v: %+v, %+v", f.name, lacks, costs[i].Old, costs[i].New)
			}
		}
	}
}

// TestMeasure checks the confidence interval of the median. For six and seven values, it is the whole
// range. For fewer values, there is none.
func TestMeasure(t *testing.T) {
	for n := range 8 {
		values := around(10, n)
		m := measure(values)
		if m.N != n || (m.Median != nil) != (n > 0) || n > 0 && *m.Median != medianOf(values) {
			t.Errorf("%d values: %d, median %v", n, m.N, optional(m.Median))
		}
		if has := n >= 6; (m.Low != nil) != has || (m.High != nil) != has || has && (*m.Low != values[0] || *m.High != values[n-1]) {
			t.Errorf("%d values: from %v to %v", n, optional(m.Low), optional(m.High))
		}
	}
}

// TestDifferences checks that a changed setting is reported on one line, with the old value first, and that
// no other line is reported.
func TestDifferences(t *testing.T) {
	type env = experiment.Environment
	for want, set := range map[string]func(e *env, first bool){
		"stack: a, now b":        func(e *env, first bool) { e.Stack = either(first, "a", "b") },
		"Go: a, now b":           func(e *env, first bool) { e.Go = either(first, "a", "b") },
		"system: a/, now b/":     func(e *env, first bool) { e.OS = either(first, "a", "b") },
		"system: /a, now /b":     func(e *env, first bool) { e.Arch = either(first, "a", "b") },
		"CPUs: 2, now 8":         func(e *env, first bool) { e.CPUs = either(first, 2, 8) },
		"Redis: a, now b":        func(e *env, first bool) { e.Redis = either(first, "a", "b") },
		"database: a, now none":  func(e *env, first bool) { e.Database = either(first, "a", "") },
		"ZooKeeper: none, now b": func(e *env, first bool) { e.ZooKeeper = either(first, "", "b") },
		"etcd: a, now b":         func(e *env, first bool) { e.Etcd = either(first, "a", "b") },
		"vegeta: a, now b":       func(e *env, first bool) { e.Vegeta = either(first, "a", "b") },
	} {
		var a, b env
		set(&a, true)
		set(&b, false)
		if got := environments(a, b); !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want only %q", got, want)
		}
	}
	type config = experiment.RunConfig
	var compared []string
	for want, set := range map[string]func(c *config, first bool){
		"scenario: a, now b": func(c *config, first bool) { c.Scenario = either(first, "a", "b") },
		"orders: 1, now 2":   func(c *config, first bool) { c.Orders = either(first, 1, 2) },
		"drivers: 1, now 2":  func(c *config, first bool) { c.Drivers = either(first, 1, 2) },
		"rate: 1, now 2":     func(c *config, first bool) { c.Rate = either(first, 1.0, 2.0) },
		"drivers of an order close together: true, now false": func(c *config, first bool) { c.Together = first },
		"instances: 1, now 2":        func(c *config, first bool) { c.Instances = either(first, 1, 2) },
		"units per order: 1, now 2":  func(c *config, first bool) { c.Stock = either(first, 0, 2) },
		"units per driver: 3, now 1": func(c *config, first bool) { c.PerDriver = either(first, 3, 0) },
		"rules: none, now {200 409 423}": func(c *config, first bool) {
			c.Rules = either(first, nil, &target.Rules{Grabbed: "200", Taken: "409", Busy: "423"})
		},
	} {
		var a, b config
		set(&a, true)
		set(&b, false)
		if got := configs(a, b); !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want only %q", got, want)
		}
		for i := range reflect.TypeFor[config]().NumField() {
			if name := reflect.TypeFor[config]().Field(i).Name; !reflect.DeepEqual(reflect.ValueOf(a).Field(i).Interface(), reflect.ValueOf(b).Field(i).Interface()) {
				compared = append(compared, name)
			}
		}
	}
	compared = append(compared, "Seed", "Args", "Files", "Repeat") // these do not affect the figures, or other fields show their effect
	for i := range reflect.TypeFor[config]().NumField() {
		if name := reflect.TypeFor[config]().Field(i).Name; !slices.Contains(compared, name) {
			t.Errorf("two runs with different %s are compared without a warning", name)
		}
	}
}

// TestSettingsDiffer checks that a setting that differs in two cells is reported on only one line, with the
// old value first.
func TestSettingsDiffer(t *testing.T) {
	for want, set := range map[string]func(c *experiment.Cell, first bool){
		"guard: naive, now fenced":   func(c *experiment.Cell, first bool) { c.Guard = either(first, order.Naive, order.Fenced) },
		"on-lost: abort, now ignore": func(c *experiment.Cell, first bool) { c.OnLost = either(first, grab.Abort, grab.Ignore) },
		"work ms: 1, now 2":          func(c *experiment.Cell, first bool) { c.WorkMS = new(either(first, 1.0, 2.0)) },
		"TTL ms: 1, now 2":           func(c *experiment.Cell, first bool) { c.TTLMS = new(either(first, 1.0, 2.0)) },
		"wait ms: 1, now none":       func(c *experiment.Cell, first bool) { c.WaitMS = either(first, new(1.0), nil) },
		"p99 limit ms: 1, now 2": func(c *experiment.Cell, first bool) {
			c.Peak = &experiment.Peak{P99MS: either(first, 1.0, 2.0)}
		},
	} {
		run := func(first bool) *experiment.Run {
			a, b := cellOf("setnx", catalog.NoFault, catalog.Safe, "", 1), cellOf("setnx", catalog.Pause, catalog.Safe, "", 1)
			set(&a, first)
			set(&b, first)
			return &experiment.Run{Cells: []experiment.Cell{a, b, cellOf("only in "+either(first, "old", "new"), catalog.NoFault, catalog.Safe, "", 1)}}
		}
		if got := Runs("", run(true), "", run(false)).Unlike; !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want only %q", got, want)
		}
	}
}

// TestOrder checks the order of the lines of a comparison. The settings come in the same order as in a run, and the
// costs in the order of the cells.
func TestOrder(t *testing.T) {
	run := func(first bool) *experiment.Run {
		text, number := either(first, "a", "b"), either(first, 2, 3)
		r := &experiment.Run{
			Environment: experiment.Environment{Stack: text, Go: text, OS: text, CPUs: number, Redis: text, Database: text, ZooKeeper: text, Etcd: text, Vegeta: text},
			Config: experiment.RunConfig{
				Scenario: text, Orders: number, Drivers: number, Rate: float64(number), Together: first, Instances: number, Stock: number, PerDriver: number,
				Rules: &target.Rules{Grabbed: text},
			},
		}
		for _, name := range []string{"watchdog", "mutex", "setnx"} {
			c := cellOf(name, catalog.NoFault, catalog.Safe, "", 1)
			c.Guard, c.OnLost = either(first, order.Naive, order.Fenced), either(first, grab.Abort, grab.Ignore)
			c.WorkMS, c.TTLMS, c.WaitMS, c.Peak = new(float64(number)), new(float64(number)), new(float64(number)), &experiment.Peak{P99MS: float64(number)}
			r.Cells = append(r.Cells, c)
		}
		return r
	}
	c := Runs("", run(true), "", run(false))
	var got []string
	for _, line := range c.Unlike {
		name, _, _ := strings.Cut(line, ":")
		got = append(got, name)
	}
	want := []string{
		"stack", "Go", "system", "CPUs", "Redis", "database", "ZooKeeper", "etcd", "vegeta",
		"scenario", "orders", "drivers", "rate", "drivers of an order close together", "instances", "units per order", "units per driver", "rules",
		"guard", "on-lost", "work ms", "TTL ms", "wait ms", "p99 limit ms",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the settings that differ are %q, want %q", got, want)
	}
	var names []string
	for _, x := range c.Costs {
		names = append(names, strings.Fields(x.Strategy)[0])
	}
	if names := slices.Compact(names); !slices.Equal(names, []string{"watchdog", "mutex", "setnx"}) {
		t.Errorf("the costs belong to the strategies %q", names)
	}
}

// TestVerdictText checks that the text of a verdict says if it is not known whether the lock kept holders apart. It must
// not say so if the lock has a verdict, or if no verdict was expected.
func TestVerdictText(t *testing.T) {
	for _, known := range []*string{nil, new(experiment.Yes)} {
		for _, expected := range []*string{nil, new(experiment.Yes)} {
			c := cellOf("setnx", catalog.NoFault, catalog.Safe, "", 1)
			c.Exclusive, c.ExpectedExclusive = known, expected
			text := verdictText(c)
			if says := strings.Contains(text, "not known whether the lock"); says != (known == nil && expected != nil) {
				t.Errorf("exclusive %v, expected %v: %s", known != nil, expected != nil, text)
			}
		}
	}
}

// TestRepetitions checks that a cell with repetitions gets its values from the repetitions, even if there is
// only one.
func TestRepetitions(t *testing.T) {
	for n := range 4 {
		c := cellOf("setnx", catalog.NoFault, catalog.Safe, "", 9)
		want := []float64{9}
		if n > 0 {
			want = nil
		}
		for i := range n {
			p50 := float64(i)
			c.Repetitions, want = append(c.Repetitions, experiment.Repetition{Latency: &load.Latency{P50: p50}}), append(want, p50)
		}
		if got := latency(func(l load.Latency) float64 { return l.P50 })(c); !slices.Equal(got, want) {
			t.Errorf("%d repetitions: the values are %v, want %v", n, got, want)
		}
	}
}

func either[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// TestSides checks that a comparison of two runs does not mix up the fields of the two sides.
func TestSides(t *testing.T) {
	a, b := &experiment.Run{StartedAt: time.Unix(1, 0), Complete: true}, &experiment.Run{StartedAt: time.Unix(2, 0)}
	a.Environment.Commit, b.Environment.Commit = "abc", "def"
	c := Runs("a", a, "b", b)
	if want := (Side{"a", a.StartedAt, "abc", true}); c.Old != want {
		t.Errorf("old: %+v", c.Old)
	}
	if want := (Side{"b", b.StartedAt, "def", false}); c.New != want {
		t.Errorf("new: %+v", c.New)
	}
	if reflect.TypeFor[Side]().NumField() != 4 {
		t.Error("a field of Side is not tested")
	}
}

// TestSummary checks the summary for answers of each kind, alone and together.
func TestSummary(t *testing.T) {
	for _, tt := range []struct {
		cells, changes int
		answers        []Answer
		want           string
	}{
		{0, 0, nil, "the runs have no cell or cost in common"},
		{2, 0, []Answer{Same}, "no difference"},
		{2, 0, []Answer{Same, NotShown}, "no difference shown"},
		{2, 0, []Answer{NotKnown, Same}, "no verdict changed; for 1 of 2 costs, it is not known"},
		{2, 1, nil, "1 of 2 verdicts changed"},
		{2, 0, []Answer{Slower, Faster, Faster}, "1 of 3 costs slower; 2 of 3 costs faster"},
		{3, 2, []Answer{Slower, NotKnown, NotKnown}, "2 of 3 verdicts changed; 1 of 3 costs slower; for 2 of 3 costs, it is not known"},
	} {
		c := &Comparison{Cells: tt.cells, Changes: make([]Change, tt.changes)}
		for _, a := range tt.answers {
			c.Costs = append(c.Costs, Cost{Answer: a})
		}
		if got := c.Summary(); got != tt.want {
			t.Errorf("Summary: %q, want %q", got, tt.want)
		}
	}
}

// TestPeaks compares cells of the scenario peak with cells of other scenarios, in every combination. If at
// least one cell is of the scenario peak, the highest rate is the only cost, and other cells have no value.
func TestPeaks(t *testing.T) {
	for _, has := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
		var cells [2]experiment.Cell
		for i := range cells {
			if cells[i] = cellOf("setnx", catalog.NoFault, catalog.Safe, "", 1); has[i] {
				cells[i].Peak = &experiment.Peak{HeldRPS: float64(100 * (i + 1))}
			}
		}
		figures, none := peakFigures, has == [2]bool{false, false}
		if none {
			figures = loadFigures
		}
		costs := costsOf(cells[0], cells[1])
		if len(costs) != len(figures) {
			t.Fatalf("peaks %v: %d costs, want %d", has, len(costs), len(figures))
		}
		for i, x := range costs {
			if x.Figure != figures[i].name || x.more != figures[i].more {
				t.Errorf("peaks %v: %s, want %s", has, x.Figure, figures[i].name)
			}
			for side, m := range [2]Measured{x.Old, x.New} {
				if n := len(figures[i].of(cells[side])); m.N != n || !none && (n > 0) != has[side] || !none && has[side] && *m.Median != float64(100*(side+1)) {
					t.Errorf("peaks %v: %s of cell %d: %+v", has, x.Figure, side, m)
				}
			}
		}
	}
}

// TestHolm checks that the answers agree with Holm's method for every combination of up to four costs with
// three to seven values each. For every second cost, larger values are better.
func TestHolm(t *testing.T) {
	var choose func(sizes []int)
	choose = func(sizes []int) {
		c := new(Comparison)
		for i, n := range sizes {
			x := Cost{more: i%2 == 1}
			for k := range n {
				x.old, x.new = append(x.old, 100+float64(k)/10), append(x.new, 200+float64(k)/10)
			}
			c.Costs = append(c.Costs, x)
		}
		c.judge()
		var ps []float64
		for _, x := range c.Costs {
			ps = append(ps, *x.P)
		}
		slices.Sort(ps)
		shown := 0 // the number of the smallest p-values that pass; each one is multiplied by the number of remaining tests
		for shown < len(ps) && ps[shown]*float64(len(ps)-shown) <= alpha {
			shown++
		}
		for i, x := range c.Costs {
			want := map[bool]Answer{false: Slower, true: Faster}[x.more]
			if got := x.Answer == want; got != slices.Contains(ps[:shown], *x.P) || !got && (x.Answer == Slower || x.Answer == Faster) {
				t.Errorf("%v values: cost %d with p %.4f of %.4f: %s", sizes, i, *x.P, ps, x.Answer)
			}
			least := 2.0 // the smallest possible p-value, for the two most extreme of all ways to split the values
			for k := range sizes[i] {
				least *= float64(k+1) / float64(sizes[i]+k+1)
			}
			tooFew := least*float64(len(sizes)) > alpha
			if got := x.Answer == NotKnown; x.Answer != want && got != tooFew {
				t.Errorf("%v values: cost %d with p %.4f of %.4f: %s; too few values: %v", sizes, i, *x.P, ps, x.Answer, tooFew)
			}
		}
		if len(sizes) < 4 {
			for n := 3; n <= 7; n++ {
				choose(append(slices.Clone(sizes), n))
			}
		}
	}
	choose(nil)
}
