package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// mysqlGetLockPooled is mysql-getlock as it is often written: every statement
// goes through the pool, over whichever connection is free.
//
// A locks over connection 1 and gives it back; B is handed connection 1, whose
// session has the lock, so B has it too (F31). Or A's release goes over
// connection 2, which has nothing to release: the lock stays with connection 1
// for as long as that lives (F31). Or the server drops connection 1; B locks
// and writes, and A, whose claim goes over connection 2, writes as well (F32).
var mysqlGetLockPooled = variant(mysqlGetLock, Strategy{
	Name:   "mysql-getlock-pooled",
	Title:  "GET_LOCK over any connection of the pool",
	Breaks: []string{"F31"},
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
		return l.yes(ctx, "SELECT GET_LOCK(?, 0)", key)
	})
	if err != nil {
		return nil, err
	}
	return &pooledLease{plainLease{l.env.Token()}, l, key}, nil
}

func (l *pooledLocker) Close() error { return nil }

// yes asks a question that is answered with 1, 0 or NULL.
func (l *pooledLocker) yes(ctx context.Context, question, key string) (bool, error) {
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
	return orLost(l.locker.yes(ctx, "SELECT RELEASE_LOCK(?)", l.key))
}
