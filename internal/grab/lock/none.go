package lock

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
)

// none takes no lock, so two clients can both read an open order and both write. It is a control
// experiment: every check must find it unsafe.
var none = Strategy{
	Name:       "none",
	Title:      "no lock: check, then act",
	Family:     "none",
	Source:     "the bug that all other strategies try to prevent",
	Guard:      order.Naive,
	FixedGuard: true,
	Claims:     catalog.Always(catalog.GrabbedTwice),
	Excludes:   catalog.NoExclusion,
	Breaks:     []string{"F1"},
	New:        newNoLocker,
}

// mysqlCAS takes no lock. It runs UPDATE … WHERE id = ? AND status = 0, and wins if the UPDATE
// changes a row. It is a control experiment: every check must find it safe.
//
// If the commit's reply is lost, the winner recognises its write by the token in its ledger row.
var mysqlCAS = Strategy{
	Name:       "mysql-cas",
	Title:      "no lock: one guarded UPDATE decides",
	Family:     "database",
	Source:     "compare-and-set: whoever's conditional UPDATE changes the row wins",
	Needs:      SQL,
	Guard:      order.Guarded,
	FixedGuard: true,
	Excludes:   catalog.NoExclusion,
	Breaks:     []string{"F33"},
	New:        newNoLocker,
}

// mysqlUnique takes no lock. It inserts the winner into a table with a unique key on the order, so
// a second insert fails. If a commit's reply is lost, the token in the ledger row shows who has won.
var mysqlUnique = variant(mysqlCAS, Strategy{
	Name:   "mysql-unique",
	Title:  "no lock: an INSERT into a table with UNIQUE(order_id) decides",
	Source: "a unique key: an INSERT that gets a duplicate-key error loses",
	Guard:  order.Unique,
	Breaks: []string{"F33"},
})

// A noLocker is the Locker for strategies without a lock. It returns a lease immediately, without
// locking anything.
type noLocker struct{ token func() string }

func newNoLocker(env Env) (Locker, error) { return noLocker{env.Token}, nil }

func (l noLocker) Acquire(ctx context.Context, _ string) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return noLease{plainLease{l.token()}}, nil
}

func (noLocker) Close() error { return nil }

type noLease struct{ plainLease }

func (noLease) Release(context.Context) error { return nil }

// A plainLease has nothing but a token. It never ends, so its holder cannot lose it.
type plainLease struct{ token string }

func (l plainLease) Token() string       { return l.token }
func (plainLease) Fence() uint64         { return 0 }
func (plainLease) Lost() <-chan struct{} { return nil }
func (plainLease) Until() time.Time      { return time.Time{} }
