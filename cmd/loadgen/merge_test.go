package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/flags"
	"grablab/internal/grab"
	"grablab/internal/measure/experiment"
	"grablab/internal/measure/shard"
	"grablab/internal/present/report"
	"grablab/internal/testbed/fleet"
	"grablab/internal/testbed/load"
	"grablab/internal/testbed/proc"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// instances starts two instances that share a database, and opens orders with ids from 1 on.
func instances(t *testing.T, orders int) (urls, db string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	db = "sqlite:" + filepath.Join(t.TempDir(), "grab.db")
	var all []string
	for range 2 {
		addr, err := proc.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		in := exec.Command(exe, fleet.Command, "-addr", addr, "-db", db, "-strategy", "mysql-cas")
		if err := in.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Process.Kill(); _ = in.Wait() })
		all = append(all, "http://"+addr)
		awaitHealthy(t, all[len(all)-1])
	}
	resp, err := http.Post(all[0]+"/orders", "application/json", strings.NewReader(fmt.Sprintf(`{"count":%d}`, orders)))
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("Post: %+v, %v", resp, err)
	}
	resp.Body.Close()
	return strings.Join(all, ","), db
}

// shards starts n shards of a run as a Kubernetes Job would, in the folders shard-0, shard-1 and so
// on. All shards begin at the returned time.
func shards(t *testing.T, n int, args ...string) (all []*exec.Cmd, start time.Time) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	start = time.Now().Add(4 * time.Second)
	for i := range n {
		cmd := loadgen(t, slices.Concat([]string{"run", "-quiet", "-shard-start", start.Format(time.RFC3339Nano), "-out", fmt.Sprintf("shard-%d", i)}, args)...)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, fmt.Sprintf("JOB_COMPLETION_INDEX=%d", i), fmt.Sprintf("GRABLAB_SHARDS=%d", n))
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		all = append(all, cmd)
	}
	return all, start
}

// answers returns the raw results in a result folder.
func answers(t *testing.T, dir string) (all []vegeta.Result) {
	t.Helper()
	for decode := vegeta.NewDecoder(bytes.NewReader(read(t, dir, "mysql-cas-none.vegeta.bin"))); ; {
		var r vegeta.Result
		if err := decode(&r); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
}

// pairs returns the sorted requests in the folders. The order with id first has the number 0.
func pairs(t *testing.T, first int64, dirs ...string) (all []string) {
	t.Helper()
	for _, dir := range dirs {
		for _, r := range answers(t, dir) {
			request, err := load.ParseRequest(r.URL)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(request.Order-first, " ", request.Driver, " ", request.Target))
		}
	}
	slices.Sort(all)
	return all
}

// p99 returns the 99th percentile in milliseconds.
func p99(latencies []time.Duration) float64 {
	slices.Sort(latencies)
	return float64(latencies[(len(latencies)*99+99)/100-1]) / float64(time.Millisecond)
}

// TestMergeEqualsOneRun checks that four shards send the same requests as a single run with the same
// seed. The merged figures must be those of all shards together. If a file is incomplete or the clocks
// disagree, the verdict must be unknown.
func TestMergeEqualsOneRun(t *testing.T) {
	const n, orders, drivers = 4, 40, 8
	t.Chdir(t.TempDir())
	urls, db := instances(t, 2*orders)
	args := []string{"-targets", urls, "-db", db, "-strategies", "mysql-cas", "-orders", fmt.Sprint(orders), "-drivers", fmt.Sprint(drivers), "-rate", "400", "-seed", "5"}
	var out bytes.Buffer
	if code := exitOf(t.Context(), append([]string{"run", "-quiet", "-out", "one", "-first-order", "1"}, args...), &out, &out); code != 0 {
		t.Fatalf("exit %d\n%s", code, &out)
	}
	all, start := shards(t, n, append(args, "-first-order", fmt.Sprint(orders+1))...)
	var dirs []string
	var sent, scheduled []time.Duration
	sum := map[grab.Outcome]int{}
	for i, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("shard %d: %v", i, err)
		}
		dirs = append(dirs, fmt.Sprintf("shard-%d", i))
		c := fits(t, read(t, dirs[i], report.File)).Cells[0]
		if c.Verdict != catalog.Unknown || c.Grabs != nil || c.ContendedOrders != nil || c.Shard == nil {
			t.Fatalf("shard %d judges its share: %+v", i, c)
		}
		if late := c.Shard.BeganAt.Sub(start); late < 0 || late > time.Second {
			t.Errorf("shard %d began %v after the common start", i, late)
		}
		for outcome, k := range c.Outcomes {
			sum[outcome] += k
		}
		plan := load.NewPlan([]string{""}, 1, orders, drivers, 5)
		plan.Split(load.Share{Index: i, Count: n})
		for _, r := range answers(t, dirs[i]) {
			due := c.Shard.BeganAt.Add(plan.Due(load.Config{Rate: 400, Together: true}, r.Seq))
			sent, scheduled = append(sent, r.Latency), append(scheduled, r.Timestamp.Add(r.Latency).Sub(due))
		}
	}
	if one, four := pairs(t, 1, "one"), pairs(t, orders+1, dirs...); !slices.Equal(one, four) {
		t.Errorf("the %d requests of the shards differ from the %d requests of a single run", len(four), len(one))
	}

	out.Reset()
	merge := func(args ...string) (int, *experiment.Run) {
		code := exitOf(t.Context(), append([]string{"merge", "-quiet", "-db", db}, args...), &out, &out)
		run, err := report.Load(args[1])
		if err != nil {
			t.Fatalf("exit %d, %v\n%s", code, err, &out)
		}
		return code, run
	}
	code, run := merge(append([]string{"-out", "merged", "-assert", "double_grabs==0"}, dirs...)...)
	c := fits(t, read(t, "merged", report.File)).Cells[0]
	if code != 0 || !run.Complete || c.Verdict != catalog.Safe || *c.Grabs != orders || c.Requests != orders*drivers || *c.ContendedOrders == 0 || c.Merged.Count != n {
		t.Errorf("exit %d\n%s", code, &out)
	}
	for outcome, k := range sum {
		if c.Outcomes[outcome] != k {
			t.Errorf("the merged result has %d responses %s, and the shards have %d", c.Outcomes[outcome], outcome, k)
		}
	}
	for _, f := range []struct {
		name      string
		got, want float64
	}{{"from sending", c.LatencySent.P99, p99(sent)}, {"from the schedule", c.Latency.P99, p99(scheduled)}} {
		t.Logf("p99 %s: %.3f ms of the merge, %.3f ms of all raw results", f.name, f.got, f.want)
		if math.Abs(f.got-f.want) > 0.001*f.want+0.001 {
			t.Errorf("p99 %s is %v ms, and of all raw results %v ms", f.name, f.got, f.want)
		}
	}

	// Simulate a file that was not copied completely.
	half := filepath.Join("shard-3", "mysql-cas-none.vegeta.bin")
	whole := read(t, half)
	for _, size := range []int{len(whole) / 2, 0} {
		if err := os.WriteFile(half, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		dir := fmt.Sprintf("half-%d", size)
		code, run = merge(append([]string{"-out", dir}, dirs...)...)
		if c := run.Cells[0]; code != int(exitFailed) || run.Complete || c.Verdict != catalog.Unknown || !strings.Contains(c.Reason, half) {
			t.Errorf("with a file of only %d bytes: exit %d, %s, %s", size, code, c.Verdict, c.Reason)
		}
	}
	if err := os.WriteFile(half, whole, 0o600); err != nil {
		t.Fatal(err)
	}

	// Simulate a wrong clock on the machine of one shard.
	path := filepath.Join("shard-2", report.File)
	right, err := report.Load("shard-2")
	if err != nil {
		t.Fatal(err)
	}
	right.Cells[0].Shard.ClockMS += 5000
	var wrong bytes.Buffer
	if err := errors.Join(report.JSON(&wrong, right), os.WriteFile(path, wrong.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, run = merge(append([]string{"-out", "apart"}, dirs...)...)
	if c := run.Cells[0]; c.Latency != nil || c.LatencySent != nil || c.ContendedOrders != nil || c.Verdict != catalog.Unknown || !strings.Contains(c.Reason, "clocks of two shards differ by 5.0 s") {
		t.Errorf("with clocks apart: %s, %s", c.Verdict, c.Reason)
	}
}

// TestLostShard kills one of two shards. It checks that merge reports the loss and never judges the run
// as safe.
func TestLostShard(t *testing.T) {
	t.Chdir(t.TempDir())
	urls, db := instances(t, 8)
	all, start := shards(t, 2, "-targets", urls, "-db", db, "-strategies", "mysql-cas", "-orders", "8", "-drivers", "5", "-rate", "20", "-seed", "5", "-first-order", "1")
	time.Sleep(time.Until(start.Add(time.Second)))
	if err := all[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = all[1].Wait()
	if err := all[0].Wait(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ dirs, out, lost string }{
		{"shard-0 shard-1", "killed", "shard 1 of 2: the shard was interrupted (shard-1)"},
		{"shard-0", "missing", "shard 1 of 2: none of the folders contains the result of this shard"},
	} {
		var stdout, stderr bytes.Buffer
		code := exitOf(t.Context(), append([]string{"merge", "-quiet", "-db", db, "-out", tc.out}, strings.Fields(tc.dirs)...), &stdout, &stderr)
		if code != int(exitFailed) || !strings.Contains(stderr.String(), "loadgen: incomplete: "+tc.lost) || !strings.Contains(stdout.String(), "INCOMPLETE: "+tc.lost) {
			t.Errorf("exit %d\n%s%s", code, &stdout, &stderr)
		}
		run := fits(t, read(t, tc.out, report.File))
		if c := run.Cells[0]; run.Complete || c.Verdict != catalog.Unknown || !strings.Contains(c.Reason, tc.lost) || c.UnacknowledgedGrabs != nil || c.Grabs == nil {
			t.Errorf("merge after the loss of %s: cell %+v", tc.out, c)
		}
	}
	for args, want := range map[string]string{
		"":                      "merge: no result folders were given",
		"shard-0":               "merge: the database address is missing: add -db DSN",
		"-db x shard-1":         "no shard has a result to merge: shard 0 of 2: none of the folders contains the result of this shard; shard 1 of 2: the shard was interrupted (shard-1): run these shards again",
		"-db x shard-0 shard-0": "shard-0: shard 0 is also in shard-0",
		"-db x shard-0 -rate 3": "-rate: there is no such flag",
	} {
		var stdout, stderr bytes.Buffer
		if code := exitOf(t.Context(), append([]string{"merge"}, strings.Fields(args)...), &stdout, &stderr); code != int(exitUsage) || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit %d, %s; want %s", args, code, &stderr, want)
		}
	}
}

// TestMergeNeedsShardsOfOneRun checks that only shards of the same run with different numbers can be
// merged. It tries pairs of shards that differ in one respect, in both orders.
func TestMergeNeedsShardsOfOneRun(t *testing.T) {
	type part struct {
		args   []string
		commit string
	}
	commit := experiment.NewEnvironment("").Commit
	first := part{[]string{"-targets=http://h:1", "-shard=0/2", "-seed=5", "-orders=8"}, commit}
	for _, tt := range []struct {
		name   string
		second part
		wrong  string // part of the error message; "" if the two can be merged
	}{
		{"the other shard", part{[]string{"-targets=http://h:1", "-shard=1/2", "-seed=5", "-orders=8"}, commit}, ""},
		{"the same shard", first, "shard 0 is also in"},
		{"another number of shards", part{[]string{"-targets=http://h:1", "-shard=1/3", "-seed=5", "-orders=8"}, commit}, "this shard's flags differ from those of"},
		{"another value", part{[]string{"-targets=http://h:1", "-shard=1/2", "-seed=6", "-orders=8"}, commit}, "this shard's flags differ from those of"},
		{"one flag more", part{[]string{"-targets=http://h:1", "-shard=1/2", "-seed=5", "-orders=8", "-drivers=3"}, commit}, "this shard's flags differ from those of"},
		{"another program", part{[]string{"-targets=http://h:1", "-shard=1/2", "-seed=5", "-orders=8"}, "1234567"}, "loadgen commit 1234567 ran this shard"},
		{"a whole run", part{[]string{"-targets=http://h:1", "-seed=5", "-orders=8"}, commit}, "this folder is not the result of a shard"},
	} {
		for _, swapped := range []bool{false, true} {
			parts := []part{first, tt.second}
			if swapped {
				slices.Reverse(parts)
			}
			args := []string{"-db", "x"}
			for _, p := range parts {
				dir := t.TempDir()
				run := &experiment.Run{
					Schema: experiment.Schema, ID: "x", Complete: true, Environment: experiment.Environment{Commit: p.commit},
					Config: experiment.RunConfig{Scenario: "rush", Args: p.args}, Cells: []experiment.Cell{{Strategy: "foreign", Fault: catalog.NoFault, Verdict: catalog.Unknown, Shard: &shard.Record{}}},
				}
				for _, arg := range p.args {
					if text, ok := strings.CutPrefix(arg, "-shard="); ok {
						share, err := shard.Parse(text)
						if err != nil {
							t.Fatal(err)
						}
						run.Cells[0].Shard.Index, run.Cells[0].Shard.Count = share.Index, share.Count
					}
				}
				var text bytes.Buffer
				if err := errors.Join(report.JSON(&text, run), os.WriteFile(filepath.Join(dir, report.File), text.Bytes(), 0o600)); err != nil {
					t.Fatal(err)
				}
				args = append(args, dir)
			}
			line, err := flags.Parse(defaults("rush").flagsOfMerge(), args)
			if err != nil {
				t.Fatal(err)
			}
			s, err := mergeFolders(line)
			if (err != nil) != (tt.wrong != "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s, swapped %v: %v; want %q", tt.name, swapped, err, tt.wrong)
			}
			if err == nil && (len(s.Merge.Parts) != 2 || len(s.Merge.Lost) > 0 || s.Orders != 8 || s.Seed != 5) {
				t.Errorf("%s, swapped %v: %+v, %d orders, seed %d", tt.name, swapped, s.Merge, s.Orders, s.Seed)
			}
		}
	}
}
