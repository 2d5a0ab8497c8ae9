package explore

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"grablab/internal/explore/search"
	"grablab/internal/grab/lock"
)

// TestUndisturbed runs two actors without faults, with every strategy. They must grab one
// after the other, and reach the same state each time.
func TestUndisturbed(t *testing.T) {
	for _, st := range slices.Concat(lock.Strategies, lock.KnownBroken) {
		if st.Name == "mysql-getlock-pooled" || st.Title == "" {
			continue // needs a pool of connections, or belongs to TestSurvives
		}
		t.Run(st.Name, func(t *testing.T) {
			cfg, err := Config{}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			set, err := newSetting(cfg, st.Name)
			if err != nil {
				t.Fatal(err)
			}
			bubble := func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
			l, err := newLocal(bubble, cfg, set, nil, search.Visited{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			var first search.Fingerprint
			for i := range 3 {
				tr, err := l.Execute(search.Task{})
				if err != nil {
					t.Fatal(err)
				}
				last := tr.Points[len(tr.Points)-1].State
				if i == 0 {
					first = last
				}
				if len(tr.Broken) > 0 || tr.Cut || tr.Impossible >= 0 || last != first {
					t.Errorf("execution %d: %+v", i+1, tr)
				}
			}
		})
	}
}

// AsChild is the environment variable that makes this test binary act as a child.
const AsChild = "EXPLORE_AS_CHILD"

// ChildCommand returns the command of such a child, and sets AsChild until tb ends.
func ChildCommand(tb testing.TB) []string {
	tb.Setenv(AsChild, "1")
	return []string{os.Args[0], "-test.run=^TestAsChild$"}
}

// BenchmarkExecution measures complete schedules of two actors in a child, which has one
// core.
func BenchmarkExecution(b *testing.B) {
	for _, name := range []string{"none", "setnx", "watchdog", "handoff", "redlock"} {
		b.Run(name, func(b *testing.B) {
			cfg, err := Config{}.withDefaults()
			if err != nil {
				b.Fatal(err)
			}
			c, err := startChild(ChildCommand(b), opening{Config: cfg, Strategy: name}, search.Visited{})
			if err != nil {
				b.Fatal(err)
			}
			defer c.close()
			for b.Loop() {
				if _, err := c.Execute(search.Task{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "schedules/s")
		})
	}
}

// TestDoubleTap checks that two attempts of one driver never come to the same instance, because their
// calls look alike there.
func TestDoubleTap(t *testing.T) {
	for instances, want := range map[int]string{1: "", 2: "A"} {
		cfg, err := Config{Actors: 3, Instances: instances}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		set, err := newSetting(cfg, "setnx-driverid")
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLocal(func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }, cfg, set, nil, search.Visited{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		if got := l.cluster.Actors[1].As; got != want {
			t.Errorf("%d instances: the second driver acts as %q, want %q", instances, got, want)
		}
	}
}
