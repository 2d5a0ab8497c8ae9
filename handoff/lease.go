package handoff

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lease is a lock that is held. It is renewed until it is released or lost.
type Lease struct {
	queue *queue
	turn  string // in Redis
	nth   int64  // in the turn, from 0
	fence int64
	ctx   context.Context // the acquire's values, without its end
	since time.Time
	local bool
	lost  chan struct{}

	// Guarded by the Locker's mu.
	ended  error // errReleased or ErrLost; nil: it is held
	own    context.Context
	cancel context.CancelCauseFunc
}

var errReleased = errors.New("handoff: released")

// Key is the key whose lock it is.
func (le *Lease) Key() string { return le.queue.key }

// Token names this acquisition and no other, for logs.
func (le *Lease) Token() string {
	if le.nth == 0 {
		return le.turn
	}
	return fmt.Sprintf("%s.%d", le.turn, le.nth)
}

// Fence is the fencing token: that of each acquisition of a key is above those of all before. A
// resource that refuses a write with a token below one that it has seen is safe whatever
// becomes of the lock.
func (le *Lease) Fence() uint64 { return uint64(le.fence) }

// Lost closes when the lease is known to be lost, at the latest a hundredth of a TTL
// before it can have ended. It looks at the clock itself, so that in a process that was
// stopped it is right at once. It stays open if the lease is released.
func (le *Lease) Lost() <-chan struct{} {
	q := le.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holder == le {
		q.expireLocked(time.Now())
	}
	return le.lost
}

// Context is a context for the work under the lock. It carries the values of Acquire's, and is
// cancelled when the lease is lost, with ErrLost as its cause, or released. It does not end with
// Acquire's context, which bounds the wait.
func (le *Lease) Context() context.Context {
	q := le.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if le.own == nil {
		le.own, le.cancel = context.WithCancelCause(le.ctx)
		if le.ended != nil {
			le.cancel(le.ended)
		}
	}
	return le.own
}

// endLocked is called once.
func (le *Lease) endLocked(why error) {
	le.ended = why
	if le.cancel != nil {
		le.cancel(why)
	}
	if why == ErrLost {
		close(le.lost)
	}
}

// Release gives the lock back: to the next caller of this Locker without a request, or to the next
// process, or to nobody, with one. ErrLost: the lease was lost before, or released already. A request
// that fails is sent again until ctx is done or the lease has run out; any other error is of the
// last one, and others may have to wait until the lease has run out. One request is made even if
// ctx is done already.
func (le *Lease) Release(ctx context.Context) error {
	q := le.queue
	q.mu.Lock()
	now := time.Now()
	if q.holder == le {
		q.expireLocked(now)
	}
	was := le.ended
	if was == nil {
		le.endLocked(errReleased)
	} else {
		le.ended = errReleased
	}
	if was != nil {
		q.mu.Unlock()
		if was == ErrLost {
			q.undo(ctx, le.turn) // the server may have it for a little longer
		}
		return ErrLost
	}
	err := q.release(ctx, now) // and unlocks
	if f := q.opt.Hooks.Released; f != nil {
		f(q.key, now.Sub(le.since))
	}
	return err
}
