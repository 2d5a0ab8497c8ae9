package check_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/history"
	"grablab/internal/order"
)

// TestBeliefGapByDefinition compares the belief gap of random holds, in any order, with the longest
// gap that a search through all pairs of holds finds.
func TestBeliefGapByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 17))
	for range 2000 {
		holds := make([]check.Hold, 1+r.IntN(7))
		for i, from := range r.Perm(40)[:len(holds)] { // no two holds begin at the same time
			holds[i].Order, holds[i].Driver, holds[i].Instance = 1+r.Int64N(2), int64(i), []string{"A", "B"}[r.IntN(2)]
			holds[i].From = time.Duration(from + 1)
			if r.IntN(3) > 0 {
				holds[i].LossKnownAt = holds[i].From + time.Duration(r.IntN(30))
			}
		}
		for _, among := range []catalog.Exclusion{catalog.Global, catalog.PerProcess, catalog.NoExclusion} {
			var want time.Duration
			for _, h := range holds {
				for _, next := range holds {
					sameLock := h.Order == next.Order && (among == catalog.Global || among == catalog.PerProcess && h.Instance == next.Instance)
					if sameLock && next.From > h.From {
						want = max(want, h.LossKnownAt-next.From)
					}
				}
			}
			if got, ok := check.BeliefGap(holds, among); got != want || ok != (want > 0) {
				t.Fatalf("BeliefGap: %v, %+v: %v, %v, want %v", among, holds, got, ok, want)
			}
		}
	}
}

func TestBeliefGap(t *testing.T) {
	for _, tt := range []struct {
		name  string
		among catalog.Exclusion
		tape  func(*tape)
		want  time.Duration
		known bool
	}{
		{"no holder lost it", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.leave(2, "A", 7, 1, "a")
			r.enter(3, "B", 7, 2, "b")
		}, 0, false},
		{"learned by its renewal", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.add(8, "A", history.Info, history.Lost, 7, 1, "a", "")
			r.leave(9, "A", 7, 1, "a")
			r.fails(10, "A", history.Release, 7, 1, "a", history.LeaseLost, "lost")
		}, 3, true},
		{"learned before another had it", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.add(4, "A", history.Info, history.Lost, 7, 1, "a", "")
			r.enter(5, "B", 7, 2, "b")
		}, 0, false},
		{"learned at the instant at which another had it", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.add(5, "A", history.Info, history.Lost, 7, 1, "a", "")
		}, 0, false},
		{"learned twice: the first time counts", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.add(7, "A", history.Info, history.Lost, 7, 1, "a", "")
			r.leave(9, "A", 7, 1, "a")
			r.fails(11, "A", history.Release, 7, 1, "a", history.LeaseLost, "lost")
		}, 2, true},
		{"another call that fails as the lease is lost teaches nothing", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.fails(7, "A", history.Read, 7, 1, "a", history.LeaseLost, "lost")
		}, 0, false},
		{"learned by the release alone", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.leave(9, "A", 7, 1, "a")
			r.fails(11, "A", history.Release, 7, 1, "a", history.LeaseLost, "release: lost")
		}, 6, true},
		{"learned by a refused write", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.fails(7, "A", history.Claim, 7, 1, "a", history.Stale, order.ErrStale.Error())
		}, 2, true},
		{"never learned", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.leave(9, "A", 7, 1, "a")
			r.add(11, "A", history.OK, history.Release, 7, 1, "a", "")
		}, 0, false},
		{"a release that only failed teaches nothing", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.leave(9, "A", 7, 1, "a")
			r.fails(11, "A", history.Release, 7, 1, "a", "dependency", "connection refused")
		}, 0, false},
		{"the longest of several", catalog.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.add(3, "A", history.Info, history.Lost, 7, 1, "a", "")
			r.enter(4, "A", 8, 1, "c")
			r.enter(5, "B", 8, 2, "d")
			r.add(9, "A", history.Info, history.Lost, 8, 1, "c", "")
		}, 4, true},
		{"another process owes nothing", catalog.PerProcess, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.add(9, "A", history.Info, history.Lost, 7, 1, "a", "")
		}, 0, false},
		{"no lock", catalog.NoExclusion, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.add(9, "A", history.Info, history.Lost, 7, 1, "a", "")
		}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r tape
			tt.tape(&r)
			if got, known := check.BeliefGap(r.scan.Record().Holds, tt.among); got != tt.want || known != tt.known {
				t.Errorf("BeliefGap: got %v, %v, want %v, %v", got, known, tt.want, tt.known)
			}
		})
	}
}
