//go:build !linux

package load

import (
	"context"
	"time"

	"grablab/internal/testbed/wait"
)

// timer uses the sleep of the Go runtime, because only Linux has a timerfd.
type timer struct{}

func newTimer() (*timer, error) { return &timer{}, nil }

func (*timer) sleep(ctx context.Context, d time.Duration) bool { return wait.For(ctx, d) }

func (*timer) close() {}
