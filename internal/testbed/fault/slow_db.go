package fault

import (
	"cmp"
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/testbed/stack"
)

// slowDB delays every winner's database write until the driver's lease has expired (F40 in
// docs/failure-modes.md).
var slowDB = Fault{
	Name:       catalog.SlowDB,
	Reach:      beforeLedger,
	Course:     AtOnce,
	TTL:        time.Second,
	ContendFor: 2,
	On:         RealServers,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: func(ctx context.Context, _ time.Duration) (stack.Heal, error) {
			return t.Stack.LockTable(ctx, cmp.Or(t.Ledger, "grabs"))
		}}}
	}),
}
