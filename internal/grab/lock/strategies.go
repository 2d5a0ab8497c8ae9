package lock

import (
	"cmp"
	"maps"
	"slices"

	"grablab/internal/catalog"
)

// Strategies is the registry, in the order in which a teacher tells the story: the
// five to start with, then the mistakes around setnx, fencing, the
// locks of databases and of consensus systems, and what all of them lead to.
var Strategies = []Strategy{
	none,
	mutex,
	setnx,
	watchdog,
	redlock,
	setnxNoTTL,
	setnxExpire,
	setnxDel,
	setnxGetDel,
	setnxDriverID,
	setnxCheck,
	setnxWatch,
	setnxGetSet,
	watchdogFenced,
	setnxFenced,
	setnxFenceWrite,
	redlockMiswired,
	mysqlGetLock,
	mysqlForUpdate,
	mysqlCAS,
	zooKeeper,
	zooKeeperFenced,
	etcd,
	etcdFenced,
	handoffStrategy,
	redisStock,
	redisStockReturned,
}

// Peers are the locks of other people's libraries, in a program that links package
// peers, which sets them; none in any other, as in an instance that is deployed.
var Peers []Strategy

// KnownBroken lists deliberately wrong variants of correct strategies, which tests
// and the explorer must find unsafe. Find knows them by name; no other list has them.
var KnownBroken = []Strategy{
	getsetBlindTakeover,
	getsetNilBusy,
	setnxGetSetSeconds,
	watchdogStrayRenewal,
	watchdogLateSubscribe,
	setnxCancelledCleanup,
	redlockSetOnExtend,
	redlockLongTTL,
	setnxBlindRetry,
	setnxNoTTLNoCleanup,
	setnxLateFence,
	mysqlGetLockPooled,
	mysqlGetLockSplit,
}

// variant is base but for its name, its failure modes, and whatever else own says.
func variant(base, own Strategy) Strategy {
	v := base
	v.Name, v.Title, v.Breaks = own.Name, own.Title, own.Breaks
	v.Source = cmp.Or(own.Source, base.Source)
	v.Guard = cmp.Or(own.Guard, base.Guard)
	v.Fences = own.Fences || base.Fences
	if own.New != nil {
		v.New = own.New
	}
	if own.Expect != nil {
		v.Expect = own.Expect
	}
	if own.Survives != nil {
		v.Survives = own.Survives
	}
	return v
}

// with is expect, but for v under some faults.
func with(expect map[catalog.Fault]catalog.Verdict, v catalog.Verdict, under ...catalog.Fault) map[catalog.Fault]catalog.Verdict {
	expect = maps.Clone(expect)
	for _, f := range under {
		expect[f] = v
	}
	return expect
}

// allBut are the faults of a run but for these.
func allBut(faults ...catalog.Fault) []catalog.Fault {
	return slices.DeleteFunc(slices.Clone(catalog.RunFaults), func(f catalog.Fault) bool { return slices.Contains(faults, f) })
}

// outlivingLease are the faults under which a holder stays inside when its lease in
// one Redis has ended: because it runs out and is not renewed, or because the Redis
// loses it.
var outlivingLease = []catalog.Fault{
	catalog.Slow, catalog.Pause, catalog.Hang, catalog.RedisRestart, catalog.Failover, catalog.Partition, catalog.PartitionDB,
	catalog.NodeClock, catalog.RedisFull, catalog.FailoverSplit, catalog.SlowDB, catalog.LateRelease,
}
