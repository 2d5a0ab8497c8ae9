package lock

import (
	"context"
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
	New: func(env Env) (Locker, error) {
		take := func(ctx context.Context, tx order.Tx, key string, wait time.Duration) (bool, error) {
			return tx.LockName(ctx, key, wait)
		}
		return &sessionLocker{env: env, take: take}, nil
	},
}
