package main

import (
	"context"
	"io"
	"os"
	"testing"
	"testing/synctest"

	"grablab/internal/explore"
)

// exploreWorkerCommand is the hidden subcommand by which this program is a child
// process of explore, which executes schedules.
const exploreWorkerCommand = "explore-worker"

func exploreWorkerMain(_ context.Context, _ []string, _, stderr io.Writer) int {
	return inTest(func(bubble explore.Bubble) int {
		if err := explore.Work(bubble); err != nil {
			return complain(stderr, err)
		}
		return exitDone
	})
}

// inTest runs f as the body of a test, for only a test may open bubbles of
// virtual time, and ends the process with the code that f returns: package
// testing would print a verdict of its own.
func inTest(f func(explore.Bubble) int) int {
	testing.Init()
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "explore", F: func(t *testing.T) {
		os.Exit(f(func(run func()) {
			synctest.Test(t, func(*testing.T) { run() })
		}))
	}}}, nil, nil)
	return exitFailed // the test was not run
}
