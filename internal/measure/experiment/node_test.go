package experiment

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
)

// TestNodeService checks that the strategies of the Node.js example have the verdicts in its
// README.
func TestNodeService(t *testing.T) {
	if !proving {
		t.Skip("GRABLAB_PROVE is not 1: it takes long")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../../examples/node")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "npm", "--prefix", dir, "ci").CombinedOutput(); err != nil {
		t.Skipf("the example in Node.js cannot be run: npm ci: %v\n%s", err, out)
	}
	s, err := fleet.ParseService("node " + dir + "/service.js --port {port} --redis {redis} --db mysql://{db_user}@{db_host}:{db_port}/{db_name} --ttl {ttl_ms} --work {work_ms} --wait 25000")
	if err != nil {
		t.Fatal(err)
	}
	s.Ready = "/healthz"
	cfg := small(t, stack.Local)
	cfg.Service, cfg.Faults, cfg.Workers = &s, []catalog.Fault{catalog.Pause, catalog.LateRelease}, 2
	cfg.Target.Strategies = []string{"setnx-del", "setnx", "setnx-guarded"}
	cfg.Target.Database.Query = "SELECT order_id, driver_id FROM wins WHERE order_id BETWEEN ? AND ?"
	cfg.Stack.Logs, cfg.Budget = cfg.Out, 10*time.Minute
	run, err := Execute(t.Context(), cfg, func(*Run) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range run.Cells {
		want := catalog.Safe
		if c.Strategy == "setnx-del" || c.Strategy == "setnx" && c.Fault == catalog.Pause {
			want = catalog.Unsafe
		}
		if c.Verdict != want {
			t.Errorf("verdict of %s, %s: %s (%s), want %s", c.Strategy, c.Fault, c.Verdict, c.Reason, want)
		}
	}
}
