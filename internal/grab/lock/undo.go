package lock

import (
	"context"
	"time"
)

// undoTimeout bounds the clean-up after an acquire that failed.
const undoTimeout = time.Second

// undoing returns the context of a clean-up. Whoever asked for the lock may
// have gone, which is often why there is something to clean up (F22).
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}
