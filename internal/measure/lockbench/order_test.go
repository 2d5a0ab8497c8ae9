package lockbench

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"grablab/internal/grab/lock"
)

// TestOrderOfSlicesAndHolds shuffles the holds of a slice and the slices of a row. No figure may
// depend on the order in which the holds and slices were reported.
func TestOrderOfSlicesAndHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 9))
	s, err := lock.Find("setnx")
	if err != nil {
		t.Fatal(err)
	}
	subject := Subject{Strategy: s}
	for range 100 {
		c := Case{Name: "case", Workers: 4, Processes: 2, Keys: 1}
		var of []Slice
		for round := range 1 + random.IntN(5) {
			tr := trace{Case: c, span: time.Second, counted: 1}
			at := 0
			for range 1 + random.IntN(12) {
				asked := at + random.IntN(5)
				acquired := asked + 1 + random.IntN(20)
				released := acquired + random.IntN(30)
				hold := h(random.IntN(4), asked, acquired, released)
				hold.GaveUp = random.IntN(3)
				tr.holds = append(tr.holds, hold)
				at = acquired
			}
			want := measure(round, tr, subject)
			random.Shuffle(len(tr.holds), func(i, j int) { tr.holds[i], tr.holds[j] = tr.holds[j], tr.holds[i] })
			if got := measure(round, tr, subject); !reflect.DeepEqual(got, want) {
				t.Fatalf("holds in another order: %+v, want %+v", got, want)
			}
			of = append(of, want)
		}
		r := &Result{}
		want := r.row(subject, c, of)
		random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		if got := r.row(subject, c, of); !reflect.DeepEqual(got, want) {
			t.Fatalf("slices in another order: %+v, want %+v", got, want)
		}
		if len(of) < 2 {
			continue
		}
		if rest := r.row(subject, c, of[1:]); *rest.Violations > *want.Violations || *rest.GaveUp > *want.GaveUp || rest.Acquisitions > want.Acquisitions {
			t.Fatalf("one more slice lowers a count: %+v, %+v", rest, want)
		}
	}
}
