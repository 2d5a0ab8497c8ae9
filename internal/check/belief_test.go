package check_test

import (
	"testing"
	"time"

	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/history"
	"grablab/internal/order"
)

func TestBeliefGap(t *testing.T) {
	for _, tt := range []struct {
		name  string
		among lock.Exclusion
		tape  func(*tape)
		want  time.Duration
		known bool
	}{
		{"nobody lost it", lock.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.leave(2, "A", 7, 1, "a")
			r.enter(3, "B", 7, 2, "b")
		}, 0, false},
		{"learned by its renewal", lock.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.add(8, "A", history.Info, history.Lost, 7, 1, "a", "")
			r.leave(9, "A", 7, 1, "a")
			r.add(10, "A", history.Fail, history.Release, 7, 1, "a", lock.ErrLost.Error())
		}, 3, true},
		{"learned before another had it", lock.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.add(4, "A", history.Info, history.Lost, 7, 1, "a", "")
			r.enter(5, "B", 7, 2, "b")
		}, 0, false},
		{"learned by the release alone", lock.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.leave(9, "A", 7, 1, "a")
			r.add(11, "A", history.Fail, history.Release, 7, 1, "a", "release: "+lock.ErrLost.Error())
		}, 6, true},
		{"learned by a refused write", lock.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.add(7, "A", history.Fail, history.Claim, 7, 1, "a", order.ErrStale.Error())
		}, 2, true},
		{"never learned", lock.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.leave(9, "A", 7, 1, "a")
			r.add(11, "A", history.OK, history.Release, 7, 1, "a", "")
		}, 0, false},
		{"a release that only failed teaches nothing", lock.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(5, "B", 7, 2, "b")
			r.leave(9, "A", 7, 1, "a")
			r.add(11, "A", history.Fail, history.Release, 7, 1, "a", "connection refused")
		}, 0, false},
		{"the longest of several", lock.Global, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.add(3, "A", history.Info, history.Lost, 7, 1, "a", "")
			r.enter(4, "A", 8, 1, "c")
			r.enter(5, "B", 8, 2, "d")
			r.add(9, "A", history.Info, history.Lost, 8, 1, "c", "")
		}, 4, true},
		{"another process owes nothing", lock.Process, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.add(9, "A", history.Info, history.Lost, 7, 1, "a", "")
		}, 0, false},
		{"no lock", lock.Nobody, func(r *tape) {
			r.enter(1, "A", 7, 1, "a")
			r.enter(2, "B", 7, 2, "b")
			r.add(9, "A", history.Info, history.Lost, 7, 1, "a", "")
		}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r tape
			tt.tape(&r)
			if got, known := check.BeliefGap(r.scan.Record().Holds, tt.among); got != tt.want || known != tt.known {
				t.Errorf("got %v, %v, want %v, %v", got, known, tt.want, tt.known)
			}
		})
	}
}
