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

// Bounds say how far Explore searches. The zero value of a field is its default.
type Bounds struct {
	Actors      int      // how many want the lock at once: 2, at most 4
	Instances   int      // of the service, on which they are: 2, at most 2
	Preemptions int      // how often another may go on although one could: 0
	Faults      []string // which may strike, by the names of docs/faults.md: none
	FaultCount  int      // how many of them in one schedule: 1 if there are any

	// Properties are those that must hold, by the names of docs/explore.md: all. That
	// two may win an order is the first: "one-winner".
	Properties []string

	TTL  time.Duration // 3 s
	Wait time.Duration // for how long an actor waits for the lock: it tries once
	Work time.Duration // between reading the order and writing the winner: none

	// Nodes is how many independent servers there are, 3 to 7; 0: there is one server.
	Nodes int
	// Fenced: the write is fenced with the lease's Fence. Without, what comes behind a
	// holder's last look at its lease is not protected: no lock survives "pause".
	Fenced bool

	// Time is after how long a search that has found nothing fails the test, because it
	// is not at its end; 0: it goes on until it is.
	Time time.Duration
	// Dir is where the schedules are written that break something: testdata/explore.
	Dir string
}

// Explore searches for the shortest schedule, within bounds, that breaks a property of
// the lock. Cheaper ones come first: those with fewer faults, then those with fewer
// preemptions. It fails the test with the steps, and with a file of them in bounds.Dir;
// and it fails the test if it could not search everything within bounds.Time. The same
// bounds search the same schedules.
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

// work is all that a child does. It does not return.
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

// save writes the schedule of every failure, and returns the names of the files.
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

// judge fails the test with what was found, and with what was not looked at.
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
