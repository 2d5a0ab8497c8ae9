package explore

import (
	"context"

	"grablab/internal/explore/schedule"
)

// Replay replays one schedule in this process.
func Replay(ctx context.Context, bubble Bubble, sched schedule.Schedule, strategy string) (Result, error) {
	return ReplayBy(ctx, bubble, nil, sched, strategy)
}
