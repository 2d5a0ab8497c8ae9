package main

import (
	"context"
	"io"

	"grablab/internal/explore"
	"grablab/internal/explore/bubble"
)

// exploreWorkerCommand is a hidden command. It runs in the child processes in which explore
// executes schedules.
const exploreWorkerCommand = "explore-worker"

func exploreWorkerMain(_ context.Context, _ []string, _, stderr io.Writer) error {
	return exitCode(bubble.Main(func(bubble explore.Bubble) int { return conclude(explore.Work(bubble), stderr) }))
}
