package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// mysqlForUpdate locks the row of the order with SELECT … FOR UPDATE. Its transaction ends with the
// write of the winner. A holder that loses its session cannot write. However, the transaction stays
// open during the work, and forever if the work hangs (failure mode F15).
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
	// Writing the winner commits the transaction and thereby unlocks the row. The next holder then
	// sees the winner.
	UntilClaim: true,
	Breaks:     []string{"F15", "F32"},
	Promises:   Promises{InOrder: catalog.PerProcess},
	New: func(env Env) (Locker, error) {
		return newSessionLocker(env, func(ctx context.Context, tx order.Tx, key string, wait time.Duration) (bool, error) {
			id, err := OrderOf(key)
			if err != nil {
				return false, err
			}
			return tx.LockRow(ctx, id, wait)
		})
	},
}
