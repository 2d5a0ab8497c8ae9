package experiment

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/target"
)

// TestPostgresService checks that faults strike the PostgreSQL example at every point, and that
// each of its strategies gets the expected verdict.
func TestPostgresService(t *testing.T) {
	t.Parallel()
	exe := filepath.Join(t.TempDir(), "go-postgres")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", exe, "../../../examples/go-postgres").CombinedOutput(); err != nil {
		t.Fatalf("go build failed: %v\n%s", err, out)
	}
	s, err := fleet.ParseService(exe + " -port {port} -db {postgres} -work {work_ms}ms")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE TABLE orders (id BIGINT PRIMARY KEY, status INT NOT NULL DEFAULT 0)",
		"CREATE TABLE wins (id BIGSERIAL PRIMARY KEY, order_id BIGINT NOT NULL, driver_id BIGINT NOT NULL)",
	} {
		create, err := fleet.ParseMigration("sql: " + statement)
		if err != nil {
			t.Fatal(err)
		}
		s.Migrations = append(s.Migrations, create)
	}
	s.Ready = "/healthz"
	cfg := small(t, stack.Local)
	cfg.Service, cfg.Faults, cfg.Workers, cfg.Rate, cfg.Together = &s, []catalog.Fault{catalog.NoFault, catalog.Cancel}, 2, 0, true
	cfg.TTL, cfg.Stack.Postgres, cfg.Stack.Logs, cfg.Budget = time.Second, true, cfg.Out, 10*time.Minute
	cfg.Target.Strategies = []string{"none", "for-update"}
	if proving {
		cfg.Faults = append(cfg.Faults, catalog.Pause, catalog.Crash, catalog.ReplyLost, catalog.DBRestart, catalog.PartitionDB, catalog.SlowDB)
		cfg.Target.Strategies = append(cfg.Target.Strategies, "cas", "advisory", "advisory-pooled")
	}
	cfg.Target.Database.Query = "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?"
	cfg.Target.FirstOrder = 1
	if _, cfg.Target.Open, err = (target.Spec{OpenOrders: []string{"sql: INSERT INTO orders (id) VALUES ({order})"}}).Compile(); err != nil {
		t.Fatal(err)
	}
	run, err := execute(t, t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(cfg.Faults) * len(cfg.Target.Strategies); len(run.Cells) != n {
		t.Errorf("%d cells, want %d", len(run.Cells), n)
	}
	for _, c := range run.Cells {
		want := catalog.Safe
		switch {
		case c.Fault == catalog.Cancel && slices.Contains([]string{"none", "cas"}, c.Strategy):
			want = catalog.NA
		case c.Strategy == "none":
			want = catalog.Unsafe
		case c.Strategy == "advisory-pooled":
			continue // the verdict depends on which session the pool returns
		}
		if c.Verdict != want {
			t.Errorf("verdict of %s, %s: %s (%s), want %s", c.Strategy, c.Fault, c.Verdict, c.Reason, want)
		}
		for _, p := range c.Points {
			if p.Struck != p.Strikes {
				t.Errorf("%s, %s, %s: struck %d of %d", c.Strategy, c.Fault, p.Point, p.Struck, p.Strikes)
			}
		}
	}
}
