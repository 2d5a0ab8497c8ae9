package lock

import (
	"context"
	"time"
)

// cleanupTimeout bounds the clean-up after a failed acquire.
const cleanupTimeout = time.Second

// cleanupContext returns the context of a clean-up. It outlives ctx, because a clean-up is
// often needed exactly when the client has disconnected (F22).
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// cleanUp calls release for a lock that may have been taken for a client that has
// disconnected. If release fails, the lease ends when its TTL is over.
func cleanUp(ctx context.Context, release func(context.Context) error) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = release(ctx)
}
