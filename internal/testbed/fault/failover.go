package fault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

// failover kills a Redis master before its replica has received the latest writes, so that Sentinel
// promotes an outdated replica (F17 in docs/failure-modes.md). With Redlock, only one node fails
// over. The leases are long enough that none expires meanwhile.
var failover = Fault{
	Name:       catalog.Failover,
	Hits:       lock.Redis | lock.RedisQuorum,
	TTL:        10 * time.Second,
	ContendFor: 0.2,
	On:         RealServers,
	Once:       true,
	Severs:     true,
	Prepare: func(ctx context.Context, t Target) (Prepared, error) {
		replica, err := t.Stack.Replicate(ctx, t.minority()[0])
		if err != nil {
			return Prepared{}, err
		}
		both := []stack.Detour{replica}
		return Prepared{
			Affected: both, Contender: both,
			Strikes: []Strike{{
				Before: stepWithoutHeal(replica.Lag),
				Do:     stepWithoutHeal(replica.Failover),
			}},
			Close: replica.Close,
		}, nil
	},
}

// failoverSplit creates two Redis masters (F39 in docs/failure-modes.md). The old master loses
// contact with its replica and with Sentinel, but still serves the drivers that the fault hits.
// Sentinel promotes the replica, which lacks their locks, and all other clients use it. After the
// fault is healed, only the promoted master remains.
//
// With Redlock, this happens to one node. The affected drivers reach only a bare majority of the nodes,
// so they need that node's old master for their majority. The other drivers need its new master for
// theirs. The leases last much longer than the failover.
var failoverSplit = Fault{
	Name:       catalog.FailoverSplit,
	Hits:       lock.Redis | lock.RedisQuorum,
	Course:     BeforeHeal,
	TTL:        10 * time.Second,
	ContendFor: 0.2,
	On:         RealServers,
	Once:       true,
	Severs:     true,
	Prepare: func(ctx context.Context, t Target) (Prepared, error) {
		server := t.minority()[0]
		route, err := t.Stack.Route(t.Affected.Name(), server)
		if err != nil {
			return Prepared{}, err
		}
		replica, err := t.Stack.Replicate(ctx, server)
		if err != nil {
			route.Close()
			return Prepared{}, err
		}
		beyond, err := t.routes(t.beyondBare(), t.Affected)
		if err != nil {
			route.Close()
			return Prepared{}, errors.Join(err, replica.Close(ctx))
		}
		return Prepared{
			Affected: append(beyond.Detours(), route), Contender: []stack.Detour{replica},
			Strikes: []Strike{{
				Before: func(ctx context.Context, _ time.Duration) (stack.Heal, error) {
					reached, err := beyond.Each((*stack.Route).Refuse)
					if err != nil {
						return nil, err
					}
					return reached, replica.Lag(ctx)
				},
				Do: func(ctx context.Context, _ time.Duration) (stack.Heal, error) {
					if err := replica.Split(ctx); err != nil {
						return nil, err
					}
					return sync.OnceValue(func() error { route.Redirect(replica.Addr); return nil }), nil
				},
			}},
			Close: func(ctx context.Context) error {
				route.Close()
				beyond.Close()
				return replica.Close(ctx)
			},
		}, nil
	},
}

// promotionTTL is so long that no lease expires before the replica is promoted. promotionContendFor,
// in leases, is long enough for drivers to find the new master, but ends before any lease does.
const (
	promotionTTL        = 24 * time.Second
	promotionContendFor = 0.4
)

// masterKilled kills a Redis master before its replica has received the latest writes (F17 in
// docs/failure-modes.md). The Cluster or the Sentinels notice this and promote the replica.
var masterKilled = ofTopology(Fault{
	Name:       catalog.MasterKilled,
	TTL:        promotionTTL,
	ContendFor: promotionContendFor,
	Severs:     true,
}, func(_ Target, redis *stack.Topology) Strike {
	return Strike{Before: stepWithoutHeal(redis.Lag), Do: stepWithoutHeal(redis.Kill)}
})

// masterPartition cuts a Redis master off from its clients and the other servers (F39 in
// docs/failure-modes.md). The affected drivers continue while the master is still cut off.
var masterPartition = ofTopology(Fault{
	Name:       catalog.MasterPartition,
	Course:     BeforeHeal,
	TTL:        promotionTTL,
	ContendFor: promotionContendFor,
	Severs:     true,
}, func(_ Target, redis *stack.Topology) Strike {
	return Strike{Before: stepWithoutHeal(redis.Lag), Do: func(ctx context.Context, _ time.Duration) (stack.Heal, error) { return redis.Freeze(ctx) }}
})

// sentinelFailover replaces the master in a planned failover. The locks survive, because the new
// master has received all writes.
var sentinelFailover = ofTopology(Fault{
	Name:       catalog.SentinelFailover,
	TTL:        20 * time.Second,
	ContendFor: 0.2,
	Severs:     true,
}, func(_ Target, redis *stack.Topology) Strike {
	return Strike{Do: stepWithoutHeal(redis.SwitchOver)}
})

// slotMoves moves the locks of a Redis Cluster to another master, as an administrator might do.
var slotMoves = ofTopology(Fault{
	Name:       catalog.SlotMoves,
	TTL:        20 * time.Second,
	ContendFor: 0.2,
}, func(t Target, redis *stack.Topology) Strike {
	return Strike{Do: stepWithoutHeal(func(ctx context.Context) error { return redis.MoveSlots(ctx, t.Keys()) })}
})

// ofTopology completes a fault that needs a Redis Cluster or Redis Sentinel. These faults change
// the servers, so Prepared.Close replaces them.
func ofTopology(f Fault, strike func(Target, *stack.Topology) Strike) Fault {
	f.Hits, f.On = lock.Redis, RealServers
	f.NotForeign = "the fault hits a Redis Cluster or Redis Sentinel that the program starts, but the program gives your service a single Redis server"
	f.Prepare = func(_ context.Context, t Target) (Prepared, error) {
		redis := t.Stack.Topology
		if redis == nil {
			return Prepared{}, fmt.Errorf("%w: this fault needs several Redis servers, but the stack has only one: use -redis-topology", stack.ErrRefused)
		}
		return Prepared{Strikes: []Strike{strike(t, redis)}, Close: redis.Rebuild}, nil
	}
	return f
}
