package grab

import (
	"context"
	"fmt"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
	"grablab/internal/tap"
)

// behindError says that a lease's fencing token is no newer than what its open
// order has seen: either the holder is stale, or the lock's counter has been
// forgotten by its Redis and begun again (F27). What cures the one does no harm
// to the other: raise the counter and acquire again.
type behindError struct {
	fence uint64 // of the order
	cause error
}

func (e *behindError) Error() string { return e.cause.Error() }
func (e *behindError) Unwrap() error { return e.cause }

// judgeStale says what a read that found its token stale comes to. row is the
// order as the database has it.
func (a *attempt) judgeStale(row order.Order, stale error) error {
	if row.Status != order.Open {
		return order.ErrTaken
	}
	if _, ok := a.lock.Locker.(lock.FenceRaiser); !ok {
		return stale
	}
	return &behindError{row.Fence, stale}
}

// raise lifts the lock's counter to at least fence.
func (a *attempt) raise(ctx context.Context, fence uint64) error {
	ctx, end := a.scope.Enter(ctx, tap.Acquire)
	defer end()

	if err := a.lock.Locker.(lock.FenceRaiser).Raise(ctx, a.key(), fence); err != nil {
		return fmt.Errorf("grab: raise the counter of fencing tokens: %w", err)
	}
	return nil
}
