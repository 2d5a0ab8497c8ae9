package sim

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
	_ "grablab/internal/grab/lock/peers" // fills lock.Peers
	"grablab/internal/order"
)

// TestVerdicts replays the schedules of known failures and of earlier false alarms, and also without some of their
// steps. The oracle must report the same violations, with the same explanations and failure modes, as in
// testdata/verdicts.txt.
//
// The test fails after intended changes too. If the new verdicts are right, run it again with -update.
func TestVerdicts(t *testing.T) {
	const stored = "testdata/verdicts.txt"
	const variants = 4 // how many steps to leave out, one at a time
	var paths []string
	for _, pattern := range []string{"../testdata/*.txt", "../testdata/false-alarms/*.txt"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		paths = append(paths, found...)
	}
	var all strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&all, "%s\n", strings.TrimPrefix(path, "../testdata/"))
		sched, cluster := openFile(t, path)
		replay := func(steps []schedule.Step) (mode string) {
			record, err := cluster.Replay(steps)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range record.Broken {
				m, _ := catalog.ModeOf(v.Property, v.Facts, cluster.Strategy.Breaks)
				fmt.Fprintf(&all, "\tstep %d: %s, %s: %s\n", v.Step, v.Property, m.ID, v.Why)
				if v.Property == sched.Property {
					mode = m.ID
				}
			}
			return mode
		}
		if mode := replay(sched.Steps); !strings.Contains(path, "false-alarms") && (mode == "" || mode != sched.Mode) {
			t.Errorf("%s: the failure mode of %s is %q, want %q", path, sched.Property, mode, sched.Mode)
		}
		for n := range variants {
			i := (n + 1) * (len(sched.Steps) - 1) / variants
			fmt.Fprintf(&all, "    without %s\n", sched.Steps[i])
			replay(slices.Delete(slices.Clone(sched.Steps), i, i+1))
		}
	}
	if *update {
		if err := os.WriteFile(stored, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(stored)
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(all.String(), "\n"), strings.Split(string(kept), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s, line %d:\n%s\nwant\n%s", stored, i+1, strings.Join(got[i:min(i+2, len(got))], "\n"), strings.Join(want[min(i, len(want)):min(i+2, len(want))], "\n"))
		}
	}
}

// openFile reads the schedule in a file, and starts the servers and actors that it needs.
func openFile(t *testing.T, path string) (schedule.Schedule, *Cluster) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sched, err := schedule.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	st, err := lock.Find(sched.Strategy)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := New(func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }, Setting{
		Strategy: st, Guard: st.GuardedBy(order.Guard(sched.Guard)), OnLost: grab.OnLost(cmp.Or(sched.OnLost, string(grab.Abort))),
		Actors: sched.Actors, TTL: sched.TTL, Work: sched.Work, Wait: sched.Wait, Nodes: max(3, len(sched.Nodes)), Stock: sched.Stock,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return sched, cluster
}
