package check_test

import (
	"slices"
	"testing"

	"grablab/internal/check"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// Whatever the registry expects to go wrong has a failure mode that explains it.
func TestEveryExpectedFailureHasAMode(t *testing.T) {
	for _, s := range lock.Strategies {
		for _, f := range lock.Faults {
			v := s.Expected(f)
			if v != lock.Unsafe && v != lock.Stuck {
				continue
			}
			if _, ok := check.ModeOf(s, s.Guard, f, v); !ok {
				t.Errorf("%s under %s is expected to be %s, by no failure mode", s.Name, f, v)
			}
		}
	}
}

func TestModeOf(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		guard    order.Guard
		fault    lock.Fault
		verdict  lock.Verdict
		want     string
	}{
		{"none", order.Naive, lock.NoFault, lock.Unsafe, "F1"},
		{"none", order.Naive, lock.Pause, lock.Unsafe, "F1"},
		{"mutex", order.Naive, lock.NodeClock, lock.Unsafe, "F2"},
		{"setnx", order.Naive, lock.Pause, lock.Unsafe, "F11"},
		{"setnx", order.Naive, lock.RedisRestart, lock.Unsafe, "F17"},
		{"setnx", order.FenceWrite, lock.Pause, lock.Unsafe, "F34"},
		{"setnx-fence-write", order.FenceWrite, lock.Pause, lock.Unsafe, "F34"},
		{"setnx-check", order.Naive, lock.Pause, lock.Unsafe, "F37"},
		{"setnx-getset", order.Naive, lock.ClientClock, lock.Unsafe, "F9"},
		{"setnx-nottl", order.Naive, lock.Crash, lock.Stuck, "F3"},
		{"setnx-expire", order.Naive, lock.Crash, lock.Stuck, "F4"},
		{"watchdog", order.Naive, lock.Hang, lock.Stuck, "F15"},
		{"watchdog", order.Naive, lock.Partition, lock.Unsafe, "F13"},
		{"redlock", order.Naive, lock.Amnesia, lock.Unsafe, "F18"},
		{"redlock", order.Naive, lock.RedisRestartMost, lock.Unsafe, "F18"},
		{"redlock-miswired", order.Naive, lock.RedisRestart, lock.Unsafe, "F20"},
		{"etcd", order.Naive, lock.Pause, lock.Unsafe, "F29"},
		{"setnx", order.Naive, lock.NoFault, lock.Unsafe, ""}, // nothing explains that
		{"setnx", order.Naive, lock.Crash, lock.Stuck, ""},
		{"setnx", order.Naive, lock.Pause, lock.Safe, ""},
	} {
		s, err := lock.Find(tt.strategy)
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := check.ModeOf(s, tt.guard, tt.fault, tt.verdict); m.ID != tt.want {
			t.Errorf("%s, %s, under %s, %s: got %q, want %q", tt.strategy, tt.guard, tt.fault, tt.verdict, m.ID, tt.want)
		}
	}
}

// What a strategy says it breaks by stands in the table, once.
func TestModes(t *testing.T) {
	var ids []string
	for _, m := range check.Modes {
		if m.Name == "" || m.Cure == "" || slices.Contains(ids, m.ID) {
			t.Errorf("%+v", m)
		}
		ids = append(ids, m.ID)
	}
	for _, s := range lock.Strategies {
		for _, id := range s.Breaks {
			if !slices.Contains(ids, id) {
				t.Errorf("%s breaks by %s, which is in no table", s.Name, id)
			}
		}
	}
}
