package explore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// TestAsChild is the body of a child; only a test may open bubbles.
func TestAsChild(t *testing.T) {
	if os.Getenv(explore.AsChild) == "" {
		t.Skip("only as a child")
	}
	if err := explore.Work(bubbleOf(t), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // before package testing prints where replies go
}

// rough takes its process down in one way or the other.
func rough(name string, acquire func()) lock.Strategy {
	return lock.Strategy{
		Name: name, Guard: order.Naive, Excludes: catalog.NoExclusion,
		New: func(env lock.Env) (lock.Locker, error) { return roughLocker{acquire, env.Node}, nil },
	}
}

type roughLocker struct {
	acquire func()
	node    string
}

// Acquire does nothing while sim.New finds out what its leases are like.
func (l roughLocker) Acquire(ctx context.Context, _ string) (lock.Lease, error) {
	if l.node != "0" {
		l.acquire()
	}
	return roughLease{}, ctx.Err()
}

func (roughLocker) Close() error { return nil }

type roughLease struct{}

func (roughLease) Token() string                 { return "" }
func (roughLease) Fence() uint64                 { return 0 }
func (roughLease) Lost() <-chan struct{}         { return nil }
func (roughLease) Release(context.Context) error { return nil }

func init() {
	var mu sync.Mutex
	lock.KnownBroken = append(lock.KnownBroken,
		rough("panics", func() { panic("beyond repair") }),
		rough("hangs", func() { mu.Lock(); mu.Lock() }),
	)
}

// A strategy that ends its process, or hangs it, costs the schedule that was under
// way, and is reported with its stack.
func TestSurvives(t *testing.T) {
	for strategy, want := range map[string]struct{ why, stack string }{
		"panics": {"the process ended", "beyond repair"},
		"hangs":  {"nothing happened", "roughLocker"},
	} {
		t.Run(strategy, func(t *testing.T) {
			if strategy == "hangs" && os.Getenv("GRABLAB_PROVE") != "1" {
				t.Skip("it takes as long as the patience with one schedule; see make prove")
			}
			results, err := explore.Search(t.Context(), nil, explore.Config{
				Strategies: []string{strategy}, Actors: 1, Command: explore.ChildCommand(t),
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := results[0]
			if len(r.Failures) != 1 || r.Failures[0].Property != catalog.Survives {
				t.Fatalf("%+v", r)
			}
			f := r.Failures[0]
			if !strings.Contains(f.Why, want.why) || !strings.Contains(f.Stack, want.stack) || r.Verdict != catalog.Unsafe {
				t.Errorf("%s: %s\n%s", r.Verdict, f.Why, f.Stack)
			}
		})
	}
}

// However many workers execute, and in whichever process, a search comes to the same.
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

// searchFor is a search of one strategy, but for its time.
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
