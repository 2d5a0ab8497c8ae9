package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// partition cuts an instance off from its lock servers for longer than the TTL. Meanwhile, the
// affected drivers try to release their locks (F13, F29 and F30 in docs/failure-modes.md).
var partition = Fault{
	Name:       catalog.Partition,
	Hits:       locks &^ lock.SQLLocks,
	Course:     BeforeHeal,
	TTL:        time.Second,
	ContendFor: 1.5,
	On:         OwnServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		return t.onRoutes(t.servers(), func(routes stack.Routes) []Strike {
			cut := func(d stack.Direction) Strike {
				return Strike{Do: onEach(routes, func(r *stack.Route) (stack.Heal, error) { return r.Cut(d) })}
			}
			return []Strike{cut(stack.BothWays), cut(stack.ToServer), cut(stack.ToClient)}
		})
	},
}

// partitionDB delays an instance's database writes until its leases have expired. The writes are
// not lost, because TCP delivers them when the network works again.
var partitionDB = Fault{
	Name:       catalog.PartitionDB,
	Course:     AtOnce,
	TTL:        time.Second,
	ContendFor: 1.5,
	On:         RealServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		return t.onRoutes([]string{"db"}, func(routes stack.Routes) []Strike {
			return []Strike{{Do: onEach(routes, func(r *stack.Route) (stack.Heal, error) { return r.Stall(stack.BothWays) })}}
		})
	},
}
