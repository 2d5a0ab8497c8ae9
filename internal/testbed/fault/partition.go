package fault

import (
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// partition cuts one instance off from where its locks are, for longer than the
// lease and through the release of its faulted drivers (F13, F29, F30).
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

// partitionDB keeps the claims of one instance under way until their leases
// have run out. No pause is needed: TCP sends again what did not arrive.
var partitionDB = Fault{
	Name:       catalog.PartitionDB,
	Course:     AtOnce,
	TTL:        time.Second,
	ContendFor: 1.5,
	On:         RealServers,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		return t.onRoutes([]string{"db"}, func(routes stack.Routes) []Strike {
			return []Strike{{Do: onEach(routes, func(r *stack.Route) (stack.Heal, error) { return r.Still(stack.BothWays) })}}
		})
	},
}
