package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// mysqlForUpdate locks the order's own row. SELECT … FOR UPDATE opens a transaction, and the
// claim commits it. No lease can expire, and no lock can be lost separately from the data,
// because the write fails without the session. The cost is a transaction that stays open
// while the work lasts, and forever if the work hangs (F15).
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
	// The commit of the claim releases the row lock, and the next holder reads the claim.
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
