package check_test

import (
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/check"
	"grablab/internal/history"
)

// TestHoldUntilClaim checks locks that the claim releases. The next driver is allowed to enter
// before the winner calls release, but not before the winner's claim.
func TestHoldUntilClaim(t *testing.T) {
	event := func(t time.Duration, driver int64, op string, kind history.Kind) history.Event {
		return history.Event{T: t, Instance: "i", Order: 1, Driver: driver, Token: string(rune('a' + driver)), Op: op, Kind: kind}
	}
	for _, tt := range []struct {
		name              string
		entered           time.Duration // when the second driver got the lock
		untilClaim, toEnd int           // number of overlaps if the claim releases the lock, and if it does not
	}{
		{"before the claim", 2, 1, 1},
		{"between claim and release", 4, 0, 1},
		{"after the release", 6, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for until, want := range map[bool]int{true: tt.untilClaim, false: tt.toEnd} {
				scan := check.Scan{UntilClaim: until}
				events := []history.Event{
					event(1, 1, history.Acquire, history.OK), event(3, 1, history.Claim, history.Invoke), event(5, 1, history.Release, history.Invoke),
					event(tt.entered, 2, history.Acquire, history.OK), event(8, 2, history.Release, history.Invoke),
				}
				for i, e := range events {
					e.Seq = uint64(i + 1)
					scan.Add(e)
				}
				rec := scan.Record()
				if got := len(check.Overlaps(rec.Holds, catalog.Global)); got != want || rec.MissingEvents != 0 {
					t.Errorf("until claim %v: %d overlaps and %d lost, want %d", until, got, rec.MissingEvents, want)
				}
			}
		})
	}
}
