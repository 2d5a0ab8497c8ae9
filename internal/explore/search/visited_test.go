package search

import "testing"

// TestCovers adds every pair of visits of a state and asks about every third one. A visit covers
// another one if it costs no more and took no more steps. A state is never covered in fewer steps
// than any visit took, or at a lower cost than all visits: the search would then skip a schedule that
// is shorter than the one that it knows.
func TestCovers(t *testing.T) {
	type visit struct {
		cost  Cost
		steps int
	}
	var all []visit
	for p := range int8(3) {
		for f := range int8(2) {
			for _, steps := range []int{4, 5, 9} {
				all = append(all, visit{Cost{p, f}, steps})
			}
		}
	}
	const state, other = 1, 2
	for _, a := range all {
		for _, b := range all {
			v := Visited{}
			v.Add(state, a.cost, a.steps)
			v.Add(state, b.cost, b.steps)
			for _, c := range all {
				covers := func(x visit) bool { return x.cost.Within(c.cost) && x.steps <= c.steps }
				got := v.Covers(state, c.cost, c.steps)
				if want := covers(a) || covers(b); want && !got {
					t.Fatalf("%v and %v do not cover %v", a, b, c)
				}
				if got && c.steps < min(a.steps, b.steps) {
					t.Fatalf("%v and %v cover %v, which has fewer steps", a, b, c)
				}
				if got && !a.cost.Within(c.cost) && !b.cost.Within(c.cost) {
					t.Fatalf("%v and %v cover %v, which costs less", a, b, c)
				}
				if v.Covers(other, c.cost, c.steps) {
					t.Fatalf("%v and %v cover %v of another state", a, b, c)
				}
			}
		}
	}
}
