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

// TestSentinelService checks that faults work for a service that finds its Redis through Sentinel.
// The service is our own instance with the failover client of go-redis, started like a user's
// service.
func TestSentinelService(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := fleet.ParseService(exe + " " + fleet.Command + " -addr 127.0.0.1:{port} -instance {instance} -db {db} -sentinel {sentinel} -sentinel-master mymaster" +
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
	checkSentinelCells(t, cfg)
}

// TestPythonSentinel checks that faults work for a Python service that finds its Redis through the
// Sentinel client of redis-py.
func TestPythonSentinel(t *testing.T) {
	if !proving {
		t.Skip("GRABLAB_PROVE is not 1: TestSentinelService covers this in Go")
	}
	checkSentinelCells(t, pythonRun(t, "--sentinel {sentinel}", []string{"setnx"}, catalog.NoFault, catalog.Failover))
}

// checkSentinelCells runs a lock that is never renewed. It must be safe without a fault, and unsafe
// with faults that strike before the write, because a second driver then gets the lock.
func checkSentinelCells(t *testing.T, cfg Config) {
	t.Helper()
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
