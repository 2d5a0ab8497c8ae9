//go:build unix

package experiment

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/proc"
	"grablab/internal/testbed/stack"
	"grablab/internal/testbed/stack/stacktest"
)

// startShop starts a process of serveShop with the given behaviour.
func startShop(t *testing.T, dir, kind string) (url string, cmd *exec.Cmd) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(exe, shopCommand, dir, kind)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + strings.TrimSpace(line), cmd
}

// shopRun starts two shops and returns the configuration of a run against them.
func shopRun(t *testing.T, kind string, faults ...catalog.Fault) Config {
	t.Helper()
	cfg := small(t, "")
	cfg.Faults, cfg.Budget, cfg.Rate, cfg.Orders, cfg.Drivers = faults, time.Minute, 0, 2, 4
	cfg.Target.FirstOrder, cfg.Target.Lease = 1, shopLease
	dir := t.TempDir()
	for range 2 {
		url, cmd := startShop(t, dir, kind)
		cfg.Target.URLs, cfg.Target.PIDs = append(cfg.Target.URLs, url), append(cfg.Target.PIDs, cmd.Process.Pid)
	}
	return cfg
}

// TestPauseByTime pauses a process in the middle of a grab, so that its lease expires. Without a
// guard, the service must be unsafe, and with a guard, safe. If later grabs are too fast to be
// paused, the verdict must be unknown.
func TestPauseByTime(t *testing.T) {
	for _, tc := range []struct {
		kind    string
		verdict catalog.Verdict
		reason  string
		atLeast int // number of moments that must have this verdict
	}{
		{"bare", catalog.Unsafe, ": moment ", 6},
		{"guarded", catalog.Safe, "", 8},
		{"soon fast", catalog.Unknown, "the fault could not be tested. The grab had ended by then", 6},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			if tc.verdict != catalog.Unsafe {
				long(t) // TestMomentsOfAModel covers these cases faster
			}
			cfg := shopRun(t, tc.kind, catalog.NoFault, catalog.Pause, catalog.RedisRestart)
			run, err := Execute(t.Context(), cfg, func(*Run) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			c := run.Cells[1]
			if c.Verdict != tc.verdict || !strings.Contains(c.Reason, tc.reason) || c.Expected != nil {
				t.Errorf("verdict %s: %q; want %s: …%s…", c.Verdict, c.Reason, tc.verdict, tc.reason)
			}
			agree := 0
			for _, p := range c.Points {
				if !p.IsMoment() || p.Struck == 0 && p.Verdict == catalog.Safe {
					t.Errorf("point of the injection: %+v", p)
				}
				if p.Verdict == tc.verdict {
					agree++
				}
			}
			if len(c.Points) != momentCount || agree < tc.atLeast {
				t.Errorf("%d of %d moments are %s: %+v", agree, len(c.Points), tc.verdict, c.Points)
			}
			if n := run.Cells[2]; n.Verdict != catalog.NA || !strings.Contains(n.Reason, "start the service with -service") {
				t.Errorf("verdict under %s: %s: %s", n.Fault, n.Verdict, n.Reason)
			}
			for _, pid := range cfg.Target.PIDs {
				if stopped(t, pid) {
					t.Errorf("process %d is still stopped after the run", pid)
				}
			}
		})
	}
}

// stopped reports whether a process is stopped by a signal.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	return strings.HasPrefix(string(out), "T")
}

// TestPauseByTimeInterrupted interrupts a run while a process is stopped. The process must
// continue.
func TestPauseByTimeInterrupted(t *testing.T) {
	cfg := shopRun(t, "bare", catalog.Pause)
	cfg.Target.Lease = time.Minute
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() {
		for ctx.Err() == nil {
			if !t.Failed() && stopped(t, cfg.Target.PIDs[1]) {
				time.AfterFunc(time.Second, interrupt) // after the check whether the process serves requests
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	began := time.Now()
	_, err := execute(t, ctx, cfg)
	if !errors.Is(err, context.Canceled) || time.Since(began) > 30*time.Second {
		t.Errorf("the interrupted run returned %v after %v", err, time.Since(began))
	}
	if stopped(t, cfg.Target.PIDs[1]) {
		t.Error("the process is still stopped after the run")
	}
}

// TestCrashByTime kills a running target, which stays dead. According to the ledger, the other
// target must still grab the orders that were left open. A run with several strategies must be
// refused, because it can kill a target only once.
func TestCrashByTime(t *testing.T) {
	st, err := stack.Start(t.Context(), stack.Config{Kind: stack.Embedded, Needs: lock.Redis})
	stacktest.Check(t, err)
	defer st.Close()
	cfg := small(t, "")
	instances := fleet.New(fleet.Config{Exe: cfg.Exe, Instances: 2, OnLost: grab.Abort, Say: t.Logf}, st, 0)
	defer instances.Stop()
	if err := instances.Equip(t.Context(), fleet.Setup{Work: 50 * time.Millisecond, TTL: time.Second, Wait: 3 * time.Second, Timeout: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	cfg.Target.URLs = instances.URLs()
	for _, in := range instances.Instances {
		cfg.Target.PIDs = append(cfg.Target.PIDs, in.Process().Pid())
	}
	cfg.Faults, cfg.Budget = []catalog.Fault{catalog.Crash}, time.Minute
	cfg.Target.Strategies = []string{"setnx", "none"}
	if _, err := Execute(t.Context(), cfg, func(*Run) error { return nil }); err == nil || !strings.Contains(err.Error(), "pass one strategy") {
		t.Errorf("two strategies: %v", err)
	}
	cfg.Target.Strategies = []string{"setnx"}
	cfg.Out = t.TempDir()
	run, err := execute(t, t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := run.Cells[0]
	if c.Verdict != catalog.Safe || len(c.Points) != 1 || c.Points[0].Struck != 1 || !c.Points[0].IsMoment() || c.CountedFrom != fromLedger {
		t.Errorf("%s: %s, %+v, from %s", c.Verdict, c.Reason, c.Points, c.CountedFrom)
	}
	for i, pid := range cfg.Target.PIDs {
		if _, runs := proc.StartTime(pid); runs == (i == 1) {
			t.Errorf("instance %d runs: %v", i+1, runs)
		}
	}
}

// needing returns the URL of a service that forwards each grab to the given shop, but answers GET
// itself.
func needing(t *testing.T, shop string) string {
	u, err := url.Parse(shop)
	if err != nil {
		t.Fatal(err)
	}
	grabs := httputil.NewSingleHostReverseProxy(u)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		grabs.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestTargetPIDsThatCannotBeUsed checks the error, or the reason of the verdict, if the fault
// cannot be injected into the processes that the user named.
func TestTargetPIDsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		says   string
	}{
		{"gone", func(c *Config) { c.Target.PIDs[1] = gone.Process.Pid }, "does not exist or has ended"},
		{"this program", func(c *Config) { c.Target.PIDs[0] = os.Getpid() }, "is loadgen's own process"},
		{"no lease", func(c *Config) { c.Target.Lease = 0 }, "add -lease D"},
		{"no such fault", func(c *Config) { c.Faults = []catalog.Fault{catalog.Failover} }, "only the faults pause and crash"},
		{"a server that a grab needs", func(c *Config) { c.Target.URLs[1] = needing(t, c.Target.URLs[1]) }, "still answered"},
		{"in another order", func(c *Config) { p := c.Target.PIDs; p[0], p[1] = p[1], p[0] }, "still answered"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := shopRun(t, "bare", catalog.Pause)
			tc.change(&cfg)
			run, err := Execute(t.Context(), cfg, func(*Run) error { return nil })
			says := fmt.Sprint(err)
			if err == nil {
				says = run.Cells[0].Reason
				if run.Cells[0].Verdict != catalog.Unknown {
					t.Errorf("verdict %s: %s", run.Cells[0].Verdict, says)
				}
			}
			if stopped := fmt.Sprintf("process %d was stopped", cfg.Target.PIDs[1]); !strings.Contains(says, tc.says) || tc.says == "still answered" && !strings.Contains(says, stopped) {
				t.Errorf("reason is %s; want …%s…", says, tc.says)
			}
		})
	}
	if os.Getuid() == 0 { // root is allowed to signal every process
		return
	}
	if _, err := proc.Find(1); err != proc.ErrForeign {
		t.Errorf("process 1: got error %v, want %v", err, proc.ErrForeign)
	}
}
