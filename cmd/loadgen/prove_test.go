//go:build prove

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"grablab/internal/measure/experiment"
)

// The tests in this file take too long for go test ./... Each logs its results.

// TestArticleTenTimes checks that the test of the article has the expected result ten times in a row, on
// both stacks.
func TestArticleTenTimes(t *testing.T) {
	for _, kind := range []string{"embedded", "local"} {
		for i := range 10 {
			code, stdout, stderr := output(t, loadgen(t, "run", "-scenario", "article", "-stack", kind, "-format", "json", "-quiet",
				"-assert", "expected", "-assert", "none:grabs>2", "-assert", "mutex:grabs==2",
				"-assert", "setnx:grabs==1", "-assert", "watchdog:grabs==1", "-assert", "redlock:grabs==1"))
			if code != int(exitDone) {
				t.Errorf("%s, run %d: exit code %d\n%s", kind, i+1, code, stderr)
				continue
			}
			t.Logf("%s, run %2d: winners %s", kind, i+1, winners(fits(t, []byte(stdout))))
		}
	}
}

func winners(run *experiment.Run) string {
	var each []string
	for _, c := range run.Cells {
		each = append(each, fmt.Sprintf("%s %d", c.Strategy, *c.Grabs))
	}
	return strings.Join(each, ", ")
}

// TestRushThreeTimes checks that the default run has the expected result three times in a row, on both
// stacks.
func TestRushThreeTimes(t *testing.T) {
	for _, kind := range []string{"embedded", "local"} {
		for i := range 3 {
			code, stdout, stderr := output(t, loadgen(t, "run", "-stack", kind, "-strategies", "core", "-format", "json", "-quiet",
				"-assert", "expected", "-assert", "orders_grabbed==100"))
			if code != int(exitDone) {
				t.Errorf("%s, run %d: exit code %d\n%s", kind, i+1, code, stderr)
				continue
			}
			run := fits(t, []byte(stdout))
			t.Logf("%s, run %d: %.1f s; ledger rows for 100 orders: %s", kind, i+1, run.DurationS, winners(run))
		}
	}
}

// TestMatrixFourTimes checks that the whole table has the expected result four times in a row, each time
// within 15 minutes. The reference run of make prove is the fifth time.
func TestMatrixFourTimes(t *testing.T) {
	for i := range 4 {
		code, stdout, stderr := output(t, loadgen(t, "run", "-stack", "local", "-strategies", "all", "-faults", "all", "-format", "json", "-quiet",
			"-assert", "expected"))
		if code != int(exitDone) {
			t.Errorf("run %d: exit code %d\n%s", i+1, code, stderr)
			continue
		}
		run := fits(t, []byte(stdout))
		verdicts := map[string]int{}
		for _, c := range run.Cells {
			verdicts[c.Said()]++
		}
		t.Logf("run %d: %.0f s, %d cells: %v", i+1, run.DurationS, len(run.Cells), verdicts)
		if run.DurationS > 15*60 {
			t.Errorf("run %d took %.0f s", i+1, run.DurationS)
		}
	}
}

// TestMillionRequests checks that loadgen needs less than 200 MiB of memory for a million requests.
func TestMillionRequests(t *testing.T) {
	var mu sync.Mutex
	taken := map[string]bool{}
	serve := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/grab") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if taken[r.URL.Path] {
			w.WriteHeader(http.StatusConflict)
		}
		taken[r.URL.Path] = true
	}))
	defer serve.Close()

	cmd := loadgen(t, "-targets", serve.URL, "-first-order", "1", "-orders", "50000", "-rate", "5000", "-format", "json", "-quiet")
	code, stdout, stderr := output(t, cmd)
	if code != int(exitDone) {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	run := fits(t, []byte(stdout))
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if runtime.GOOS == "darwin" {
		peak /= 1024 // on macOS, Maxrss is in bytes
	}
	c := run.Cells[0]
	t.Logf("%d requests in %.0f s, %.0f/s: peak memory of loadgen %d MiB", c.Requests, *c.DurationS, *c.CompletedRPS, peak/1024)
	if c.Requests != 1_000_000 || peak/1024 >= 200 {
		t.Errorf("%d requests, %d MiB", c.Requests, peak/1024)
	}
}
