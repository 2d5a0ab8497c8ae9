//go:build !linux

package bench

import (
	"context"
	"time"
)

// alarm sleeps as precisely as the runtime's timers do.
type alarm struct{}

func newAlarm() (*alarm, error) { return &alarm{}, nil }

func (*alarm) sleep(ctx context.Context, d time.Duration) bool { return rest(ctx, d) }

func (*alarm) close() {}
