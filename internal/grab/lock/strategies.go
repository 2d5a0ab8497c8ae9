package lock

import (
	"cmp"
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

// variant returns a copy of base with the name, the title and the failure modes of own, and with every
// other field that own sets.
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
