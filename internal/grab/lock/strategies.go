package lock

import "cmp"

// Strategies lists all strategies in teaching order: basic locks, mistakes with SETNX, fencing,
// databases, consensus systems, handoff, and Redis reservations. It does not include Peers and
// KnownBroken.
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

// Peers lists the locks of third-party libraries. It is empty unless the program imports package
// peers.
var Peers []Strategy

// KnownBroken lists locks with deliberate mistakes, which the tests and the explorer must find.
// Names does not return these locks.
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

// variant returns a copy of base with the name, title and failure modes of own. If own sets another of
// the fields below, it replaces that field of base. All other fields keep the values of base.
func variant(base, own Strategy) Strategy {
	v := base
	v.Name, v.Title, v.Breaks = own.Name, own.Title, own.Breaks
	v.Source = cmp.Or(own.Source, base.Source)
	v.Guard = cmp.Or(own.Guard, base.Guard)
	v.Fences, v.UntilClaim = own.Fences || base.Fences, own.UntilClaim || base.UntilClaim
	if own.New != nil {
		v.New = own.New
	}
	if own.Claims != nil {
		v.Claims = own.Claims
	}
	if own.Promises != (Promises{}) {
		v.Promises = own.Promises
	}
	if own.InSearch != nil {
		v.InSearch = own.InSearch
	}
	return v
}
