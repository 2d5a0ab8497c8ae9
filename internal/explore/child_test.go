package explore_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"grablab/internal/explore"
)

// asChild has a process of this test binary do what a child does.
const asChild = "EXPLORE_AS_CHILD"

// TestAsChild is the body of a child; only a test may open bubbles.
func TestAsChild(t *testing.T) {
	if os.Getenv(asChild) == "" {
		t.Skip("only as a child")
	}
	if err := explore.Work(bubbleOf(t), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // before package testing prints where replies go
}

func childCommand(t *testing.T) []string {
	t.Setenv(asChild, "1")
	return []string{os.Args[0], "-test.run=^TestAsChild$"}
}

// However many play, and wherever, a search comes to the same.
func TestPlayersAgree(t *testing.T) {
	command := childCommand(t)
	for _, name := range []string{"setnx-del", "watchdog"} {
		cfg := explore.Config{Strategies: []string{name}, Preemptions: 1, Faults: []string{explore.Expiry, explore.Crash}, FaultCount: 1}
		want := searchFor(t, cfg)
		for _, workers := range []int{1, 2} {
			cfg.Command, cfg.Workers = command, workers
			if got := searchFor(t, cfg); got != want {
				t.Errorf("%s with %d children:\n%s\nwant\n%s", name, workers, got, want)
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
