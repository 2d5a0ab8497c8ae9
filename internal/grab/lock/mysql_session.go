package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// mysqlGetLock uses GET_LOCK, a named lock that belongs to a database session. The lock has no
// expiry. It ends with its session, for example when the process dies. If the work hangs, the lock
// remains.
//
// If the server ends A's session, B may lock and write while A still works. A then writes nothing,
// because it reads and writes only in the session that has ended.
//
// Lock names are global to the server, so clients of different databases can block each other.
var mysqlGetLock = Strategy{
	Name:     "mysql-getlock",
	Title:    "GET_LOCK; the same session reads and writes",
	Family:   "database",
	Source:   "MySQL and MariaDB manuals: GET_LOCK",
	Needs:    SQL | SQLLocks,
	Guard:    order.Naive,
	Claims:   catalog.ClaimsOf("session"),
	Excludes: catalog.Global,
	Waiter:   "waits in the database",
	Breaks:   []string{"F15", "F32"},
	Promises: Promises{InOrder: catalog.PerProcess},
	New:      sessionLock(order.Tx.LockName),
}

// mysqlForUpdate locks the order's row with SELECT … FOR UPDATE, in a transaction that also records
// the winner. A holder that loses its session cannot write. If the work hangs, the row stays
// locked.
var mysqlForUpdate = variant(mysqlGetLock, Strategy{
	Name:   "mysql-forupdate",
	Title:  "SELECT … FOR UPDATE, in a transaction that spans the work",
	Source: "MySQL manual: InnoDB locking reads",
	// Recording the winner commits the transaction, which unlocks the row before the grab has
	// ended.
	UntilClaim: true,
	Breaks:     []string{"F15", "F32"},
	New: sessionLock(func(tx order.Tx, ctx context.Context, key string, wait time.Duration) (bool, error) {
		id, err := orderOf(key)
		if err != nil {
			return false, err
		}
		return tx.LockRow(ctx, id, wait)
	}),
})

// serverWait limits how long one SQL statement waits for a lock. It is short, because the database
// keeps waiting even after the client has disconnected.
const serverWait = time.Second

// A sessionLocker is a Locker whose leases are database sessions. When a session ends, its locks
// end too, and its reads and writes fail. As a result, a holder that has lost its lock cannot
// write.
//
// Because sessions are scarce, only one client of this process at a time uses a session for a key.
// The others wait in the process.
type sessionLocker struct {
	env   Env
	queue keyedMutex
	take  takeInSession
}

// A takeInSession tries to lock a key in a database session. It waits for at most wait, a whole number of
// seconds. If another client still holds the lock after that, it returns false.
type takeInSession func(tx order.Tx, ctx context.Context, key string, wait time.Duration) (bool, error)

func sessionLock(take takeInSession) func(Env) (Locker, error) {
	return func(env Env) (Locker, error) { return &sessionLocker{env: env, take: take}, nil }
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
			cleanUp(ctx, lease.Release)
		}
	}()
	if lease.tx, err = l.begin(ctx, giveUp); err != nil {
		return nil, err
	}
	err = l.await(ctx, lease.tx, key, giveUp)
	if ctx.Err() != nil {
		err = ctx.Err() // the client has disconnected, so release the lock even if take got it
	}
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *sessionLocker) Close() error { return nil }

// beginTimeout is the minimum time for which a client waits for a free database session. It applies
// even if the client does not want to wait for the lock.
const beginTimeout = 500 * time.Millisecond

// begin reserves a database session. Waiting for a free session counts as waiting for the lock.
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
	default: // do not wrap err, because its deadline is not the caller's
		return nil, fmt.Errorf("lock: there is no free database session: %v", err)
	}
}

// await tries to get the lock until giveUp. It waits in the database for whole seconds, and polls
// for the rest of the time.
func (l *sessionLocker) await(ctx context.Context, tx order.Tx, key string, giveUp time.Time) error {
	wait := time.Duration(0)
	for {
		if ok, err := l.take(tx, ctx, key, wait); ok || err != nil {
			return err
		}
		if left := time.Until(giveUp); left < serverWait {
			return poll(ctx, left, pollBackoff, l.env.Rand, func() (bool, error) { return l.take(tx, ctx, key, 0) })
		}
		wait = serverWait
	}
}

// A sessionLease is a lock that lasts as long as its database session.
type sessionLease struct {
	plainLease
	tx       order.Tx // nil if no session could be reserved
	unlock   func()
	released atomic.Bool
}

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

// orderOf returns the order ID between the braces in a key. For "grab:NAME:{7}", it returns 7.
func orderOf(key string) (int64, error) {
	_, rest, _ := strings.Cut(key, "{")
	number, _, _ := strings.Cut(rest, "}")
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("lock: the key %q does not contain the id of an order", key)
	}
	return id, nil
}
