package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// mysqlGetLock uses GET_LOCK, a named lock that belongs to a database session. The lock has no
// expiry. When a process dies, its sessions end. A process whose work hangs keeps the lock forever
// (F15).
//
// The server may drop the session together with the lock, without the holder noticing. For example,
// A locks, the server restarts, and B locks and writes (F32). A then writes nothing, because it
// reads and claims in the session that was dropped. However, both are in the critical section at
// the same time.
//
// Lock names are shared by the whole server, not by one database.
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
