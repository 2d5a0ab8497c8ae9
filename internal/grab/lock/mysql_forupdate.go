package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// mysqlForUpdate locks the order's own row: SELECT … FOR UPDATE opens a
// transaction, and the claim commits it. There is nothing that could expire and
// nothing beside the data that could be lost: without the session the write
// fails. What it costs is a transaction that stays open for as long as the work
// lasts, and for ever if that hangs (F15).
var mysqlForUpdate = Strategy{
	Name:     "mysql-forupdate",
	Title:    "SELECT … FOR UPDATE around the work",
	Family:   "database",
	Source:   "MySQL manual: InnoDB locking reads",
	Needs:    SQL | SQLLocks,
	Guard:    order.Naive,
	Claims:   catalog.ClaimsOf("session"),
	Excludes: catalog.Global,
	Waiter:   "waits in the database",
	// Its commit lets go of the row. The next one reads what it wrote.
	UntilClaim: true,
	Breaks:     []string{"F15", "F32"},
	Promises:   Promises{InOrder: catalog.PerProcess},
	New: func(env Env) (Locker, error) {
		return newSessionLocker(env, func(ctx context.Context, tx order.Tx, key string, wait time.Duration) (bool, error) {
			id, err := orderOf(key)
			if err != nil {
				return false, err
			}
			return tx.LockRow(ctx, id, wait)
		})
	},
}
