package explore_test

import (
	"testing"

	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

func TestExpected(t *testing.T) {
	const unclaimed = lock.Verdict("")
	for _, tt := range []struct {
		strategy string
		guard    order.Guard
		faults   []string
		want     lock.Verdict
	}{
		{"none", "", nil, lock.Unsafe},
		{"mutex", "", nil, lock.Unsafe},
		{"mysql-cas", "", []string{"expiry", "pause", "crash"}, lock.Safe},
		{"setnx", "", nil, lock.Safe},
		{"setnx", "", []string{"crash", "cancel", "lost-reply"}, lock.Safe},
		{"setnx", "", []string{"crash", "pause"}, lock.Unsafe},
		{"setnx", order.Naive, []string{"expiry"}, lock.Unsafe},
		{"setnx", order.Guarded, []string{"expiry"}, unclaimed},
		{"setnx-check", "", []string{"pause"}, lock.Unsafe}, // behind its check
		{"setnx-fenced", "", []string{"expiry", "pause", "crash"}, lock.Safe},
		{"setnx-fence-write", "", []string{"pause"}, lock.Unsafe},
		{"setnx-nottl", "", []string{"crash"}, lock.Stuck},
		{"setnx-nottl", "", []string{"crash", "restart"}, lock.Unsafe},
		{"setnx-getset", "", []string{"client-clock"}, lock.Unsafe},
		{"watchdog", "", []string{"crash"}, lock.Safe},
		{"watchdog", "", []string{"pause"}, lock.Unsafe},
		{"redlock", "", []string{"down"}, lock.Safe},
		{"setnx-expire", "", []string{"down"}, lock.Stuck},
		{"setnx-fenced", "", []string{"restart"}, lock.Unsafe}, // two hold; one of them writes
		{"redlock", "", []string{"restart"}, lock.Unsafe},
		{"redlock-miswired", "", []string{"client-clock"}, lock.Safe},
		{"mysql-forupdate", "", []string{"expiry", "pause", "restart"}, lock.Safe},
		{"setnx-nottl", "", []string{"late-reply"}, lock.Stuck},
		{"setnx-late-fence", "", []string{"expiry"}, unclaimed},
	} {
		s, err := lock.Find(tt.strategy)
		if err != nil {
			t.Fatal(err)
		}
		if got := explore.Expected(s, tt.guard, tt.faults); got != tt.want {
			t.Errorf("%s %s with %v: %q, want %q", tt.strategy, tt.guard, tt.faults, got, tt.want)
		}
	}
}
