//go:build !linux

package load

import (
	"context"
	"time"

	"grablab/internal/testbed/wait"
)

// timer is only as precise as a Go runtime timer. Linux has a more precise one (timer_linux.go).
type timer struct{}

func newTimer() (*timer, error) { return &timer{}, nil }

func (*timer) sleep(ctx context.Context, d time.Duration) bool { return wait.For(ctx, d) }

func (*timer) close() {}
