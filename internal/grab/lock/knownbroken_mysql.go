package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"grablab/internal/catalog"
)

// mysqlGetLockPooled calls GET_LOCK on any free connection of a pool. This is a common mistake,
// because the lock belongs to a connection and not to a client.
//
// B may get the connection on which A has locked, so B holds the lock too. A's release may use
// another connection, so the lock stays. If the server drops the connection with the lock, A can
// still write on another one.
var mysqlGetLockPooled = variant(mysqlGetLock, Strategy{
	Name:   "mysql-getlock-pooled",
	Title:  "GET_LOCK on any connection in the pool",
	Claims: catalog.Always(catalog.ByChance).But(catalog.GrabbedTwice, catalog.NoFault, catalog.DBRestart),
	Breaks: []string{"F31", "F32"},
	New: func(env Env) (Locker, error) {
		pool, ok := env.Orders.(interface{ DB() *sql.DB })
		if !ok {
			return nil, errors.New("lock: this strategy needs a database with a pool of connections")
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

// isOne runs an SQL query and reports whether its result is 1, as opposed to 0 or NULL.
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

// mysqlGetLockSplit calls GET_LOCK in one database session, but writes the order in another. If the
// first session ends, its holder can still write although the lock is gone. Many lock libraries
// have this problem, because they open their own connection.
var mysqlGetLockSplit = variant(mysqlGetLock, Strategy{
	Name:   "mysql-getlock-split",
	Title:  "GET_LOCK in a session of its own; other connections read and write",
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

// A splitLease hides its lock's database session, so that the holder writes on other connections.
type splitLease struct{ Lease }
