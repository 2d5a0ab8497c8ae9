package lockbench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"grablab/internal/catalog"
)

// sevenRounds returns seven slices of setnx in a case. Every figure is known, and is the same in
// all rounds.
func sevenRounds(c Case) (of []Slice) {
	for round := range 7 {
		s := Slice{Round: round + 1, Figures: Figures{Strategy: "setnx", Case: c.Name, Acquisitions: 2, Violations: new(3)}, GaveUp: 4, Turns: new(5), waits: []float64{1}}
		for _, f := range figureFields(&s.Figures) {
			f.Set(100)
		}
		of = append(of, s)
	}
	return of
}

// field gives access to one figure of a slice or a row.
type field struct {
	name string
	v    reflect.Value
}

func (f field) Set(x float64) {
	if f.v.Kind() == reflect.Pointer {
		f.v.Set(reflect.ValueOf(&x))
		return
	}
	f.v.SetFloat(x)
}

func (f field) Get() float64 {
	if f.v.Kind() == reflect.Pointer {
		return f.v.Elem().Float()
	}
	return f.v.Float()
}

// figureFields returns the measured figures, without the names and the counts.
func figureFields(f *Figures) (fields []field) {
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		if typ := v.Type().Field(i).Type; typ == reflect.TypeFor[float64]() || typ == reflect.TypeFor[*float64]() {
			fields = append(fields, field{v.Type().Field(i).Name, v.Field(i)})
		}
	}
	return fields
}

// TestRowOfEachFigure changes one figure of the slices at a time. In the row, this figure must be
// the median of the changed values, and no other figure may change.
func TestRowOfEachFigure(t *testing.T) {
	r := &Result{}
	subject, err := Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	for i, changed := range figureFields(new(Figures)) {
		of := sevenRounds(Cases[2])
		for round := range of {
			figureFields(&of[round].Figures)[i].Set([]float64{7, 1, 6, 2, 5, 3, 4}[round])
		}
		row := r.row(subject, Cases[2], of)
		for _, f := range figureFields(&row.Figures) {
			want := 100.0
			if f.name == changed.name {
				want = 4
			}
			if got := f.Get(); got != want {
				t.Errorf("%s was changed: %s of the row is %v, want %v", changed.name, f.name, got, want)
			}
		}
		for name, interval := range map[string][2]float64{"OpsPerS": {row.OpsLow, row.OpsHigh}, "GapP50US": {*row.GapLow, *row.GapHigh}} {
			want := [2]float64{100, 100}
			if changed.name == name {
				want = [2]float64{1, 7}
			}
			if interval != want {
				t.Errorf("%s was changed: the interval of %s is %v, want %v", changed.name, name, interval, want)
			}
		}
	}
}

// TestRowCounts checks the counts in a row. The row must have the sums of the counts, and the longest
// wait and the most turns of all rounds. It must not matter in which round they occur.
func TestRowCounts(t *testing.T) {
	subject, err := Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	for longest := range 7 {
		of := sevenRounds(Cases[2])
		for i := range of {
			of[i].Acquisitions, of[i].GaveUp, *of[i].Violations = 1<<i, 10<<i, 100<<i
			if of[i].waits = []float64{2, 1}; i == longest {
				of[i].Turns, of[i].waits = new(9), []float64{8, 1}
			}
		}
		of[6-longest].Turns = nil // if longest is 3, this removes the largest value
		row := (&Result{}).row(subject, Cases[2], of)
		turns := 9
		if longest == 3 {
			turns = 5
		}
		if row.Acquisitions != 127 || *row.GaveUp != 1270 || *row.Violations != 12700 || *row.Turns != turns || *row.LongestMS != 8 || *row.WaitP999MS != 8 || row.Rounds != 7 {
			t.Errorf("longest wait in round %d: %d acquisitions, gave up %d, %d overlaps, %d turns, waits of %v and %v ms, %d rounds",
				longest, row.Acquisitions, *row.GaveUp, *row.Violations, *row.Turns, *row.LongestMS, *row.WaitP999MS, row.Rounds)
		}
	}
}

// TestRatioOfEachCase checks which figure of a lock is compared with the floor. For workers that
// share a key, it is the hand-off gap. For workers with their own keys, it is the time per
// acquisition. For a single worker, it is the time of an acquire and a release.
func TestRatioOfEachCase(t *testing.T) {
	for _, c := range Cases {
		r := &Result{}
		for round := range 7 {
			f := Figures{Strategy: Floor, Case: c.Name, P50US: 2, OpsPerS: 1000, GapP50US: new(4.0)}
			r.Slices = append(r.Slices, Slice{Round: round, Figures: f})
			f = Figures{Strategy: "setnx", Case: c.Name, P50US: 6, OpsPerS: 200, GapP50US: new(14.0), Violations: new(0)}
			r.Slices = append(r.Slices, Slice{Round: round, Figures: f, waits: []float64{1}})
		}
		subject, err := Find("setnx")
		if err != nil {
			t.Fatal(err)
		}
		want := 3.0
		switch c.Name {
		case "many_keys":
			want = 5
		case "waves", "waves-apart", "closed_loop", "mixed":
			want = 7
		}
		if row := r.row(subject, c, r.series("setnx", c.Name)); math.Abs(*row.Ratio-want) > 1e-9 {
			t.Errorf("%s: ratio %v, want %v", c.Name, *row.Ratio, want)
		}
	}
}

// TestWaitOverRotation checks the wait divided by the time of a full rotation. With 4 workers that
// each hold the lock for 200 µs, and gaps of 50 µs, a rotation takes one millisecond.
func TestWaitOverRotation(t *testing.T) {
	c := Case{Name: "c", Workers: 4, Keys: 1, Held: 200 * time.Microsecond}
	r := &Result{}
	for round, ms := range []float64{9, 3, 6} {
		r.Slices = append(r.Slices, Slice{Round: round, WaitP999MS: ms, Figures: Figures{Strategy: "x", Case: "c", GapP50US: new(50.0)}})
	}
	r.Slices = append(r.Slices, Slice{Round: 3, WaitP999MS: 100, Figures: Figures{Strategy: "x", Case: "c"}}) // without a known gap, this round must not count
	if got := waitOverRotation(r, c, "x").Median; math.Abs(got-6) > 1e-9 {
		t.Errorf("waitOverRotation returned %v, want 6", got)
	}
}

// TestLeftOutAfterFailures records up to five failures of a lock. From the third failure on, the
// lock must be left out, with the error of that third failure. Failures of other locks must not
// count.
func TestLeftOutAfterFailures(t *testing.T) {
	for fails := range 6 {
		r := newResult(Config{})
		for n := range fails {
			if r.isLeftOut("setnx") != (n >= maxFailures) {
				t.Errorf("after %d failures, left out is %v", n, r.isLeftOut("setnx"))
			}
			r.failed("setnx", fmt.Errorf("failure %d", n+1))
			r.failed("other "+fmt.Sprint(n), errors.New("another lock"))
		}
		var want []LeftOut
		if fails >= maxFailures {
			want = []LeftOut{{"setnx", "failure 3"}}
		}
		if !slices.Equal(r.LeftOut, want) || r.isLeftOut("setnx") != (len(want) > 0) || r.isLeftOut("other 0") {
			t.Errorf("after %d failures, left out are %+v, want %+v", fails, r.LeftOut, want)
		}
	}
}

// TestFiguresByDefinition compares the figures of random holds with a computation that examines
// every pair of holds, as the definitions of the figures do.
func TestFiguresByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 2000 {
		c := Case{Workers: 4, Processes: 2, Keys: 1}
		var holds []Hold
		for range 1 + r.IntN(7) {
			asked := r.IntN(20)
			acquired := asked + r.IntN(10)
			holds = append(holds, h(r.IntN(4), asked, acquired, acquired+r.IntN(10)))
		}
		slices.SortStableFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Acquired, b.Acquired) })
		turns, retakes, inside, insideOwn := 0, 0, 0, 0
		var gaps, across []float64
		for i, x := range holds {
			others, overlaps, overlapsOwn := 0, false, false
			for j, y := range holds[:i] {
				if y.Acquired >= x.Asked {
					others++
				}
				overlaps = overlaps || y.Released > x.Acquired
				overlapsOwn = overlapsOwn || y.Released > x.Acquired && c.processOf(y.Worker) == c.processOf(x.Worker)
				if j == i-1 && y.Worker == x.Worker {
					retakes++
				}
			}
			turns = max(turns, others)
			if overlaps {
				inside++
			}
			if overlapsOwn {
				insideOwn++
			}
			// Each hold up to x needed one request. If there were more requests by the release of
			// x, a worker waits.
			asked := 0
			for _, y := range holds {
				if y.Asked <= x.Released {
					asked++
				}
			}
			if i+1 < len(holds) && asked > i+1 {
				gap := us(max(0, holds[i+1].Acquired-x.Released))
				if gaps = append(gaps, gap); x.Worker/2 != holds[i+1].Worker/2 {
					across = append(across, gap)
				}
			}
		}
		gotGaps, gotAcross := handoffGaps(holds, c)
		if got := longestTurns(holds); got != turns || !slices.Equal(gotGaps, gaps) || !slices.Equal(gotAcross, across) {
			t.Fatalf("%d turns, gaps %v, across %v; want %d, %v, %v of %+v", got, gotGaps, gotAcross, turns, gaps, across, holds)
		}
		if got, want := selfRetake(holds), float64(retakes)/math.Max(1, float64(len(holds)-1)); got != want {
			t.Fatalf("%v taken again, want %v of %+v", got, want, holds)
		}
		if all, own := violations(holds, c, catalog.Global), violations(holds, c, catalog.PerProcess); all != inside || own != insideOwn {
			t.Fatalf("%d and %d overlaps, want %d and %d of %+v", all, own, inside, insideOwn, holds)
		}
	}
}
