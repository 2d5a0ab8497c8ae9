package experiment

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	_ "grablab/internal/grab/lock/peers" // registers the libraries in lock.Peers
	"grablab/internal/service/instance"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil { // parallel tests here wait for leases most of the time
		panic(err)
	}
	stacktest.Main(m, stacktest.Command{Name: fleet.Command, Run: instance.Main}, stacktest.Command{Name: stubCommand, Run: serveStub}, stacktest.Command{Name: shopCommand, Run: serveShop},
		stacktest.Command{Name: ticketCommand, Run: serveTickets})
}

// small returns the configuration of a run that takes only seconds.
func small(t *testing.T, kind string, strategies ...string) Config {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Scenarios[0].Config
	cfg.Scenario, cfg.Seed, cfg.Out, cfg.Exe = "rush", 1, t.TempDir(), exe
	cfg.Orders, cfg.Rate, cfg.Instances, cfg.OnLost = 10, 200, 2, grab.Abort
	cfg.Faults = []catalog.Fault{catalog.NoFault}
	cfg.Stack.Kind, cfg.Settle = kind, 500*time.Millisecond
	cfg.Log = t.Output()
	for _, name := range strategies {
		s, err := lock.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Strategies = append(cfg.Strategies, s)
	}
	return cfg
}

func execute(t *testing.T, ctx context.Context, cfg Config) (*Run, error) {
	t.Helper()
	saved := 0
	run, err := Execute(ctx, cfg, func(r *Run) error {
		saved++
		if len(r.Cells) != saved {
			t.Errorf("save %d has %d cells", saved, len(r.Cells))
		}
		return nil
	})
	if err == nil && !run.Complete {
		t.Error("Execute returned no error, but the run is not complete")
	}
	return run, err
}

// decide executes a run until no verdict is unknown, but at most three times. A busy machine may be
// too slow for the load.
func decide(t *testing.T, cfg *Config) *Run {
	t.Helper()
	for try := 1; ; try++ {
		run, err := execute(t, t.Context(), *cfg)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(run.Cells, func(c Cell) bool { return c.Verdict == catalog.Unknown })
		if i < 0 || try == 3 {
			return run
		}
		t.Logf("try %d: %s: %s", try, run.Cells[i].Strategy, run.Cells[i].Reason)
		cfg.Out = t.TempDir()
	}
}

func TestExecute(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{stack.Embedded, stack.Local} {
		t.Run(kind, func(t *testing.T) { testExecute(t, kind) })
	}
}

func testExecute(t *testing.T, kind string) {
	strategies := []string{"none", "setnx", "redlock", "mutex", "watchdog"}
	switch {
	case proving:
	case kind == stack.Embedded:
		strategies = strategies[:2]
	default:
		strategies = strategies[:3]
	}
	cfg := small(t, kind, strategies...)
	run := decide(t, &cfg)
	for _, c := range run.Cells {
		t.Run(c.Strategy, func(t *testing.T) {
			if c.Expected == nil || c.Verdict != *c.Expected {
				t.Errorf("verdict %s (%s), expected %v", c.Verdict, c.Reason, c.Expected)
			}
			checkSums(t, c)
			checkRaw(t, cfg.Out, c)
			checkTold(t, c)
			if c.Orders != *c.OrdersGrabbed {
				t.Errorf("%d of %d orders grabbed", *c.OrdersGrabbed, c.Orders)
			}
			if len(c.ServedBy) != 2 {
				t.Errorf("served by %v", c.ServedBy)
			}
		})
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "grablab-*")); len(left) > 0 {
		t.Logf("other stacks are running: %v", left)
	}
}

// checkSums checks that the figures of a cell are consistent with each other.
func checkSums(t *testing.T, c Cell) {
	t.Helper()
	var outcomes, served int
	for _, n := range c.Outcomes {
		outcomes += n
	}
	for _, n := range c.ServedBy {
		served += n
	}
	if outcomes != c.Requests || served > c.Requests || len(c.Errors) == 0 && served < c.Requests {
		t.Errorf("%d requests, %d outcomes, %d served", c.Requests, outcomes, served)
	}
	if c.Grabs == nil || c.PhantomGrabs == nil || c.UnacknowledgedGrabs == nil || c.DoubleGrabs == nil {
		t.Fatal("a figure of the ledger is missing")
	}
	if got := c.Outcomes[grab.Grabbed] + *c.UnacknowledgedGrabs - *c.PhantomGrabs; got != *c.Grabs {
		t.Errorf("%d answers + %d unacknowledged - %d phantom is not %d ledger rows",
			c.Outcomes[grab.Grabbed], *c.UnacknowledgedGrabs, *c.PhantomGrabs, *c.Grabs)
	}
	if *c.Grabs-*c.OrdersGrabbed != *c.DoubleGrabs {
		t.Errorf("%d rows on %d orders are not %d double-grabs", *c.Grabs, *c.OrdersGrabbed, *c.DoubleGrabs)
	}
}

// checkRaw checks that vegeta can read the raw results of a cell, and that there is one for each
// request.
func checkRaw(t *testing.T, dir string, c Cell) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, fmt.Sprintf("%s-%s.vegeta.bin", c.Strategy, c.Fault)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dec, n := vegeta.NewDecoder(f), 0
	for {
		var r vegeta.Result
		if dec.Decode(&r) != nil {
			break
		}
		n++
	}
	if n != c.Requests {
		t.Errorf("%d raw results, %d requests", n, c.Requests)
	}
}

func TestInterruptedRunKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	cfg := small(t, stack.Embedded, "setnx", "mutex")
	cfg.Orders, cfg.Rate = 1000, 100 // the load would take minutes
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg.Log = writerFunc(func(line []byte) (int, error) {
		if strings.Contains(string(line), " grabbed, ") { // some requests have their responses
			cancel()
		}
		return len(line), nil
	})
	run, err := execute(t, ctx, cfg)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted run returned %v", err)
	}
	if run.Complete || len(run.Cells) != 1 {
		t.Fatalf("complete %v, %d cells", run.Complete, len(run.Cells))
	}
	c := run.Cells[0]
	if c.Verdict != catalog.Unknown || c.Requests == 0 || c.Grabs == nil {
		t.Errorf("verdict %s (%s), %d requests, grabs %v", c.Verdict, c.Reason, c.Requests, c.Grabs)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
