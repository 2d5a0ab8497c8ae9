package fault

import (
	"cmp"
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/stack"
)

// slowDB locks the ledger against writes for two leases, so every winner writes after its lease has
// expired (F40 in docs/failure-modes.md).
var slowDB = Fault{
	Name:       catalog.SlowDB,
	Reach:      beforeLedger,
	Course:     AtOnce,
	TTL:        time.Second,
	ContendFor: 2,
	On:         RealServers,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: func(ctx context.Context, _ time.Duration) (stack.Heal, error) {
			return t.Stack.LockTable(ctx, cmp.Or(t.Ledger, "grabs")) // empty for our own schema
		}}}
	}),
}
