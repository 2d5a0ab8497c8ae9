package fault

import (
	"context"
	"fmt"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/grab/lock"
	"grablab/internal/testbed/stack"
)

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
