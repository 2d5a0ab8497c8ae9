package grab

import (
	"context"
	"fmt"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/tap"
)

// behindError means that the database has already seen this fencing token or a higher one for the
// order. Either the lease is old, or Redis has lost its fencing token counter.
type behindError struct {
	fence uint64 // the highest fencing token that the order has seen
	cause error
}

func (e *behindError) Error() string { return e.cause.Error() }
func (e *behindError) Unwrap() error { return e.cause }

// judgeStale returns the error for a grab whose fencing token the database has rejected. It returns
// order.ErrTaken if another driver already has the order. Otherwise, it returns a behindError if
// the lock's token counter can be raised, and stale if it cannot.
func (a *attempt) judgeStale(row order.Order, stale error) error {
	if row.Status != order.Open {
		return order.ErrTaken
	}
	if _, ok := a.lock.Locker.(lock.FenceRaiser); !ok {
		return stale
	}
	return &behindError{row.Fence, stale}
}

// raise sets the fencing token counter to at least fence.
func (a *attempt) raise(ctx context.Context, fence uint64) error {
	ctx, end := a.scope.Enter(ctx, tap.Acquire)
	defer end()

	if err := a.lock.Locker.(lock.FenceRaiser).RaiseFence(ctx, a.key(), fence); err != nil {
		return fmt.Errorf("grab: cannot raise the fencing token counter: %w", err)
	}
	return nil
}
