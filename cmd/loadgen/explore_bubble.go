package main

import (
	"context"
	"io"

	"grablab/internal/explore"
	"grablab/internal/explore/bubble"
)

// exploreWorkerCommand is a hidden command. Child processes run it to execute schedules for
// explore.
const exploreWorkerCommand = "explore-worker"

func exploreWorkerMain(_ context.Context, _ []string, _, stderr io.Writer) error {
	return exitCode(bubble.Main(func(bubble explore.Bubble) int { return conclude(explore.Work(bubble), stderr) }))
}
