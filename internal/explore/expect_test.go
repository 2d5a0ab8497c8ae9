package explore_test

import (
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

func TestExpected(t *testing.T) {
	const unclaimed = lock.Verdict("")
	for _, tt := range []struct {
		strategy string
		guard    order.Guard
		faults   []catalog.Fault
		want     lock.Verdict
	}{
		{"none", "", nil, lock.Unsafe},
		{"mutex", "", nil, lock.Unsafe},
		{"mysql-cas", "", []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Crash}, lock.Safe},
		{"setnx", "", nil, lock.Safe},
		{"setnx", "", []catalog.Fault{catalog.Crash, catalog.Cancel, catalog.ReplyLost}, lock.Safe},
		{"setnx", "", []catalog.Fault{catalog.Crash, catalog.Pause}, lock.Unsafe},
		{"setnx", order.Naive, []catalog.Fault{catalog.Slow}, lock.Unsafe},
		{"setnx", order.Guarded, []catalog.Fault{catalog.Slow}, unclaimed},
		{"setnx-check", "", []catalog.Fault{catalog.Pause}, lock.Unsafe}, // behind its check
		{"setnx-fenced", "", []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Crash}, lock.Safe},
		{"setnx-fence-write", "", []catalog.Fault{catalog.Pause}, lock.Unsafe},
		{"setnx-nottl", "", []catalog.Fault{catalog.Crash}, lock.Stuck},
		{"setnx-nottl", "", []catalog.Fault{catalog.Crash, catalog.RedisRestart}, lock.Unsafe},
		{"setnx-getset", "", []catalog.Fault{catalog.ClientClock}, lock.Unsafe},
		{"watchdog", "", []catalog.Fault{catalog.Crash}, lock.Safe},
		{"watchdog", "", []catalog.Fault{catalog.Pause}, lock.Unsafe},
		{"redlock", "", []catalog.Fault{catalog.RedisDown}, lock.Safe},
		{"setnx-expire", "", []catalog.Fault{catalog.RedisDown}, lock.Stuck},
		{"setnx-fenced", "", []catalog.Fault{catalog.RedisRestart}, lock.Unsafe}, // two hold; one of them writes
		{"redlock", "", []catalog.Fault{catalog.RedisRestart}, lock.Unsafe},
		{"redlock-miswired", "", []catalog.Fault{catalog.ClientClock}, lock.Safe},
		{"mysql-forupdate", "", []catalog.Fault{catalog.Slow, catalog.Pause, catalog.RedisRestart}, lock.Safe},
		{"setnx-nottl", "", []catalog.Fault{catalog.Latency}, lock.Stuck},
		{"setnx-late-fence", "", []catalog.Fault{catalog.Slow}, unclaimed},
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
