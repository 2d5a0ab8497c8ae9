package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// mysqlForUpdate locks the order's row with SELECT … FOR UPDATE, in a transaction that also records
// the winner. A holder that loses its session cannot write. If the work hangs, the row stays
// locked.
var mysqlForUpdate = Strategy{
	Name:     "mysql-forupdate",
	Title:    "SELECT … FOR UPDATE, in a transaction that spans the work",
	Family:   "database",
	Source:   "MySQL manual: InnoDB locking reads",
	Needs:    SQL | SQLLocks,
	Guard:    order.Naive,
	Claims:   catalog.ClaimsOf("session"),
	Excludes: catalog.Global,
	Waiter:   "waits in the database",
	// Recording the winner commits the transaction, which unlocks the row before the grab has
	// ended.
	UntilClaim: true,
	Breaks:     []string{"F15", "F32"},
	Promises:   Promises{InOrder: catalog.PerProcess},
	New: func(env Env) (Locker, error) {
		take := func(ctx context.Context, tx order.Tx, key string, wait time.Duration) (bool, error) {
			id, err := OrderOf(key)
			if err != nil {
				return false, err
			}
			return tx.LockRow(ctx, id, wait)
		}
		return &sessionLocker{env: env, take: take}, nil
	},
}
