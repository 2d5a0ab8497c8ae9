//go:build !linux

package load

import (
	"context"
	"time"

	"grablab/internal/testbed/wait"
)

// timer sleeps only as precisely as a timer of the Go runtime. There is a more precise one for
// Linux.
type timer struct{}

func newTimer() (*timer, error) { return &timer{}, nil }

func (*timer) sleep(ctx context.Context, d time.Duration) bool { return wait.For(ctx, d) }

func (*timer) close() {}
