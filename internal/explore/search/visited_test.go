package search

import "testing"

// TestCovers checks for every pair of recorded visits which further visits they cover. A visit covers
// another one that costs at least as much and took at least as many steps. A visit with fewer steps or a
// lower cost than all recorded visits must not be covered. Otherwise, the search would skip a shorter
// schedule than the one that it knows.
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
