package experiment

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
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
	"grablab/internal/measure/shard"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/stack"
)

// played returns a cell in which n of 10 orders were grabbed once each, with latencies of about ms.
func played(n int, ms float64) Cell {
	l := &load.Latency{Min: ms / 2, Mean: ms, P50: ms, P90: ms, P99: ms, P999: ms, Max: 2 * ms}
	return Cell{
		Strategy: "setnx", Fault: catalog.NoFault, Verdict: catalog.Safe, Exclusive: new(Yes), Orders: 10, Requests: 100, CountedFrom: fromLedger,
		Outcomes: map[grab.Outcome]int{grab.Grabbed: n, grab.Taken: 100 - n}, Errors: map[string]int{}, ServedBy: map[string]int{"a": 100},
		Grabs: &n, OrdersGrabbed: &n, DoubleGrabs: new(0), OrdersDoubleGrabbed: new(0), StuckOrders: new(0), Overlaps: new(0),
		Latency: l, LatencySent: l, LoadHeld: new(true), CompletedRPS: new(ms * 10), DurationS: new(2.0), RedisCommandsPerRequest: new(ms),
		Checks: []check.Verdict{{Property: catalog.OneWinner, Result: check.Pass}},
	}
}

func TestRepetitionsMakeACell(t *testing.T) {
	double := played(8, 300)
	double.Verdict, double.Reason, double.Grabs, double.DoubleGrabs, double.OrdersDoubleGrabbed = catalog.Unsafe, "1 of 10", new(9), new(1), new(1)
	double.Exclusive, double.Overlaps, double.LoadHeld = new(No), nil, new(false)
	double.Checks = []check.Verdict{{Property: catalog.OneWinner, Result: check.Fail}}
	double.Errors = map[string]int{"reset": 2}
	cut := played(1, 9)
	cut.Interrupted = true

	c := played(10, 1).first().merge(double).merge(cut).merge(played(9, 2))
	if len(c.Repetitions) != 3 || c.Interrupted {
		t.Fatalf("repetitions are %+v", c.Repetitions)
	}
	if c.Verdict != catalog.Unsafe || c.Reason != "in repetition 2: 1 of 10" || *c.Exclusive != No || c.Checks[0].Result != check.Fail || *c.LoadHeld {
		t.Errorf("verdict %s, reason %q, exclusive %s, checks %v", c.Verdict, c.Reason, *c.Exclusive, c.Checks)
	}
	if c.Orders != 30 || c.Requests != 300 || *c.Grabs != 28 || *c.OrdersGrabbed != 27 || *c.DoubleGrabs != 1 || *c.DurationS != 6 ||
		!maps.Equal(c.Outcomes, map[grab.Outcome]int{grab.Grabbed: 27, grab.Taken: 273}) || c.Errors["reset"] != 2 || c.ServedBy["a"] != 300 {
		t.Errorf("counts of the merged cell: %+v", c)
	}
	if c.Overlaps != nil {
		t.Errorf("%d overlaps, although one repetition could not count them", *c.Overlaps)
	}
	if l := c.Latency; l.P50 != 2 || l.P99 != 2 || l.Min != 0.5 || l.Max != 600 || *c.CompletedRPS != 20 || *c.RedisCommandsPerRequest != 2 {
		t.Errorf("latency %+v, rate %v, commands %v", l, *c.CompletedRPS, *c.RedisCommandsPerRequest)
	}
	if r := c.Repetitions[1]; r.Verdict != catalog.Unsafe || r.Latency.P50 != 300 || *r.GrabsPerS != 4.5 {
		t.Errorf("second repetition: %+v", r)
	}
	if err := (&Run{Cells: []Cell{c}}).Contradiction(); err != nil {
		t.Error(err)
	}
	// An interrupted repetition counts only if it has failed.
	cut.Verdict, cut.Reason, cut.DoubleGrabs = catalog.Unsafe, "2 of 10", new(2)
	if c := played(10, 1).first().merge(cut); c.Verdict != catalog.Unsafe || c.Reason != "in repetition 2: 2 of 10" || len(c.Repetitions) != 1 || *c.DoubleGrabs != 0 {
		t.Errorf("%s, %q, %d repetitions, %d double-grabs", c.Verdict, c.Reason, len(c.Repetitions), *c.DoubleGrabs)
	}
	cut.Verdict = catalog.Unknown
	if c := played(10, 1).first().merge(cut); c.Verdict != catalog.Safe {
		t.Errorf("merged with an interrupted repetition whose verdict is unknown: %s, want safe", c.Verdict)
	}
	// Exclusive is unknown if it is unknown for any repetition.
	unseen := played(9, 1)
	unseen.Exclusive = nil
	if c := played(9, 1).first().merge(unseen); c.Exclusive != nil {
		t.Errorf("exclusive is %s, want unknown", *c.Exclusive)
	}
}

// TestRepeat checks that cells without a fault are repeated in rounds, and cells with a fault run
// once. A resumed run must run only the missing repetitions.
func TestRepeat(t *testing.T) {
	t.Parallel()
	var began []string
	play := func(w *worker, _ context.Context, s *cellSpec) Cell {
		if s.Fault == catalog.NoFault {
			began = append(began, s.Strategy)
			if want := (len(began)-1)/3 + 1; w.repetition != want {
				t.Errorf("%s is repetition %d, want %d", s, w.repetition, want)
			}
		}
		c := played(10, float64(len(began)))
		c.Strategy, c.Fault = s.Strategy, s.Fault
		return c
	}
	r := matrix(t, "none,mutex,setnx", "none,pause", play)
	r.cfg.Repeat = 4
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r.save = func(run *Run) error {
		if len(began) == 7 {
			stop()
		}
		if run.Complete {
			t.Error("the run is complete before all repetitions")
		}
		return nil
	}
	if err := r.fill(t, ctx); err == nil {
		t.Fatal("the run was not interrupted")
	}
	resumed := matrix(t, "none,mutex,setnx", "none,pause", func(_ *worker, _ context.Context, s *cellSpec) Cell {
		if s.Fault == catalog.NoFault {
			began = append(began, s.Strategy)
		}
		c := played(10, 1)
		c.Strategy, c.Fault = s.Strategy, s.Fault
		return c
	})
	resumed.cfg.Repeat, resumed.cfg.Resume = 4, r.run
	if err := resumed.fill(t, t.Context()); err != nil {
		t.Fatal(err)
	}
	if !resumed.run.Complete {
		t.Error("the resumed run is not complete")
	}
	for _, c := range resumed.run.Cells {
		want := 4
		if c.Fault != catalog.NoFault {
			want = 0
		}
		if len(c.Repetitions) != want {
			t.Errorf("%s/%s has %d repetitions, want %d", c.Strategy, c.Fault, len(c.Repetitions), want)
		}
	}
	if len(began) != 12 {
		t.Fatalf("tests that began: %v", began)
	}
	orders := map[string]bool{}
	for round := range slices.Chunk(began[:6], 3) {
		orders[round[0]+round[1]+round[2]] = true
		if slices.Sort(round); !slices.Equal(round, []string{"mutex", "none", "setnx"}) {
			t.Errorf("a round has the strategies %v, want each one once", round)
		}
	}
}

// TestRepeatedCell runs two repetitions of a cell. Each must have figures and its own file of
// responses.
func TestRepeatedCell(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "setnx")
	cfg.Repeat = 2
	run, err := Execute(t.Context(), cfg, func(*Run) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	c := run.Cells[0]
	if len(c.Repetitions) != 2 || c.Verdict != catalog.Safe || c.Orders != 2*cfg.Orders || *c.OrdersGrabbed != c.Orders || run.Config.Repeat != 2 {
		t.Errorf("repeated cell: %+v", c)
	}
	for _, r := range c.Repetitions {
		if r.Latency == nil || r.Latency.P50 <= 0 || *r.GrabsPerS <= 0 {
			t.Errorf("repetition: %+v", r)
		}
	}
	for _, name := range []string{"setnx-none.vegeta.bin", "setnx-none-2.vegeta.bin"} {
		if info, err := os.Stat(filepath.Join(cfg.Out, name)); err != nil || info.Size() == 0 {
			t.Errorf("file %s: %v", name, err)
		}
	}
}

// kept lists the fields of a merged cell that come from its first repetition only.
var kept = []string{
	"Strategy", "Fault", "Expected", "ExpectedExclusive", "Interrupted", "Environment", "Guard", "OnLost",
	"TTLMS", "LeaseMS", "WorkMS", "WaitMS", "OfferedRPS", "OverTime",
	"Points", "Struck", "Strikes", // only cells with a fault have these fields, and they run once
	"Peak", "Shard", "Merged", // the scenario peak and a shard run once
}

// twoCells returns two cells that differ in every field.
func twoCells() (a, b Cell) {
	fill(reflect.ValueOf(&a).Elem(), 1)
	fill(reflect.ValueOf(&b).Elem(), 2)
	a.Verdict, b.Verdict = catalog.Safe, catalog.Unsafe
	a.Exclusive, b.Exclusive = new(Yes), new(No)
	a.LoadHeld, b.LoadHeld = new(true), new(false)
	b.CountedFrom, b.Interrupted = fromAnswers, false
	b.Sale.Stock, b.Sale.OverTime = a.Sale.Stock, a.Sale.OverTime // the stock is the same in all repetitions, and the curve comes from the first one
	a.Checks[0] = check.Verdict{Property: catalog.OneWinner, Result: check.Pass}
	b.Checks[0] = check.Verdict{Property: catalog.OneWinner, Result: check.Fail}
	return a, b
}

// TestEveryFieldIsMerged checks that merging changes every field of a cell except those in kept, so
// that no new field is forgotten.
func TestEveryFieldIsMerged(t *testing.T) {
	a, b := twoCells()
	a = a.first()
	sum := reflect.ValueOf(a.merge(b))
	for i := range sum.NumField() {
		name := sum.Type().Field(i).Name
		same := reflect.DeepEqual(sum.Field(i).Interface(), reflect.ValueOf(a).Field(i).Interface())
		if same != slices.Contains(kept, name) {
			t.Errorf("%s: unchanged %v; a field must be merged, or be listed as kept", name, same)
		}
	}
}

// TestRepetitionsInEitherOrder merges two different cells, and then three, in every order. Only
// fields that name a repetition, or that come from the first one, may depend on the order.
func TestRepetitionsInEitherOrder(t *testing.T) {
	a, b := twoCells()
	merged := func(first Cell, others ...Cell) reflect.Value {
		c := first.first()
		for _, next := range others {
			c = c.merge(next)
		}
		return reflect.ValueOf(c)
	}
	for _, orders := range [][]reflect.Value{
		{merged(a, b), merged(b, a)},
		{merged(a, a, b), merged(a, b, a), merged(b, a, a)},
		{merged(a, b, b), merged(b, a, b), merged(b, b, a)},
	} {
		for i := range orders[0].NumField() {
			name := orders[0].Type().Field(i).Name
			if slices.Contains(kept, name) || name == "Repetitions" || name == "Reason" {
				continue
			}
			for n, other := range orders[1:] {
				if got, want := other.Field(i).Interface(), orders[0].Field(i).Interface(); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v in order %d, %v in the first", name, got, n+2, want)
				}
			}
		}
	}
}

// TestExclusiveInEveryRepetition checks the verdict on the lock for every result of three repetitions. One overlap decides,
// at any position, and one unknown result is enough for an unknown verdict without an overlap.
func TestExclusiveInEveryRepetition(t *testing.T) {
	results := []*string{new(Yes), new(No), nil}
	for n := range len(results) * len(results) * len(results) {
		all := []*string{results[n%3], results[n/3%3], results[n/9]}
		want := results[0]
		for _, r := range all {
			switch {
			case r != nil && *r == No:
				want = results[1]
			case r == nil && want == results[0]:
				want = nil
			}
		}
		got := bothExclusive(bothExclusive(all[0], all[1]), all[2])
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the results %d (0 is yes, 1 is no, 2 is unknown) combine to %v, want %v", n, got, want)
		}
	}
}

// TestLatencyOfRepetitions merges random latencies of three repetitions. The merged minimum and maximum
// must be those of all repetitions. Every other figure must be the median of the three values.
func TestLatencyOfRepetitions(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 1))
	var repetitions [3]Repetition
	for i := range repetitions {
		repetitions[i].Latency = new(load.Latency)
		for v, f := reflect.ValueOf(repetitions[i].Latency).Elem(), 0; f < v.NumField(); f++ {
			v.Field(f).SetFloat(r.Float64())
		}
	}
	got := reflect.ValueOf(*medianLatency(repetitions[:], func(r Repetition) *load.Latency { return r.Latency }))
	for f := range got.NumField() {
		var values []float64
		for _, r := range repetitions {
			values = append(values, reflect.ValueOf(*r.Latency).Field(f).Float())
		}
		slices.Sort(values)
		name, want := got.Type().Field(f).Name, values[1]
		switch name {
		case "Min":
			want = values[0]
		case "Max":
			want = values[2]
		}
		if got.Field(f).Float() != want {
			t.Errorf("%s: %v, want %v of %v", name, got.Field(f), want, values)
		}
	}
}

// knownOfSome lists the figures that a merged cell reports if at least one repetition reports them.
var knownOfSome = []string{
	"Latency", "LatencySent", "CompletedRPS", "RedisCommandsPerRequest", "DBStatementsPerRequest", "BeliefGapMS", "LongestCompensationMS",
}

// TestFigureThatARepetitionLacks removes one figure at a time from one of three repetitions. The merged
// figure is then unknown, or must be listed in knownOfSome.
func TestFigureThatARepetitionLacks(t *testing.T) {
	test := func(name string, of func(*Cell) reflect.Value) {
		for at := range 3 {
			var cells [3]Cell
			for i := range cells {
				cells[i], _ = twoCells()
			}
			of(&cells[at]).SetZero()
			sum := cells[0].first().merge(cells[1]).merge(cells[2])
			if known := !of(&sum).IsNil(); known != slices.Contains(knownOfSome, name) {
				t.Errorf("repetition %d lacks %s: the merged figure is known: %v", at+1, name, known)
			}
		}
	}
	skip := append([]string{"Sale", "Timeline"}, kept...)
	for i := range reflect.TypeFor[Cell]().NumField() {
		if f := reflect.TypeFor[Cell]().Field(i); f.Type.Kind() == reflect.Pointer && !slices.Contains(skip, f.Name) {
			test(f.Name, func(c *Cell) reflect.Value { return reflect.ValueOf(c).Elem().Field(i) })
		}
	}
	for i := range reflect.TypeFor[Sale]().NumField() {
		if f := reflect.TypeFor[Sale]().Field(i); f.Type.Kind() == reflect.Pointer && f.Name != "OverTime" { // the curve comes from the first repetition
			test(f.Name, func(c *Cell) reflect.Value { return reflect.ValueOf(c.Sale).Elem().Field(i) })
		}
	}
}

// fill sets every exported field to a value that depends on n.
func fill(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprint(n))
	case reflect.Bool:
		v.SetBool(n > 1)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Float64:
		v.SetFloat(float64(n))
	}
}

// TestTimesOfAMerge checks that a merged result has the start time and the duration of the load, and not those of the merge.
func TestTimesOfAMerge(t *testing.T) {
	began := time.Date(2026, 11, 20, 21, 30, 0, 0, time.UTC)
	merge := shard.New(2, []shard.Part{{Record: shard.Record{Index: 0, BeganAt: began.Add(time.Second)}}, {Record: shard.Record{Index: 1, BeganAt: began}}}, nil)
	r := newRunner(Config{Merge: merge}, nil)
	r.specs = []*cellSpec{{cell: &Cell{DurationS: new(4.5)}}}
	r.publishLocked()
	if !r.run.StartedAt.Equal(began) || r.run.DurationS != 4.5 {
		t.Errorf("begun %v, took %v s; want %v and 4.5 s", r.run.StartedAt, r.run.DurationS, began)
	}
}

// TestFiguresOfAnIncompleteMerge checks which figures a merge withholds if a shard is lost, or if the
// shards' clocks differ too much. It must withhold only figures that depend on all shards or on the
// clocks.
func TestFiguresOfAnIncompleteMerge(t *testing.T) {
	const ofAll, ofClocks, ofBoth = "UnacknowledgedGrabs Checks", "Latency LatencySent LoadHeld OverTime CompletedRPS DurationS ContendedOrders", "Undersold SoldOutMS InOrder OverTime"
	for bits := range 1 << 3 {
		lost, apart, other := bits&1 != 0, bits&2 != 0, bits&4 != 0
		var c, before Cell
		for _, cell := range []*Cell{&c, &before} {
			fill(reflect.ValueOf(cell).Elem(), 3)
			cell.Merged.Lost, cell.Merged.ClocksApartMS = nil, 0
			if lost {
				cell.Merged.Lost = []string{"shard 1 of 2"}
			}
			if apart {
				cell.Merged.ClocksApartMS = 60_000
			}
		}
		m := measured{invalid: map[bool]string{true: "events were lost"}[other]}
		c.withhold(&m)
		var gone, want []string
		for _, part := range []struct{ now, was reflect.Value }{{reflect.ValueOf(c), reflect.ValueOf(before)}, {reflect.ValueOf(*c.Sale), reflect.ValueOf(*before.Sale)}} {
			for n := range part.now.NumField() {
				name := part.now.Type().Field(n).Name
				switch {
				case name == "Sale":
				case part.now.Field(n).IsZero() && !part.was.Field(n).IsZero():
					gone = append(gone, name)
				case !reflect.DeepEqual(part.now.Field(n).Interface(), part.was.Field(n).Interface()):
					t.Errorf("lost %v, apart %v: %s has changed", lost, apart, name)
				}
			}
		}
		for names, holds := range map[string]bool{ofAll: lost, ofClocks: apart, ofBoth: lost || apart || other} {
			if holds {
				want = append(want, strings.Fields(names)...)
			}
		}
		slices.Sort(gone)
		slices.Sort(want)
		if !slices.Equal(gone, want) || (m.invalid != "") != (lost || apart || other) || lost != strings.HasPrefix(m.invalid, "incomplete") {
			t.Errorf("lost %v, apart %v, invalid before %v: without %q, want %q; %q", lost, apart, other, gone, want, m.invalid)
		}
	}
}

// TestEveryFigureOfARepetition converts a cell with values in all fields to a repetition. The
// repetition must have the cell's value in each field of the same name, and no empty field.
func TestEveryFigureOfARepetition(t *testing.T) {
	var c Cell
	fill(reflect.ValueOf(&c).Elem(), 2)
	got := reflect.ValueOf(c.repetition())
	for i := range got.NumField() {
		name := got.Type().Field(i).Name
		of := reflect.ValueOf(c).FieldByName(name)
		if got.Field(i).IsZero() || of.IsValid() && !reflect.DeepEqual(got.Field(i).Interface(), of.Interface()) {
			t.Errorf("%s: %v, and the cell has %v", name, got.Field(i), of)
		}
	}
}

// TestRoundsAreShuffled repeats ten tests, some of which have run before. Each round must contain every
// test that lacks a repetition, in an order that depends only on the seed.
func TestRoundsAreShuffled(t *testing.T) {
	const repeat = 3
	specs := make([]*cellSpec, 10)
	for i := range specs {
		specs[i] = &cellSpec{CellName: CellName{Strategy: fmt.Sprint(i)}}
		if done := i % (repeat + 2); done > 0 {
			c := played(10, 1).first()
			for range done - 1 {
				c = c.merge(played(10, 1))
			}
			c.Interrupted = done > repeat
			specs[i].cell = &c
		}
	}
	text := func(seed uint64) string {
		return fmt.Sprint(catalog.Map(rounds(specs, repeat, seed), (*cellSpec).String))
	}
	for seed := range uint64(20) {
		times := map[*cellSpec]int{}
		for _, s := range rounds(specs, repeat, seed) {
			times[s]++
		}
		for i, s := range specs {
			want := repeat - i%(repeat+2)
			if want < 0 { // the interrupted one counts as not run
				want = repeat
			}
			if times[s] != want {
				t.Errorf("seed %d: test %d runs %d times, want %d", seed, i, times[s], want)
			}
		}
		if same := text(seed) == text(0); same != (seed == 0) {
			t.Errorf("seeds %d and 0 shuffle alike: %v", seed, same)
		}
	}
	if got := rounds(specs[:1], 1, 7); len(got) != 1 || got[0] != specs[0] {
		t.Errorf("one test: %v", got)
	}
	once := rounds(specs, 1, 7)
	if !slices.IsSortedFunc(once, func(a, b *cellSpec) int { return strings.Compare(a.Strategy, b.Strategy) }) {
		t.Errorf("without repetitions, the order changes: %v", once)
	}
}

// TestEachPercentileOfRepetitions merges repetitions whose latencies all differ. The merged minimum and
// maximum must be those of all repetitions. Every percentile must be the median of its values.
func TestEachPercentileOfRepetitions(t *testing.T) {
	repetition := func(n float64) Cell {
		var c Cell
		for i, l := range []**load.Latency{&c.Latency, &c.LatencySent} {
			*l = new(load.Latency)
			for field := range reflect.TypeFor[load.Latency]().NumField() {
				reflect.ValueOf(*l).Elem().Field(field).SetFloat(float64(1000*i+100*field) + n)
			}
		}
		return c
	}
	c := repetition(2).first().merge(repetition(1)).merge(repetition(3))
	for i, l := range []*load.Latency{c.Latency, c.LatencySent} {
		for field := range reflect.TypeFor[load.Latency]().NumField() {
			name, n := reflect.TypeFor[load.Latency]().Field(field).Name, 2
			switch name {
			case "Min":
				n = 1
			case "Max":
				n = 3
			}
			if got, want := reflect.ValueOf(*l).Field(field).Float(), float64(1000*i+100*field+n); got != want {
				t.Errorf("latency %d, %s: %v, want %v", i+1, name, got, want)
			}
		}
	}
}

// TestWorstChecks merges the results of two properties in every combination. A failure is worse than an unknown result,
// which is worse than a pass. A result that only one repetition has stays.
func TestWorstChecks(t *testing.T) {
	results := []check.Result{"", check.Pass, check.Unknown, check.Fail} // empty: not checked
	checks := func(n int) (all []check.Verdict) {
		for i, property := range []string{catalog.OneWinner, catalog.StuckOrder} {
			if result := results[n>>(2*i)&3]; result != "" {
				all = append(all, check.Verdict{Property: property, Result: result})
			}
		}
		return all
	}
	for a := range 16 {
		for b := range 16 {
			got := worstChecks(checks(a), checks(b))
			want := checks(max(a&3, b&3) | max(a&12, b&12))
			slices.SortFunc(got, func(x, y check.Verdict) int { return strings.Compare(x.Property, y.Property) })
			slices.SortFunc(want, func(x, y check.Verdict) int { return strings.Compare(x.Property, y.Property) })
			if !slices.Equal(got, want) {
				t.Errorf("%v and %v: %v, want %v", checks(a), checks(b), got, want)
			}
		}
	}
}
