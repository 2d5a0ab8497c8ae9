package lock

import (
	"cmp"
)

// Strategies is the registry, in teaching order. It starts with five basic strategies,
// followed by the mistakes around setnx and by fencing. Then come the locks of databases and
// consensus systems, the recommended handoff, and the two strategies that reserve units in
// Redis.
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
	mysqlUnique,
	zooKeeper,
	zooKeeperFenced,
	etcd,
	etcdFenced,
	handoffStrategy,
	redisStock,
	redisStockReturned,
}

// Peers lists the locks of third-party libraries. Package peers fills it, so it is empty in a
// program that does not link that package, such as a deployed instance.
var Peers []Strategy

// KnownBroken lists deliberately wrong variants of correct strategies. Tests and the
// explorer must find them unsafe. Find returns them by name, and no other list contains
// them.
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

// variant returns a copy of base with a name, a title and failure modes of its own. The other
// fields that own sets replace those of base.
func variant(base, own Strategy) Strategy {
	v := base
	v.Name, v.Title, v.Breaks = own.Name, own.Title, own.Breaks
	v.Source = cmp.Or(own.Source, base.Source)
	v.Guard = cmp.Or(own.Guard, base.Guard)
	v.Fences = own.Fences || base.Fences
	if own.New != nil {
		v.New = own.New
	}
	if own.Claims != nil {
		v.Claims = own.Claims
	}
	if own.InSearch != nil {
		v.InSearch = own.InSearch
	}
	return v
}
