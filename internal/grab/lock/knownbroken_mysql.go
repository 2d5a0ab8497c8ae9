package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"grablab/internal/catalog"
)

// mysqlGetLockPooled is mysql-getlock with a common mistake. Every statement uses any free
// connection of the pool.
//
// A locks over connection 1 and returns the connection to the pool. B gets connection 1, whose
// session has the lock, so B holds the lock too (F31). Or A's release uses connection 2, which has
// no lock to release. The lock then stays as long as connection 1 lives (F31).
//
// Or the server drops connection 1, and B locks and writes. A's claim uses connection 2, so A
// writes too (F32). Two drivers of one process are enough for F31. With few orders, it depends on
// chance which of these failures happens.
var mysqlGetLockPooled = variant(mysqlGetLock, Strategy{
	Name:   "mysql-getlock-pooled",
	Title:  "GET_LOCK over any connection of the pool",
	Claims: catalog.Always(catalog.ByChance).But(catalog.GrabbedTwice, catalog.NoFault, catalog.DBRestart),
	Breaks: []string{"F31", "F32"},
	New: func(env Env) (Locker, error) {
		if err := needSessions(env); err != nil {
			return nil, err
		}
		pool, ok := env.Orders.(interface{ DB() *sql.DB })
		if !ok {
			return nil, errors.New("lock: this store has no pool of connections")
		}
		return &pooledLocker{env, pool.DB()}, nil
	},
})

type pooledLocker struct {
	env  Env
	pool *sql.DB
}

func (l *pooledLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	err := poll(ctx, l.env.wait(ctx), pollBackoff, l.env.Rand, func() (bool, error) {
		return l.isOne(ctx, "SELECT GET_LOCK(?, 0)", key)
	})
	if err != nil {
		return nil, err
	}
	return &pooledLease{plainLease{l.env.Token()}, l, key}, nil
}

func (l *pooledLocker) Close() error { return nil }

// isOne runs an SQL query with a single result, and reports whether the result is 1. Other possible
// results are 0 and NULL.
func (l *pooledLocker) isOne(ctx context.Context, question, key string) (bool, error) {
	var answer sql.NullInt64
	if err := l.pool.QueryRowContext(ctx, question, key).Scan(&answer); err != nil {
		return false, fmt.Errorf("lock: %w", err)
	}
	return answer.Int64 == 1, nil
}

type pooledLease struct {
	plainLease
	locker *pooledLocker
	key    string
}

func (l *pooledLease) Release(ctx context.Context) error {
	return orLost(l.locker.isOne(ctx, "SELECT RELEASE_LOCK(?)", l.key))
}

// mysqlGetLockSplit calls GET_LOCK in one database session, but writes the order in another
// session. If the server ends the first session, the holder writes although its lock is gone
// (failure mode F32). Many lock libraries have this problem, because they do not share the
// application's connection.
var mysqlGetLockSplit = variant(mysqlGetLock, Strategy{
	Name:   "mysql-getlock-split",
	Title:  "GET_LOCK in its own session; other connections read and write",
	Claims: catalog.ClaimsOf("session").But(catalog.GrabbedTwice, catalog.DBRestart),
	Breaks: []string{"F15", "F32"},
	New: func(env Env) (Locker, error) {
		l, err := mysqlGetLock.New(env)
		return splitLocker{l}, err
	},
})

type splitLocker struct{ Locker }

func (l splitLocker) Acquire(ctx context.Context, key string) (Lease, error) {
	lease, err := l.Locker.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return splitLease{lease}, nil
}

// A splitLease hides the database session of its lock, so that the holder uses other connections.
type splitLease struct{ Lease }
