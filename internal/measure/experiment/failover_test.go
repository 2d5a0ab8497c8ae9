package experiment

import (
	"os"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
)

// TestServiceFailover checks that a failover of Redis works for a service that the run starts. The service
// is our own instance, started like a user's service. Its lock is never renewed, so it must be safe without
// a fault. With faults that strike before the write, a second driver gets the lock.
func TestServiceFailover(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := fleet.ParseService(exe + " " + fleet.Command + " -addr 127.0.0.1:{port} -instance {instance} -db {db} -redis {redis}" +
		" -strategy setnx -wait 25s -ttl {ttl_ms}ms -work {work_ms}ms")
	if err != nil {
		t.Fatal(err)
	}
	s.Ready = "/readyz"
	cfg := small(t, stack.Local)
	cfg.Service, cfg.Workers = &s, 2
	cfg.Target.Strategies = []string{"setnx"}
	cfg.Target.Database.Query = "SELECT order_id, driver_id FROM grabs WHERE order_id BETWEEN ? AND ?"
	cfg.Stack.Logs, cfg.Budget = cfg.Out, 10*time.Minute
	cfg.Faults = []catalog.Fault{catalog.NoFault, catalog.Failover}
	if proving {
		cfg.Faults = append(cfg.Faults, catalog.Pause, catalog.RedisRestart)
	}
	at, err := fault.ParsePoint("before mysql UPDATE orders 1")
	if err != nil {
		t.Fatal(err)
	}
	cfg.At, cfg.Rate, cfg.Together = &at, 0, true
	run, err := Execute(t.Context(), cfg, func(*Run) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Cells) != len(cfg.Faults) {
		t.Errorf("the run has %d cells, want one for each fault", len(run.Cells))
	}
	for _, c := range run.Cells {
		want := catalog.Unsafe
		if c.Fault == catalog.NoFault {
			want = catalog.Safe
		}
		if c.Verdict != want || c.CountedFrom != fromLedger {
			t.Errorf("%s: %s (%s), counted from the %s, want %s", c.Fault, c.Verdict, c.Reason, c.CountedFrom, want)
		}
		for _, p := range c.Points {
			if p.Struck != p.Strikes || p.Verdict != want {
				t.Errorf("%s, %s: struck %d of %d, %s", c.Fault, p.Point, p.Struck, p.Strikes, p.Verdict)
			}
		}
	}
}
