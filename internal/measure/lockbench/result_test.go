package lockbench

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/measure/experiment"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/perf/benchfmt"
)

// result returns a result of the named locks over several rounds. The parameter of is a function
// that returns a lock's slice in a round and case.
func result(t *testing.T, rounds int, names []string, of func(round int, strategy, name string) Slice) *Result {
	t.Helper()
	cfg := Config{Cases: Cases, Rounds: rounds}
	for _, name := range names {
		c, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Subjects = append(cfg.Subjects, c)
	}
	r := newResult(cfg)
	r.Environment.Stack = "local"
	for round := 1; round <= rounds; round++ {
		var all []Slice
		for _, who := range r.subjects {
			for _, c := range Cases {
				s := of(round, who.Name, c.Name)
				s.Round, s.Strategy, s.Case = round, who.Name, c.Name
				s.waits = []float64{s.LongestMS}
				all = append(all, s)
			}
		}
		r.add(all, true)
	}
	return r
}

// drifting returns a slice from a machine on which every round takes 1.5 times as long as the round
// before. In each round, a lock takes 1.2 times as long as the floor.
func drifting(round int, strategy, name string) Slice {
	us := 100 * math.Pow(1.5, float64(round))
	if strategy != Floor {
		us *= 1.2
	}
	s := Slice{Seconds: 1, LongestMS: float64(round), Figures: Figures{Acquisitions: 10, OpsPerS: 1e6 / us, P50US: us, P99US: us, SentPerOp: new(2.0)}}
	if strategy != Floor {
		s.Violations = new(0)
		if name != "uncontended" && name != "many_keys" {
			s.GapP50US, s.GapMeanUS, s.GapCrossUS, s.Turns = &us, &us, &us, new(round)
			s.Jain, s.SelfRetake = new(0.9), new(0.1)
		}
	}
	return s
}

// TestRatiosAreWithinRounds checks that a lock is compared with the floor of the same round. Then
// the ratio is exact although the machine becomes slower.
func TestRatiosAreWithinRounds(t *testing.T) {
	r := result(t, 21, []string{"setnx"}, drifting)
	seen := 0
	for _, row := range r.Rows {
		want := 1.0
		if row.Strategy == "setnx" {
			want, seen = 1.2, seen+1
			if *row.LongestMS != 21 || *row.WaitP999MS != 21 {
				t.Errorf("%s: waits %v, %v, want the longest of all", row.Case, *row.LongestMS, *row.WaitP999MS)
			}
		}
		for _, got := range []*float64{row.Ratio, row.RatioLow, row.RatioHigh} {
			if got == nil || math.Abs(*got-want) > 1e-9 {
				t.Errorf("%s %s: ratio or interval end is %s, want %v", row.Strategy, row.Case, show("%v", got), want)
			}
		}
		if row.Rounds != 21 || row.Acquisitions != 210 {
			t.Errorf("%s %s: %d acquisitions in %d rounds", row.Strategy, row.Case, row.Acquisitions, row.Rounds)
		}
	}
	if seen != len(Cases) {
		t.Errorf("%d rows of setnx, want one for each case", seen)
	}
}

// TestRoundsWithoutAPartner checks that pairedValues skips the rounds in which one of the two figures
// was not measured.
func TestRoundsWithoutAPartner(t *testing.T) {
	slice := func(round int, p50 float64) Slice { return Slice{Round: round, Figures: Figures{P50US: p50}} }
	a := []Slice{slice(1, 10), slice(3, 30), slice(4, 40)}
	b := []Slice{slice(2, 2), slice(3, 3), slice(4, 4)}
	as, bs := pairedValues(a, b, p50, p50)
	if !slices.Equal(as, []float64{30, 40}) || !slices.Equal(bs, []float64{3, 4}) {
		t.Errorf("pairedValues returned %v and %v", as, bs)
	}
}

func TestBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		ratio func(round int) float64 // ratio of setnx to the floor
		want  string
	}{
		"kept":   {func(int) float64 { return 1.2 }, Kept},
		"missed": {func(int) float64 { return 1.4 }, Missed},
		"open":   {func(round int) float64 { return 1.1 + 0.25*float64(round%3) }, Open},
	} {
		r := result(t, 21, []string{"setnx"}, func(round int, strategy, name string) Slice {
			s := drifting(round, strategy, name)
			if strategy == "setnx" {
				s.P50US *= tt.ratio(round) / 1.2
			}
			return s
		})
		i := slices.IndexFunc(r.Bounds, func(b BoundRow) bool { return b.Strategy == "setnx" && *b.AtMost == 1.30 })
		if i < 0 {
			t.Fatalf("%s: not among %+v", name, r.Bounds)
		}
		b := r.Bounds[i]
		if b.Verdict != tt.want || b.Low > b.Figure || b.High < b.Figure {
			t.Errorf("bound of %s: %+v", name, b)
		}
		if got := slices.ContainsFunc(r.Wrong(), func(s string) bool { return strings.Contains(s, "want at most 1.3") }); got != (tt.want == Missed) {
			t.Errorf("%s: wrong is %q", name, r.Wrong())
		}
	}
}

// TestLowerBounds checks the verdict on a lower bound: the rate of handoff must be at least 1.6
// times the floor's rate.
func TestLowerBounds(t *testing.T) {
	for name, tt := range map[string]struct {
		ratio func(round int) float64
		want  string
	}{
		"kept":                   {func(int) float64 { return 1.8 }, Kept},
		"kept at the bound":      {func(int) float64 { return 1.6 }, Kept},
		"missed":                 {func(int) float64 { return 1.5 }, Missed},
		"open, and mostly below": {func(round int) float64 { return 1.55 + 0.15*float64(round%3-1) }, Open},
		"kept, and mostly above": {func(round int) float64 { return 1.65 + 0.15*float64(round%3-1) }, Kept},
	} {
		r := result(t, 21, []string{"handoff"}, func(round int, strategy, name string) Slice {
			s := drifting(round, strategy, name)
			if s.OpsPerS = 1000; strategy == "handoff" {
				s.OpsPerS *= tt.ratio(round)
			}
			return s
		})
		i := slices.IndexFunc(r.Bounds, func(b BoundRow) bool { return b.Strategy == "handoff" && b.AtLeast != nil && *b.AtLeast == 1.6 })
		if i < 0 {
			t.Fatalf("%s: not among %+v", name, r.Bounds)
		}
		if b := r.Bounds[i]; b.Verdict != tt.want || b.Low > b.Figure || b.High < b.Figure {
			t.Errorf("bound of %s: %+v", name, b)
		}
	}
}

// TestBoundsAreOfCases checks that every bound names an existing case and has exactly one limit.
func TestBoundsAreOfCases(t *testing.T) {
	for _, b := range bounds {
		if !slices.ContainsFunc(Cases, func(c Case) bool { return c.Name == b.Case }) {
			t.Errorf("%+v: no such case", b)
		}
		if (b.AtMost == nil) == (b.AtLeast == nil) {
			t.Errorf("%s %s: want one of at most and at least", b.Strategy, b.What)
		}
	}
}

func TestWrongNamesOverlaps(t *testing.T) {
	r := result(t, 6, []string{"none"}, func(round int, strategy, name string) Slice {
		s := drifting(round, strategy, name)
		if strategy == "none" && name == "closed_loop" {
			s.Violations = new(2)
		}
		return s
	})
	want := "closed_loop: none: 12 holders entered while another was inside"
	if !slices.Contains(r.Wrong(), want) {
		t.Errorf("Wrong returned %q, want %q", r.Wrong(), want)
	}
}

// TestLoad checks that a result that was written and loaded again has the same rows and gives the same report. It
// must not load a file of another format version.
func TestLoad(t *testing.T) {
	r := result(t, 7, []string{"setnx"}, drifting)
	save := func() (dir string) {
		dir = t.TempDir()
		var b bytes.Buffer
		if err := JSON(&b, r); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, File), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	got, err := Load(save())
	if err != nil {
		t.Fatal(err)
	}
	var texts [2]bytes.Buffer
	for i, r := range []*Result{r, got} {
		if err := Text(&texts[i], r); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(got.Rows, r.Rows) || texts[0].String() != texts[1].String() {
		t.Errorf("loaded the rows\n%+v\nwant\n%+v\nand the report\n%s\nwant\n%s", got.Rows, r.Rows, &texts[1], &texts[0])
	}
	for version := range 4 {
		r.Schema = version
		if _, err := Load(save()); (err == nil) != (version == Schema) {
			t.Errorf("format version %d: %v", version, err)
		}
	}
}

// TestUnitsOfBenchstat writes one slice. Every time must be in nanoseconds, and an unknown figure must be missing.
func TestUnitsOfBenchstat(t *testing.T) {
	for _, tt := range []struct {
		known Figures
		want  string
	}{
		{Figures{}, ""},
		{Figures{GapP50US: new(4.0), SentPerOp: new(1.5), Jain: new(0.25)}, "\t4000.0 gap-p50-ns\t1.500 commands/op\t0.2500 jain"},
	} {
		s := Slice{Figures: tt.known}
		s.Strategy, s.Case, s.Acquisitions, s.OpsPerS, s.P50US, s.P99US = "setnx", "waves", 7, 250, 2, 30
		var b bytes.Buffer
		if err := Benchstat(&b, &Result{Environment: experiment.Environment{CPUs: 3}, Slices: []Slice{s}}); err != nil {
			t.Fatal(err)
		}
		if want := "BenchmarkLock/strategy=setnx/case=waves-3\t7\t4000000.0 ns/op\t2000.0 p50-ns\t30000.0 p99-ns" + tt.want + "\n"; !strings.HasSuffix(b.String(), "\n"+want) {
			t.Errorf("Benchstat wrote %q, want %q", b.String(), want)
		}
	}
}

func TestBenchstatReadsTheLines(t *testing.T) {
	r := result(t, 7, []string{"setnx", "redsync-5ms"}, drifting)
	var b bytes.Buffer
	if err := Benchstat(&b, r); err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for in := benchfmt.NewReader(&b, "bench.txt"); in.Scan(); {
		res, ok := in.Result().(*benchfmt.Result)
		if !ok {
			t.Fatalf("the line was read as %v", in.Result())
		}
		if _, ok := res.Value("sec/op"); !ok {
			t.Errorf("%s: no time in %+v", res.Name, res.Values)
		}
		if res.Iters != 10 || res.GetConfig("goos") != r.Environment.OS {
			t.Errorf("%s: %d iterations, on %q", res.Name, res.Iters, res.GetConfig("goos"))
		}
		n[string(res.Name.Full())]++
	}
	if len(n) != 3*len(Cases) {
		t.Errorf("%d names: %v", len(n), n)
	}
	for name, lines := range n {
		if lines != 7 {
			t.Errorf("%s: %d lines, want one for each round", name, lines)
		}
	}
}

func TestTextSaysEverything(t *testing.T) {
	const fewRounds = "the table shows the range of all rounds instead of 95 % intervals"
	var few bytes.Buffer
	if err := Text(&few, result(t, 5, []string{"setnx"}, drifting)); err != nil || !strings.Contains(few.String(), fewRounds) {
		t.Errorf("%v: no %q in\n%s", err, fewRounds, few.String())
	}
	r := result(t, 6, []string{"setnx"}, drifting)
	r.LeftOut = append(r.LeftOut, LeftOut{"redsync", "it broke"})
	var b bytes.Buffer
	if err := Text(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"uncontended: one worker", "setnx", Floor, "kept", "at most 1.3", "left out: redsync: it broke", "6 of 6 rounds", "overlaps: 0 in 360 acquisitions"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), fewRounds) {
		t.Errorf("with six rounds, the text contains %q", fewRounds)
	}
}

// schema compiles the schema of bench.json, together with the schema of run.json, to which it
// refers.
var schema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	own, err := os.ReadFile("bench.schema.json")
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"bench.schema.json": string(own), "run.schema.json": experiment.RunSchema} {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return nil, err
		}
		if err := c.AddResource(name, doc); err != nil {
			return nil, err
		}
	}
	return c.Compile("bench.schema.json")
})

// fits writes a result as JSON, applies change to it, and returns an error if it violates the
// schema.
func fits(t *testing.T, r *Result, change func(map[string]any)) error {
	t.Helper()
	var b bytes.Buffer
	if err := JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	change(doc)
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(changed)
}

// TestSchemaIsTheTypes checks that the schema has exactly the fields of the Go types. Each field
// must be required, and it must be nullable if and only if it is a pointer.
func TestSchemaIsTheTypes(t *testing.T) {
	r := result(t, 6, []string{"setnx"}, drifting)
	r.LeftOut = append(r.LeftOut, LeftOut{"redsync", "it broke"})
	if err := fits(t, r, func(map[string]any) {}); err != nil {
		t.Fatal(err)
	}
	first := func(list string) func(map[string]any) map[string]any {
		return func(doc map[string]any) map[string]any { return doc[list].([]any)[0].(map[string]any) }
	}
	for _, part := range []struct {
		typ reflect.Type
		of  func(map[string]any) map[string]any
	}{
		{reflect.TypeFor[Result](), func(doc map[string]any) map[string]any { return doc }},
		{reflect.TypeFor[ResultConfig](), func(doc map[string]any) map[string]any { return doc["config"].(map[string]any) }},
		{reflect.TypeFor[Row](), first("rows")},
		{reflect.TypeFor[BoundRow](), first("bounds")},
		{reflect.TypeFor[LeftOut](), first("left_out")},
	} {
		if err := fits(t, r, func(doc map[string]any) { part.of(doc)["of_no_type"] = 1 }); err == nil {
			t.Errorf("%v: the schema accepts an unknown field", part.typ)
		}
		for _, f := range reflect.VisibleFields(part.typ) {
			name := f.Tag.Get("json")
			if name == "" || name == "-" {
				continue
			}
			if err := fits(t, r, func(doc map[string]any) { delete(part.of(doc), name) }); err == nil {
				t.Errorf("%v: the schema does not require %s", part.typ, name)
			}
			nullable := f.Type.Kind() == reflect.Pointer
			if err := fits(t, r, func(doc map[string]any) { part.of(doc)[name] = nil }); (err == nil) != nullable {
				t.Errorf("%v with %s null: got error %v, want nullable: %v", part.typ, name, err, nullable)
			}
		}
	}
}

func TestSubjects(t *testing.T) {
	names := Names()
	for _, s := range lock.Strategies {
		if slices.Contains(names, s.Name) != (s.Excludes != catalog.NoExclusion) {
			t.Errorf("%s excludes %s, but the measured locks are %v", s.Name, s.Excludes, names)
		}
	}
	for _, name := range append(names, Floor, "none") {
		if c, err := Find(name); err != nil || c.Name != name {
			t.Errorf("Find(%s): %v, %v", name, c.Name, err)
		}
	}
	if _, err := Find("bogus"); err == nil {
		t.Error("Find(bogus) returned no error")
	}
}
