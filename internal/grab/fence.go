package grab

import (
	"context"
	"fmt"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/tap"
)

// behindError means that a lease's fencing token is not newer than the token that its open
// order has seen. Either the holder is stale, or Redis has lost the lock's counter and
// started again (F27). Raising the counter and acquiring again cures the second case and is
// harmless in the first.
type behindError struct {
	fence uint64 // of the order
	cause error
}

func (e *behindError) Error() string { return e.cause.Error() }
func (e *behindError) Unwrap() error { return e.cause }

// judgeStale returns the error for a read with a stale token. row is the order that was read.
func (a *attempt) judgeStale(row order.Order, stale error) error {
	if row.Status != order.Open {
		return order.ErrTaken
	}
	if _, ok := a.lock.Locker.(lock.FenceRaiser); !ok {
		return stale
	}
	return &behindError{row.Fence, stale}
}

// raise increases the lock's counter to at least fence.
func (a *attempt) raise(ctx context.Context, fence uint64) error {
	ctx, end := a.scope.Enter(ctx, tap.Acquire)
	defer end()

	if err := a.lock.Locker.(lock.FenceRaiser).Raise(ctx, a.key(), fence); err != nil {
		return fmt.Errorf("grab: raise the counter of fencing tokens: %w", err)
	}
	return nil
}
