package locktest

import (
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

// Bounds limits the search of Explore. The zero value of a field means its default.
type Bounds struct {
	Actors      int      // actors that compete for the lock; default 2, at most 4
	Instances   int      // instances of the service on which they run; default 2, at most 2
	Preemptions int      // switches away from an actor that could continue; default 0
	Faults      []string // faults that may be injected, named as in docs/faults.md; default none
	FaultCount  int      // faults in one schedule; default 1 if Faults is not empty

	// Properties lists the properties that must hold, named as in docs/explore.md. The
	// default is all. The first is "one-winner": an order has at most one winner.
	Properties []string

	TTL  time.Duration // default 3 s
	Wait time.Duration // how long an actor waits for the lock; by default it tries once
	Work time.Duration // time between reading the order and writing the winner; default none

	// Nodes is the number of independent servers, 3 to 7. If it is 0, there is one server.
	Nodes int
	// Fenced makes the write check the Fence of the lease. Without it, nothing protects a
	// write after the holder's last check of its lease, so no lock survives "pause".
	Fenced bool

	// Time limits the search. Explore fails the test if the search is not complete by then
	// and found no failure. If it is 0, there is no limit.
	Time time.Duration
	// Dir is the folder for schedules that break a property. The default is
	// testdata/explore.
	Dir string
}

// Explore searches for the shortest schedule within bounds that breaks a property of the
// lock. It tries schedules with fewer faults first, then those with fewer preemptions. If it
// finds one, it fails the test with the steps and writes them to a file in bounds.Dir. It
// also fails the test if it cannot search everything within bounds.Time. The search is
// deterministic.
func Explore(t *testing.T, bounds Bounds, newLock New) {
	t.Helper()
	id := callID(t)
	own := newLock.strategy(t, bounds.Nodes)
	own.Fences = bounds.Fenced
	if bounds.Fenced {
		own.Guard = order.Fenced
	}
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
	for _, f := range b.Faults {
		cfg.Faults = append(cfg.Faults, catalog.Fault(f))
	}
	if cfg.FaultCount == 0 && len(cfg.Faults) > 0 {
		cfg.FaultCount = 1
	}
	if cfg.Actors == 0 {
		cfg.Actors = explore.DefaultActors // for the report
	}
	return cfg
}

// work runs the search in a child process. It does not return.
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

// save writes the schedule of every failure and returns the names of the files.
func (b Bounds) save(failures []explore.Failure) (files []string, err error) {
	dir := b.Dir
	if dir == "" {
		dir = filepath.Join("testdata", "explore")
	}
	for _, f := range failures {
		file := filepath.Join(dir, fileName(f.Schedule.Strategy, f.Property)+".txt")
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

// judge fails the test if the search found a failure or is not complete.
func judge(t *testing.T, cfg explore.Config, r explore.Result, files []string) {
	t.Helper()
	var story strings.Builder
	again := func(explore.Failure) string { return "go test -run '^" + t.Name() + "$'" }
	if err := report.Explored(&story, report.Exploration{Config: cfg, Results: []explore.Result{r}, Timing: true, Replay: again}); err != nil {
		t.Errorf("locktest: %v", err)
	}
	switch {
	case len(r.Failures) > 0:
		t.Errorf("the lock breaks %s\n%sthe schedules: %s", r.Failures[0].Property, story.String(), strings.Join(files, ", "))
	case !r.Complete:
		t.Errorf("nothing was found, but not everything was searched: %s\n%s", r.Reason, story.String())
	default:
		t.Logf("%s", story.String())
	}
}
