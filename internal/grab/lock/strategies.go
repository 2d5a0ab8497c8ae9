package lock

// Strategies is the registry, in the order in which a teacher tells the story.
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
	etcd,
	handoff,
}

// KnownBroken lists deliberately wrong variants of correct strategies, which tests and
// the explorer must find guilty. Find knows them by name; no other list has them.
var KnownBroken = []Strategy{
	getsetBlindTakeover,
	getsetNilBusy,
	watchdogStrayRenewal,
	watchdogLateSubscribe,
	setnxCancelledCleanup,
	redlockSetOnExtend,
	setnxBlindRetry,
	setnxLateFence,
	mysqlGetLockPooled,
}
