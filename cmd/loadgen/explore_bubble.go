package main

import (
	"context"
	"io"

	"grablab/internal/explore"
	"grablab/internal/explore/bubble"
)

// exploreWorkerCommand is the hidden subcommand by which this program is a child
// process of explore, which executes schedules.
const exploreWorkerCommand = "explore-worker"

func exploreWorkerMain(_ context.Context, _ []string, _, stderr io.Writer) int {
	return bubble.Main(func(bubble explore.Bubble) int {
		if err := explore.Work(bubble); err != nil {
			return complain(stderr, err)
		}
		return exitDone
	})
}
