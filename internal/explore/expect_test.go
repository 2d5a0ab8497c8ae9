package explore_test

import (
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

func TestExpected(t *testing.T) {
	const unclaimed = catalog.Verdict("")
	for _, tt := range []struct {
		strategy string
		guard    order.Guard
		faults   []catalog.Fault
		want     catalog.Verdict
	}{
		{"none", "", nil, catalog.Unsafe},
		{"mutex", "", nil, catalog.Unsafe},
		{"mysql-cas", "", []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Crash}, catalog.Safe},
		{"setnx", "", nil, catalog.Safe},
		{"setnx", "", []catalog.Fault{catalog.Crash, catalog.Cancel, catalog.ReplyLost}, catalog.Safe},
		{"setnx", "", []catalog.Fault{catalog.Crash, catalog.Pause}, catalog.Unsafe},
		{"setnx", order.Naive, []catalog.Fault{catalog.Slow}, catalog.Unsafe},
		{"setnx", order.Guarded, []catalog.Fault{catalog.Slow}, unclaimed},
		{"setnx-check", "", []catalog.Fault{catalog.Pause}, catalog.Unsafe}, // the pause comes after the check
		{"setnx-fenced", "", []catalog.Fault{catalog.Slow, catalog.Pause, catalog.Crash}, catalog.Safe},
		{"setnx-fence-write", "", []catalog.Fault{catalog.Pause}, catalog.Unsafe},
		{"setnx-fence-write", "", []catalog.Fault{catalog.Failover}, catalog.Unsafe}, // two actors hold the lock, although only one writes
		{"setnx-nottl", "", []catalog.Fault{catalog.Crash}, catalog.Stuck},
		{"setnx-nottl", "", []catalog.Fault{catalog.Crash, catalog.RedisRestart}, catalog.Unsafe},
		{"setnx-getset", "", []catalog.Fault{catalog.ClientClock}, catalog.Unsafe},
		{"watchdog", "", []catalog.Fault{catalog.Crash}, catalog.Safe},
		{"watchdog", "", []catalog.Fault{catalog.Pause}, catalog.Unsafe},
		{"watchdog", "", []catalog.Fault{catalog.Slow}, catalog.Safe}, // its renewals come in time
		{"redlock", "", []catalog.Fault{catalog.RedisDown}, catalog.Safe},
		{"setnx-expire", "", []catalog.Fault{catalog.RedisDown}, catalog.Stuck},
		{"setnx-fenced", "", []catalog.Fault{catalog.RedisRestart}, catalog.Unsafe}, // two actors hold the lock, although only one writes
		{"setnx-fenced", "", []catalog.Fault{catalog.NodeClock}, catalog.Safe},      // the lease has ended by the server's clock
		{"watchdog-fenced", "", []catalog.Fault{catalog.NodeClock}, catalog.Unsafe}, // no one tells the holder that its lease is lost
		{"setnx", "", []catalog.Fault{catalog.NodeClock}, catalog.Unsafe},
		{"redlock", "", []catalog.Fault{catalog.RedisRestart}, catalog.Unsafe},
		{"redlock-miswired", "", []catalog.Fault{catalog.ClientClock}, catalog.Safe},
		{"mysql-forupdate", "", []catalog.Fault{catalog.Slow, catalog.Pause, catalog.RedisRestart}, catalog.Safe},
		{"setnx-nottl", "", []catalog.Fault{catalog.Latency}, catalog.Stuck},
		{"setnx-del", "", []catalog.Fault{catalog.Latency}, catalog.Unsafe},
		{"setnx", "", []catalog.Fault{catalog.Latency}, catalog.Safe},
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
