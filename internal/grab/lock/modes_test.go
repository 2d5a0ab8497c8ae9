package lock_test

import (
	"slices"
	"testing"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// infer returns the failure mode that explains a strategy's verdict.
func infer(s lock.Strategy, g order.Guard, f catalog.Fault, v catalog.Verdict) string {
	property, ok := map[catalog.Verdict]string{catalog.Unsafe: catalog.OneWinner, catalog.Stuck: catalog.StuckOrder}[v]
	if !ok {
		return ""
	}
	m, _ := catalog.ModeOf(property, f.Shows()|g.Shows(), s.Breaks)
	return m.ID
}

// TestEveryExpectedFailureHasAMode checks that a failure mode explains every failure that the
// registry expects.
func TestEveryExpectedFailureHasAMode(t *testing.T) {
	for _, s := range slices.Concat(lock.Strategies, lock.Peers, lock.KnownBroken) {
		for _, f := range catalog.FaultsBy(catalog.Run) {
			v := s.Expected(f)
			if (v == catalog.Unsafe || v == catalog.Stuck) && infer(s, s.Guard, f, v) == "" {
				t.Errorf("%s under %s is expected to be %s, but no failure mode explains it", s.Name, f, v)
			}
		}
	}
}

// TestModeOf checks which failure mode explains a verdict, for typical combinations of strategy,
// guard and fault.
func TestModeOf(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		guard    order.Guard
		fault    catalog.Fault
		verdict  catalog.Verdict
		want     string
	}{
		{"none", order.Naive, catalog.NoFault, catalog.Unsafe, "F1"},
		{"none", order.Naive, catalog.Pause, catalog.Unsafe, "F1"},
		{"mutex", order.Naive, catalog.NodeClock, catalog.Unsafe, "F2"},
		{"setnx", order.Naive, catalog.Pause, catalog.Unsafe, "F11"},
		{"setnx", order.Naive, catalog.RedisRestart, catalog.Unsafe, "F17"},
		{"setnx", order.FenceWrite, catalog.Pause, catalog.Unsafe, "F34"},
		{"setnx-fence-write", order.FenceWrite, catalog.Pause, catalog.Unsafe, "F34"},
		{"setnx-check", order.Naive, catalog.Pause, catalog.Unsafe, "F37"},
		{"setnx-check", order.Naive, catalog.Latency, catalog.Unsafe, "F37"},
		{"setnx-del", order.Naive, catalog.Latency, catalog.Unsafe, "F12"},
		{"setnx-getset", order.Naive, catalog.ClientClock, catalog.Unsafe, "F9"},
		{"mysql-getlock-split", order.Naive, catalog.DBRestart, catalog.Unsafe, "F32"},
		{"mysql-getlock-pooled", order.Naive, catalog.NoFault, catalog.Unsafe, "F31"},
		{"setnx-nottl", order.Naive, catalog.Crash, catalog.Stuck, "F3"},
		{"setnx-expire", order.Naive, catalog.Crash, catalog.Stuck, "F4"},
		{"watchdog", order.Naive, catalog.Hang, catalog.Stuck, "F15"},
		{"watchdog", order.Naive, catalog.Partition, catalog.Unsafe, "F13"},
		{"redlock", order.Naive, catalog.Amnesia, catalog.Unsafe, "F18"},
		{"redlock", order.Naive, catalog.RedisRestartMost, catalog.Unsafe, "F18"},
		{"redlock-miswired", order.Naive, catalog.RedisRestart, catalog.Unsafe, "F20"},
		{"etcd", order.Naive, catalog.Pause, catalog.Unsafe, "F29"},
		{"setnx", order.Naive, catalog.NoFault, catalog.Unsafe, ""}, // no failure mode explains this
		{"setnx", order.Naive, catalog.Crash, catalog.Stuck, ""},
		{"setnx", order.Naive, catalog.Pause, catalog.Safe, ""},
	} {
		s, err := lock.Find(tt.strategy)
		if err != nil {
			t.Fatal(err)
		}
		if got := infer(s, tt.guard, tt.fault, tt.verdict); got != tt.want {
			t.Errorf("%s, %s, under %s, %s: got %q, want %q", tt.strategy, tt.guard, tt.fault, tt.verdict, got, tt.want)
		}
	}
}

// TestModes checks that the catalogue contains each failure mode that a strategy names, and that
// each strategy named as a cure exists.
func TestModes(t *testing.T) {
	for _, s := range slices.Concat(lock.Strategies, lock.Peers, lock.KnownBroken) {
		for _, id := range s.Breaks {
			if _, ok := catalog.FindMode(id); !ok {
				t.Errorf("%s names the failure mode %s, which is not in the catalogue", s.Name, id)
			}
		}
	}
	for _, m := range catalog.Modes {
		if !slices.Contains(lock.Names(), m.In) {
			t.Errorf("%s: there is no strategy %q", m.ID, m.In)
		}
	}
}
