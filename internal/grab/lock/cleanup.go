package lock

import (
	"context"
	"time"
)

// cleanupTimeout limits how long the clean-up after a failed acquire may take.
const cleanupTimeout = time.Second

// cleanupContext returns a context for cleaning up after ctx has ended. Cleaning up is often
// necessary precisely because the client has disconnected (failure mode F22).
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// cleanUp releases a lock that a failed acquire may have taken anyway. If the release fails too,
// the lock expires after its TTL.
func cleanUp(ctx context.Context, release func(context.Context) error) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = release(ctx)
}
