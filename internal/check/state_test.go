package check

import (
	"testing"
	"time"

	"grablab/internal/history"
	"grablab/internal/order"
)

// TestLeaseEnds checks the end of a lease. The duration in the event takes precedence over the
// usual duration, and an endless lease has no end.
func TestLeaseEnds(t *testing.T) {
	const at, usual, own = 100 * time.Second, 10 * time.Second, 3 * time.Second
	for _, tt := range []struct{ usual, own, want time.Duration }{
		{0, 0, 0}, {usual, 0, at + usual}, {0, own, at + own}, {usual, own, at + own}, {usual, history.Endless, 0}, {0, history.Endless, 0},
	} {
		s := &orderState{builder: &builder{Case: Case{Lease: tt.usual}}}
		if got := s.leaseEnd(history.Event{T: at, Lease: tt.own}); got != tt.want {
			t.Errorf("usual %s, own %s: %s, want %s", tt.usual, tt.own, got, tt.want)
		}
	}
}

// TestRenewalExtendsTheLease checks that a driver's successful renewal extends its lease. A failed
// renewal, or a renewal by another driver, must not extend it.
func TestRenewalExtendsTheLease(t *testing.T) {
	const lease = 10 * time.Second
	event := func(driver int64, at time.Duration, op string, kind history.Kind) history.Event {
		return history.Event{Driver: driver, T: at, Op: op, Kind: kind, Instance: "8004", Lease: lease}
	}
	for _, tt := range []struct {
		renewal history.Event
		until   time.Duration
	}{
		{event(1, 5*time.Second, history.Renew, history.OK), 15 * time.Second},
		{event(1, 5*time.Second, history.Renew, history.Fail), lease},
		{event(2, 5*time.Second, history.Renew, history.OK), lease},
	} {
		s := &orderState{builder: &builder{}, beliefs: map[actor]string{}}
		s.apply(event(1, 0, history.Acquire, history.OK))
		s.apply(tt.renewal)
		if len(s.inside) != 1 || s.inside[0].until != tt.until || s.inside[0].leaves {
			t.Errorf("%+v: inside %+v, want until %s", tt.renewal, s.inside, tt.until)
		}
	}
}

// TestStaleWriteInLedger checks ledgers without a record. A violation is a lower token after a
// higher token of the same order, if the guard uses tokens. In all other cases, the result is
// unknown.
func TestStaleWriteInLedger(t *testing.T) {
	row := func(id int64, fence uint64) order.Grab { return order.Grab{Order: id, Fence: fence} }
	for _, tt := range []struct {
		ledger []order.Grab
		guard  order.Guard
		want   Result
		why    string
	}{
		{[]order.Grab{row(7, 2), row(8, 1), row(7, 1)}, order.Fenced, Fail, "order 7 was written with token 2, and after that with token 1"},
		{[]order.Grab{row(7, 1), row(7, 3), row(7, 2)}, order.FenceWrite, Fail, "order 7 was written with token 3, and after that with token 2"},
		{[]order.Grab{row(7, 1), row(7, 1), row(7, 2), row(8, 1)}, order.Fenced, Unknown, "the fencing tokens were not recorded"},
		{[]order.Grab{row(7, 2), row(7, 1)}, order.Naive, Unknown, "the guard does not look at fencing tokens"},
	} {
		if v := staleWrite(Evidence{Ledger: tt.ledger, Guard: tt.guard}); v.Result != tt.want || v.Why != tt.why {
			t.Errorf("%v under %s: %+v, want %s: %s", tt.ledger, tt.guard, v, tt.want, tt.why)
		}
	}
}
