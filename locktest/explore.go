package locktest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/present/report"
)

// Bounds limits Explore's search. The zero value of each field selects its default.
type Bounds struct {
	Actors      int      // how many clients compete for the lock; default 2, at most 4
	Instances   int      // how many processes run the clients; default 2, at most 2
	Preemptions int      // how many times the scheduler may interrupt a client that could continue; default 0
	Faults      []string // the faults that Explore may inject, by their names in docs/faults.md; default none
	FaultCount  int      // how many faults one schedule may contain; default 1 if Faults is not empty

	// Properties lists the properties to check, by their names in docs/explore.md. For example,
	// "one-winner" means that an order has at most one winner. By default, Explore checks all
	// properties.
	Properties []string

	TTL  time.Duration // default 3 s
	Wait time.Duration // how long a client waits for the lock; by default, a client tries once
	Work time.Duration // how long a client works while it holds the lock; default 0

	// Nodes is the number of independent servers, from 3 to 7. By default, there is a single
	// server.
	Nodes int
	// Fenced makes the simulated database check the fencing token at each write. Set it if you use
	// the "pause" fault, because no lock survives that fault without the check.
	Fenced bool

	// Time is the search timeout. If the search is incomplete after this time, the test fails. The
	// default is no timeout.
	Time time.Duration
	// Dir is the output directory for schedules that break the lock. The default is
	// testdata/explore.
	Dir string
}

// Explore searches for the shortest schedule that breaks the lock. If it finds one, it fails the
// test, prints the steps and writes the schedule to bounds.Dir. The test also fails if the search
// times out. A repeated search gives the same result.
func Explore(t *testing.T, bounds Bounds, newLock New) {
	t.Helper()
	id := callID(t)
	own := newLock.strategy(t, bounds.Nodes)
	own.Fences = bounds.Fenced
	if bounds.Fenced {
		own.Guard = order.Fenced
	}
	// The search runs the test binary again as a child process, in which Explore gets here too. A child
	// process serves only the call that started it.
	if child, mine := role(id); mine {
		work(t, own)
	} else if child {
		return
	}
	cfg := bounds.config(own)
	cfg.Command = childCommand(t, id)
	results, err := explore.Search(t.Context(), nil, cfg, nil)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	files, err := bounds.save(results[0].Failures)
	if err != nil {
		t.Errorf("locktest: %v", err)
	}
	judge(t, cfg, results[0], files)
}

func (b Bounds) config(own lock.Strategy) explore.Config {
	cfg := explore.Config{
		Strategies: []string{own.Name}, Own: []lock.Strategy{own}, Workers: runtime.GOMAXPROCS(0),
		Actors: b.Actors, Preemptions: b.Preemptions, FaultCount: b.FaultCount,
		Properties: b.Properties, TTL: b.TTL, Wait: b.Wait, Work: b.Work, Nodes: b.Nodes, Instances: b.Instances, Seconds: b.Time.Seconds(),
	}
	cfg.Faults = catalog.Map(b.Faults, func(f string) catalog.Fault { return catalog.Fault(f) })
	if cfg.FaultCount == 0 && len(cfg.Faults) > 0 {
		cfg.FaultCount = 1
	}
	cfg.Actors = cmp.Or(cfg.Actors, explore.DefaultActors) // set it explicitly, so that the report shows the number
	return cfg
}

// work executes the parent's requests in a child process, and then exits. The search itself runs in the
// parent.
func work(t *testing.T, own lock.Strategy) {
	err := explore.Work(func(run func()) {
		synctest.Test(t, func(*testing.T) { run() })
	}, own)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (b Bounds) save(failures []explore.Failure) (files []string, err error) {
	dir := cmp.Or(b.Dir, filepath.Join("testdata", "explore"))
	for _, f := range failures {
		file := filepath.Join(dir, f.Schedule.Strategy+"-"+f.Property+".txt")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, []byte(f.Schedule.String()), 0o644); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// judge fails the test if the search found a failure or is incomplete.
func judge(t *testing.T, cfg explore.Config, r explore.Result, files []string) {
	t.Helper()
	var story strings.Builder
	again := func(explore.Failure) string { return "go test -run '^" + t.Name() + "$'" }
	if err := report.Explored(&story, report.Exploration{Config: cfg, Results: []explore.Result{r}, Timing: true, Replay: again}); err != nil {
		t.Errorf("locktest: %v", err)
	}
	switch {
	case len(r.Failures) > 0:
		t.Errorf("the lock fails\n%sthe schedules: %s", story.String(), strings.Join(files, ", "))
	case !r.Complete:
		t.Errorf("no failure was found, but the search is not complete: %s\n%s", r.Reason, story.String())
	default:
		t.Logf("%s", story.String())
	}
}
