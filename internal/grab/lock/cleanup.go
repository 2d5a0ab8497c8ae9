package lock

import (
	"context"
	"time"
)

// cleanupTimeout is the longest time that the clean-up after a failed acquire may take.
const cleanupTimeout = time.Second

// cleanupContext returns the context of a clean-up. It outlives ctx, because a clean-up is
// often needed exactly when the client has disconnected (F22).
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// cleanUp releases a lock that may have been taken although the acquire has failed. If the release
// fails too, the lock ends with its TTL.
func cleanUp(ctx context.Context, release func(context.Context) error) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = release(ctx)
}
