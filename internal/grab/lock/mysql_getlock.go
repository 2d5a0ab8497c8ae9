package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// mysqlGetLock uses GET_LOCK, the named lock of a database session. The lock has no expiry.
// The sessions of a process end when it dies, but a process whose work hangs keeps the lock
// forever (F15).
//
// The server may drop the session, and with it the lock, without the holder noticing. A
// locks, the server restarts, and B locks and writes (F32). Here A then writes nothing,
// because it reads and claims over that same session. The two are still inside at the same
// time. Names are shared by the whole server, not by one database.
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
		return newSessionLocker(env, func(ctx context.Context, tx order.Tx, key string, wait time.Duration) (bool, error) {
			return tx.LockName(ctx, key, wait)
		})
	},
}
