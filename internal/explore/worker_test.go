package explore

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"grablab/internal/explore/search"
	"grablab/internal/grab/lock"
)

// TestNothingBreaksWithoutFaults checks that two actors without faults break no property of any strategy, with few
// exceptions, and that they reach the same final state each time.
func TestNothingBreaksWithoutFaults(t *testing.T) {
	for _, st := range slices.Concat(lock.Strategies, lock.KnownBroken) {
		if st.Name == "mysql-getlock-pooled" || st.Title == "" {
			continue // needs a pool of connections or belongs to TestSurvives
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

// AsChild is an environment variable. If it is set, TestAsChild makes this test binary a child process of a
// search.
const AsChild = "EXPLORE_AS_CHILD"

// ChildCommand returns the command that starts such a child process, and sets AsChild until tb ends.
func ChildCommand(tb testing.TB) []string {
	tb.Setenv(AsChild, "1")
	return []string{os.Args[0], "-test.run=^TestAsChild$"}
}

// BenchmarkExecution measures how many complete schedules of two actors a child process executes per
// second. A child uses only one core.
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

// TestDoubleTap checks that a driver tries twice only if there are two instances. In a single instance,
// no one could tell the calls of its two attempts apart.
func TestDoubleTap(t *testing.T) {
	for _, tt := range []struct {
		strategy string
		cfg      Config
		want     string
	}{
		{"setnx-driverid", Config{Actors: 3, Instances: 1}, ""},
		{"setnx-driverid", Config{Actors: 3, Instances: 2}, "A"},
		{"setnx", Config{SecondTry: true, Instances: 1}, ""},
		{"setnx", Config{SecondTry: true, Instances: 2}, "A"},
	} {
		cfg, err := tt.cfg.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		set, err := newSetting(cfg, tt.strategy)
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLocal(func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }, cfg, set, nil, search.Visited{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		if got := l.cluster.Actors[1].As; got != tt.want {
			t.Errorf("%s with %d instances: the second driver acts as %q, want %q", tt.strategy, cfg.Instances, got, tt.want)
		}
	}
	if slices.ContainsFunc(Portfolio(Config{Instances: 1}), func(p Part) bool { return p.Config.SecondTry }) {
		t.Error("the portfolio of one instance has a driver who tries twice")
	}
}
