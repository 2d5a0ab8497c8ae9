package fault

import (
	"cmp"
	"context"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// redisRestart restarts Redis without persistence, so that all locks are lost (F20 in
// docs/failure-modes.md). With Redlock, it restarts a minority of the nodes.
var redisRestart = loss(catalog.RedisRestart, lock.Redis|lock.RedisQuorum, Target.minority)

// redisRestartMost restarts a majority of the Redlock nodes without persistence, so that their
// locks are lost.
var redisRestartMost = loss(catalog.RedisRestartMost, lock.RedisQuorum, Target.majority)

// loss returns a fault that restarts servers, so that they lose their data.
func loss(name catalog.Fault, hits lock.Backend, servers func(Target) []string) Fault {
	return Fault{
		Name:       name,
		Hits:       hits,
		TTL:        3 * time.Second,
		ContendFor: 0.3,
		On:         OwnServers,
		Severs:     true,
		Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart(servers(t))}} }),
	}
}

func (t Target) restart(servers []string) Step {
	return onServers(servers, func(ctx context.Context, server string, _ time.Duration) (stack.Heal, error) {
		return nil, t.Stack.Restart(ctx, server)
	})
}

// amnesia restarts one Redlock node while the affected drivers hold their locks on the smallest
// possible majority. Losing this single node is enough to break the lock (F18 in
// docs/failure-modes.md).
var amnesia = Fault{
	Name:       catalog.Amnesia,
	Hits:       lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Severs:     true,
	Prepare: func(_ context.Context, t Target) (Prepared, error) {
		nodes := t.servers()
		last := nodes[len(nodes)/2] // the last node of the smallest majority
		return t.onRoutes(t.beyondBare(), func(beyond stack.Routes) []Strike {
			return []Strike{{Before: onEach(beyond, (*stack.Route).Refuse), Do: t.restart([]string{last})}}
		})
	},
}

// dbRestart ends every database session, so that session locks are lost, but no committed data (F32
// in docs/failure-modes.md).
var dbRestart = Fault{
	Name:       catalog.DBRestart,
	TTL:        10 * time.Second,
	ContendFor: 0.1,
	On:         RealServers,
	Severs:     true,
	Prepare:    ready(func(t Target) []Strike { return []Strike{{Do: t.restart([]string{"db"})}} }),
}

// redisFull makes Redis run out of memory (F38 in docs/failure-modes.md). For some orders, Redis
// then evicts all its data. For the others, it instead rejects commands that need memory. With
// Redlock, only a minority of the nodes is affected.
var redisFull = Fault{
	Name:       catalog.RedisFull,
	Hits:       lock.Redis | lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         RealServers,
	Prepare: ready(func(t Target) []Strike {
		evict := func(ctx context.Context, server string, _ time.Duration) (stack.Heal, error) {
			return nil, t.Stack.Evict(ctx, server)
		}
		fill := func(ctx context.Context, server string, _ time.Duration) (stack.Heal, error) {
			return t.Stack.Fill(ctx, server)
		}
		return []Strike{{Do: onServers(t.minority(), evict)}, {Do: onServers(t.minority(), fill)}}
	}),
}

// nodeClock sets the clocks of lock servers ahead, so that every lease expires there (F19 in
// docs/failure-modes.md). It affects the single Redis server, or a minority of the Redlock nodes.
var nodeClock = Fault{
	Name:       catalog.NodeClock,
	Hits:       lock.Redis | lock.RedisQuorum,
	TTL:        3 * time.Second,
	ContendFor: 0.3,
	On:         OwnServers,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: onServers(t.minority(), func(ctx context.Context, server string, lease time.Duration) (stack.Heal, error) {
			return nil, t.Stack.Jump(ctx, server, leases(2, lease))
		})}}
	}),
}

// slowDB locks the ledger against writes for two leases, so every winner writes after its lease has
// expired (F40 in docs/failure-modes.md).
var slowDB = Fault{
	Name:        catalog.SlowDB,
	Reach:       beforeLedger,
	Course:      AtOnce,
	ContendFor:  2,
	On:          RealServers,
	LocksLedger: true,
	Prepare: ready(func(t Target) []Strike {
		return []Strike{{Do: func(ctx context.Context, _ time.Duration) (stack.Heal, error) {
			return t.Stack.LockTable(ctx, cmp.Or(t.Ledger, "grabs")) // empty for our own schema
		}}}
	}),
}
