package lock

import (
	"context"
	"time"
)

// cleanupTimeout limits how long the cleanup after a failed acquire may take.
const cleanupTimeout = time.Second

// serverTimeout limits how long a strategy's New function waits for a server.
const serverTimeout = 5 * time.Second

// cleanupContext returns a context for a cleanup. It outlives ctx, which may have ended because the
// client disconnected.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// cleanUp releases a lock that a failed acquire may have taken. It ignores errors, because the lock
// expires after its TTL anyway.
func cleanUp(ctx context.Context, release func(context.Context) error) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = release(ctx)
}
