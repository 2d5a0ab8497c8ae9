package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"grablab/internal/order"
)

// serverWait is how long one statement waits for a lock in the database, which
// counts in whole seconds. A server may go on waiting for a client that has gone,
// but no longer than this.
const serverWait = time.Second

// sessionLocker is what the locks in the database have in common: a lease is a
// database session, pinned for as long as it is held. What the session has
// locked is gone when the session is, and a read or a claim over it then fails.
// So the holder of a lost lock writes nothing, and knows of the loss only then.
//
// Sessions are few. Of the clients of this process that want one key a single one
// has a session at a time; the others wait for its mutex, at no cost to the database.
type sessionLocker struct {
	env   Env
	queue keyedMutex
	// take takes the lock of key for the session. It waits for whole seconds or
	// not at all, and is false if another client had it all along.
	take func(ctx context.Context, tx order.Tx, key string, wait time.Duration) (bool, error)
}

func (l *sessionLocker) Acquire(ctx context.Context, key string) (_ Lease, err error) {
	wait := l.env.wait(ctx)
	giveUp := time.Now().Add(wait)
	unlock, err := l.queue.lock(ctx, key, wait)
	if err != nil {
		return nil, err
	}
	lease := &sessionLease{plainLease: plainLease{l.env.Token()}, unlock: unlock}
	defer func() {
		if err != nil {
			cleanUp(ctx, lease.Release) // ends the session, and with it whatever it may have locked
		}
	}()
	if lease.tx, err = l.begin(ctx, giveUp); err != nil {
		return nil, err
	}
	err = l.await(ctx, lease.tx, key, giveUp)
	if ctx.Err() != nil {
		err = ctx.Err() // whatever that did to the session; or it was granted to a client that has gone
	}
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *sessionLocker) Close() error { return nil }

// beginTimeout is how long also a client that tries only once may wait for a
// session: others may have all of them, for a moment.
const beginTimeout = 500 * time.Millisecond

// begin pins a session. Waiting for one is waiting for the lock.
func (l *sessionLocker) begin(ctx context.Context, giveUp time.Time) (order.Tx, error) {
	if soonest := time.Now().Add(beginTimeout); giveUp.Before(soonest) {
		giveUp = soonest
	}
	waiting, cancel := context.WithDeadline(ctx, giveUp)
	defer cancel()
	tx, err := l.env.Orders.Begin(waiting)
	switch {
	case err == nil:
		return tx, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, order.ErrExhausted):
		return nil, fmt.Errorf("%w: %v", ErrBusy, err)
	default: // as text: a deadline in it is ours and not the caller's
		return nil, fmt.Errorf("lock: no session: %v", err)
	}
}

// await tries at once, then waits in the database for as many whole seconds as
// are left, and polls for the rest.
func (l *sessionLocker) await(ctx context.Context, tx order.Tx, key string, giveUp time.Time) error {
	wait := time.Duration(0)
	for {
		if ok, err := l.take(ctx, tx, key, wait); ok || err != nil {
			return err
		}
		if left := time.Until(giveUp); left < serverWait {
			return poll(ctx, left, pollBackoff, l.env.Rand, func() (bool, error) { return l.take(ctx, tx, key, 0) })
		}
		wait = serverWait
	}
}

// sessionLease is a session that has something locked.
type sessionLease struct {
	plainLease
	tx       order.Tx // nil: none was to be had
	unlock   func()
	released atomic.Bool
}

// Rows go over the session.
func (l *sessionLease) Rows() order.Rows { return l.tx }

func (l *sessionLease) Release(ctx context.Context) error {
	if l.released.Swap(true) {
		return ErrLost
	}
	defer l.unlock()
	if l.tx == nil {
		return nil
	}
	if err := l.tx.Close(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

// newSessionLocker refuses at once a database that has no sessions to lock in,
// and one that does not answer.
func newSessionLocker(env Env, take func(context.Context, order.Tx, string, time.Duration) (bool, error)) (Locker, error) {
	if err := needSessions(env); err != nil {
		return nil, err
	}
	return &sessionLocker{env: env, take: take}, nil
}

func needSessions(env Env) error {
	if env.Orders == nil {
		return errNoDatabase
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	tx, err := env.Orders.Begin(ctx)
	if errors.Is(err, order.ErrExhausted) {
		return nil // there are some
	}
	if err != nil {
		return err
	}
	return tx.Close(ctx)
}

// orderOf is the order that a key names in its braces: "grab:NAME:{7}".
func orderOf(key string) (int64, error) {
	_, rest, _ := strings.Cut(key, "{")
	number, _, _ := strings.Cut(rest, "}")
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("lock: the key %q names no order", key)
	}
	return id, nil
}
