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

// Seeded are deliberately wrong siblings of correct locks. They are found by
// name only and belong to no list.
var Seeded = []Strategy{
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
