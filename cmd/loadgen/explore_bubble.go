package main

import (
	"context"
	"io"

	"grablab/internal/explore"
	"grablab/internal/explore/bubble"
)

// exploreWorkerCommand is the hidden subcommand for the child processes of explore, which run
// schedules.
const exploreWorkerCommand = "explore-worker"

func exploreWorkerMain(_ context.Context, _ []string, _, stderr io.Writer) error {
	return exitCode(bubble.Main(func(bubble explore.Bubble) int { return conclude(explore.Work(bubble), stderr) }))
}
