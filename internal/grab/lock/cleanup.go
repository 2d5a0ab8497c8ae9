package lock

import (
	"context"
	"time"
)

// cleanupTimeout bounds the clean-up after an acquire that failed.
const cleanupTimeout = time.Second

// cleanupContext returns the context of a clean-up. It outlives ctx: that the client
// has gone is often why there is something to clean up (F22).
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// cleanUp releases what may have been taken for a client that has gone. It may fail:
// then the lease runs out.
func cleanUp(ctx context.Context, release func(context.Context) error) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	_ = release(ctx)
}
