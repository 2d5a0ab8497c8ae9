package explore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/order"

	"golang.org/x/sync/errgroup"
)

// TestAsChild runs a child process of a search. It is a test because only a test can use virtual time.
func TestAsChild(t *testing.T) {
	if os.Getenv(explore.AsChild) == "" {
		t.Skip("this test runs only in a child process")
	}
	if err := explore.Work(bubbleOf(t)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // exit before package testing prints a verdict
}

// A strategy can print at any time, even before it runs. The output must not disturb the search.
func init() {
	if os.Getenv(explore.AsChild) != "" {
		fmt.Println("a strategy prints in its init")
	}
}

// rough is a strategy that excludes no one. Its functions can end or hang the process.
type rough struct {
	name    string
	alone   func() // called in the first acquire, before any schedule runs
	acquire func()
	release func()
}

func (r rough) strategy() lock.Strategy {
	return lock.Strategy{
		Name: r.name, Guard: order.Naive, Excludes: catalog.NoExclusion,
		New: func(env lock.Env) (lock.Locker, error) {
			if env.Node == "0" { // sim.New learns the properties of its leases
				return rough{acquire: r.alone}, nil
			}
			return r, nil
		},
	}
}

func (r rough) Acquire(ctx context.Context, _ string) (lock.Lease, error) {
	do(r.acquire)
	return roughLease{r}, ctx.Err()
}

func (rough) Close() error { return nil }

func do(f func()) {
	if f != nil {
		f()
	}
}

type roughLease struct{ rough }

func (roughLease) Token() string         { return "" }
func (roughLease) Fence() uint64         { return 0 }
func (roughLease) Lost() <-chan struct{} { return nil }
func (l roughLease) Release(context.Context) error {
	do(l.release)
	return nil
}

func beyondRepair() { panic("beyond repair") }

func spin() {
	for i := 0; ; i++ {
		_ = i
	}
}

var locked sync.Mutex

// roughs lists ways to end a process, and the expected report of each.
var roughs = []struct {
	rough
	why   string // empty if nothing is wrong
	last  string // the last step, or empty if there was no schedule
	stack string // a part of the stack, or empty if there is none
}{
	{rough{name: "panics", acquire: beyondRepair}, "the process ended: panic: beyond repair", "A begins", "explore_test.beyondRepair"},
	{rough{name: "panics-later", release: beyondRepair}, "the process ended: panic: beyond repair", "A claim 1 db", "explore_test.roughLease.Release"},
	{rough{name: "panics-alone", alone: beyondRepair}, "the process ended: panic: beyond repair", "", "explore_test.beyondRepair"},
	{rough{name: "exits", acquire: func() { os.Exit(3) }}, "the process ended with exit status 3", "A begins", ""},
	{rough{name: "exits-as-if-well", release: func() { os.Exit(0) }}, "the process ended with exit status 0", "A claim 1 db", ""},
	{rough{name: "exits-alone", alone: func() { os.Exit(0) }}, "the process ended with exit status 0", "", ""},
	{rough{name: "goexits", acquire: runtime.Goexit}, "as runtime.Goexit does", "A begins", "explore_test.rough.Acquire"},
	{rough{name: "goexits-alone", alone: runtime.Goexit}, "as runtime.Goexit does", "", "explore_test.rough.Acquire"},
	{rough{name: "deadlocks", acquire: func() { <-make(chan int) }}, "a deadlock", "time to next timer", "explore_test.rough.Acquire"},
	{rough{name: "deadlocks-alone", alone: func() { <-make(chan int) }}, "a deadlock", "", "explore_test.rough.Acquire"},
	{rough{name: "hangs", release: func() { locked.Lock(); locked.Lock() }}, "nothing happened for 1s", "A claim 1 db", "explore_test.roughLease.Release"},
	{rough{name: "loops", acquire: spin}, "nothing happened for 1s", "A begins", "explore_test.spin"},
	{rough{name: "loops-alone", alone: spin}, "nothing happened for 1s", "", "explore_test.spin"},
	{rough{name: "sleeps-on", acquire: func() {
		for {
			time.Sleep(time.Second)
		}
	}}, "nothing happened for 1s", "time to next timer", "explore_test.rough.Acquire"},
	{rough{name: "prints", acquire: func() { fmt.Println("panic: not at all") }}, "", "", ""},
}

func init() {
	for _, r := range roughs {
		lock.KnownBroken = append(lock.KnownBroken, r.strategy())
	}
}

// TestSurvives checks the report for a strategy that ends or hangs its process. A search and
// a replay must both give the schedule up to the last step, and the stack.
func TestSurvives(t *testing.T) {
	command := explore.ChildCommand(t)
	results := make([]explore.Result, len(roughs))
	var searches errgroup.Group
	searches.SetLimit(4) // some searches only wait, so this can exceed the number of cores
	for i, r := range roughs {
		searches.Go(func() error {
			cfg := explore.Config{Strategies: []string{r.name}, Actors: 1, Command: command}
			if strings.HasPrefix(r.why, "nothing happened") {
				cfg.Patience = time.Second
			}
			found, err := explore.Search(t.Context(), nil, cfg, nil)
			if err == nil {
				results[i] = found[0]
			}
			return err
		})
	}
	if err := searches.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, want := range roughs {
		t.Run(want.name, func(t *testing.T) {
			r := results[i]
			if want.why == "" {
				if r.Verdict != catalog.Safe || !r.Complete {
					t.Errorf("the search should find the strategy safe, but returned %+v", r)
				}
				return
			}
			if len(r.Failures) != 1 || r.Failures[0].Property != catalog.Survives || r.Verdict != catalog.Unsafe || r.Complete || r.Reason == "" {
				t.Fatalf("the search should find that the process ended, but returned %+v", r)
			}
			f := r.Failures[0]
			if !strings.Contains(f.Why, want.why) || !strings.Contains(f.Stack, want.stack) || (f.Stack == "") != (want.stack == "") {
				t.Errorf("reason: %s\nstack: %s", f.Why, f.Stack)
			}
			if regexp.MustCompile(`goroutine \d|0x`).MatchString(f.Stack) {
				t.Errorf("the stack contains parts that differ between runs:\n%s", f.Stack)
			}
			last := ""
			if n := len(f.Schedule.Steps); n > 0 {
				last = f.Schedule.Steps[n-1].String()
			}
			if last != want.last {
				t.Errorf("the last step is %q, want %q", last, want.last)
			}
			if want.name != "panics-later" {
				return
			}
			again, err := explore.ReplayBy(t.Context(), nil, command, f.Schedule, "")
			if err != nil || again.Verdict != again.Expected || len(again.Failures) != 1 || again.Failures[0].Why != f.Why {
				t.Errorf("the replay: %v, %+v", err, again)
			}
		})
	}
}

// TestDescribe checks that Describe returns the registry entries of strategies, and that it returns an
// EndedError if the process ends early.
func TestDescribe(t *testing.T) {
	command := explore.ChildCommand(t)
	described, err := explore.Describe(command, []string{"watchdog", "panics"})
	if err != nil || len(described) != 2 {
		t.Fatal(described, err)
	}
	watchdog, err := lock.Find("watchdog")
	if err != nil {
		t.Fatal(err)
	}
	watchdog.New = nil
	if !reflect.DeepEqual(described[0], watchdog) {
		t.Errorf("Describe returned %+v, want %+v", described[0], watchdog)
	}
	_, err = explore.Describe([]string{"false"}, []string{"watchdog"})
	if _, ok := errors.AsType[*explore.EndedError](err); !ok {
		t.Errorf("a program that ends immediately: %v", err)
	}
}

// TestWorkersAgree checks that a search gives the same result with any number of workers, in
// this process or in children.
func TestWorkersAgree(t *testing.T) {
	command := explore.ChildCommand(t)
	strategies := []string{"setnx-del", "watchdog"}
	if raced {
		strategies = strategies[:1]
	}
	for _, name := range strategies {
		cfg := explore.Config{Strategies: []string{name}, Preemptions: 1, Faults: []catalog.Fault{catalog.Slow, catalog.Crash}, FaultCount: 1}
		want := searchFor(t, cfg)
		for _, workers := range []int{1, 2} {
			cfg.Command, cfg.Workers = command, workers
			if got := searchFor(t, cfg); got != want {
				t.Errorf("%s with %d children:\n%.600s\nwant\n%.600s", name, workers, got, want)
			}
		}
	}
}

// searchFor returns the result of a search of one strategy as text, without its duration.
func searchFor(t *testing.T, cfg explore.Config) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results, err := explore.Search(ctx, bubbleOf(t), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := results[0]
	r.Elapsed = 0
	return fmt.Sprintf("%+v", r)
}
