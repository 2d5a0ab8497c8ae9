package lock

import (
	"context"
	"time"
)

// cleanupTimeout limits how long the cleanup after a failed acquire may take.
const cleanupTimeout = time.Second

// cleanupContext returns a context for a cleanup. It works even if ctx has ended, for example
// because the client has disconnected.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// cleanUp releases a lock that a failed acquire may have taken anyway. It ignores errors, because
// the lock then expires after its TTL.
func cleanUp(ctx context.Context, release func(context.Context) error) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = release(ctx)
}
