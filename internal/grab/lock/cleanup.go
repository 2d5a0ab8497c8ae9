package lock

import (
	"context"
	"time"
)

// cleanupTimeout limits the clean-up after a failed acquire.
const cleanupTimeout = time.Second

// cleanupContext returns a context for cleaning up. It outlives ctx, because a clean-up is often
// needed after the client has disconnected (F22).
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// cleanUp releases a lock that a failed acquire may have taken. If the release fails too, the lock
// expires after its TTL.
func cleanUp(ctx context.Context, release func(context.Context) error) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = release(ctx)
}
