package lock

import (
	"context"
	"time"
)

// cleanupTimeout limits how long the cleanup after a failed acquire may take.
const cleanupTimeout = time.Second

// cleanupContext returns a context for a cleanup. It remains valid when ctx ends, for example
// because the client has disconnected.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// cleanUp releases a lock that a failed acquire may have taken. It ignores errors, because the lock
// then expires after its TTL.
func cleanUp(ctx context.Context, release func(context.Context) error) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = release(ctx)
}
