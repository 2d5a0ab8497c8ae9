package catalog

import "slices"

// Mode is a failure mode: one way in which a lock lets two drivers win, or none.
type Mode struct {
	ID   string // F1 …
	Name string // a short description
	Cure string
	In   string // a strategy that has the cure

	// Steps is the shortest interleaving that shows the mode. A, B and C are drivers that want
	// the same order.
	Steps string
	// ShownBy lists what can show the mode: load, faults by name, the explorer, or a
	// conformance test of the lock.
	ShownBy string
	Source  string // where it is described; empty if it follows from the algorithm
}

// Modes lists every failure mode that a strategy has, including the known-broken strategies, or
// that a fault can show.
var Modes = []Mode{
	{"F1", "check-then-act: two drivers read that the order is open before either writes",
		"a lock that all processes share, or a write that checks the status", "mysql-cas",
		"A reads open; B reads open; A writes; B writes", "load", "source articles"},
	{"F2", "the lock exists only within one process, and there are two processes",
		"a lock that all processes share", "setnx",
		"A takes the mutex of instance 1, and B that of instance 2; then as in F1", "load", "source articles"},
	{"F3", "the lock never expires, and its release is never carried out",
		"an expiry that is set by the same command", "setnx",
		"A sets the key; A dies; the key stays, and every later grab finds the order locked", "crash, redis-down, partition, explorer", "source articles"},
	{"F4", "a second command sets the expiry, and it is never carried out",
		"one command: SET NX PX", "setnx",
		"A sets the key; A dies before its EXPIRE; the key stays forever", "crash, explorer", "source articles"},
	{"F5", "a release does not check the owner, and deletes another driver's lock",
		"compare the token and delete the key in one step", "setnx",
		"A's lease expires; B locks; A deletes the key, which is B's; C locks while B is inside", "slow, explorer", "redis.io: distributed locks"},
	{"F6", "a release checks the owner first, but then deletes another driver's lock",
		"compare and delete in one script, or call WATCH before GET", "setnx-watch",
		"A reads its own token; A pauses until its lease has expired; B locks; A deletes B's key; C locks while B is inside", "explorer (pause)", "source articles"},
	{"F7", "two drivers see that a lock has expired, and one deletes the other's new lock",
		"take over with GETSET, and only if its reply has expired too", "setnx-getset",
		"B and C both read an expired stamp; B deletes the key and sets its own; C deletes that key and sets its own: both hold the lock", "explorer", "source articles"},
	{"F8", "the lock is released between GET and GETSET, and its new holder believes that it is busy",
		"treat a nil reply of GETSET as success, because the lock was free", "setnx-getset",
		"B reads A's stamp; A releases; B's GETSET sets the key and replies nil, which B treats as busy: B has the lock and does not know it", "explorer", ""},
	{"F9", "clocks differ, so a valid lock looks expired",
		"use only the clock of the server", "setnx",
		"B's clock is ahead by more than the rest of A's lease, or A's clock was behind when it stamped the lock; B takes over while A is inside", "client-clock, explorer", "source articles"},
	{"F10", "a loser of the race overwrites the stamp, so the holder no longer recognises its lock",
		"a token for each acquisition, beside the stamp", "setnx",
		"A's stamp has expired; B takes over with GETSET; C's GETSET loses but leaves C's stamp; B's release compares the stamp with its own and deletes nothing", "explorer", "SETNX page of early Redis"},
	{"F11", "the lease expires, and its holder writes anyway",
		"a fencing token that is raised before the read and compared at the write", "setnx-fenced",
		"A locks and reads open; A pauses for longer than its lease; B locks, reads open and writes; A continues and writes", "pause, slow, partition, partition-db, explorer", "Kleppmann 2016; Jepsen on etcd 3.4.3"},
	{"F12", "the reply that grants the lock arrives after its lease has expired",
		"subtract the duration of the acquire from the lease, and use a fencing token", "setnx",
		"the server grants A the lock; the reply takes longer than the lease; B locks; A's reply arrives, and A believes that it has the lock", "latency, explorer", "redis.io: distributed locks, step 3"},
	{"F13", "the renewal stalls while the work continues",
		"stop the work when the lease is lost, and use a fencing token", "watchdog-fenced",
		"A locks and works; its renewals do not reach the server; its lease expires; B locks; A continues (with -on-lost ignore)", "partition, pause", "Redisson issues 5697 and 5698"},
	{"F14", "a renewal continues after its lock is gone",
		"compare the token at each renewal, and renew only what an acquire has returned", "watchdog",
		"A's acquire is cancelled; its clean-up arrives first and finds nothing; then its SET arrives, and its renewal keeps the lock forever", "explorer", "Redisson issue 7272"},
	{"F15", "the work hangs while its process renews the lease, so no other driver gets the lock",
		"a time limit for the work", "setnx-fenced",
		"A locks; A's work never returns; its process continues to renew the lease, or the lock has no lease; B waits forever", "hang", "Redisson issue 4368; RedLock.net issue 68"},
	{"F16", "a waiter misses its wake-up and continues to sleep",
		"ask again at intervals", "watchdog",
		"B finds the lock taken; A releases and publishes; B subscribes, and sleeps until the lease would have expired", "explorer", "Redisson issues 1763 and 5761"},
	{"F17", "the server has lost the lock: it restarted empty, or a replica without the lock took over",
		"a guard in the database that does not rely on the lock", "setnx-fenced",
		"A locks at the master; the master dies before it replicates the lock; B locks at the promoted replica while A is inside", "failover, master-killed, redis-restart, explorer", "redis.io: distributed locks; source articles"},
	{"F18", "a node of the majority has lost its vote",
		"keep a node down for longer than the longest lease before it restarts", "etcd",
		"A has nodes 1, 2 and 3 of five; node 3 restarts empty; B gets 3, 4 and 5", "amnesia, redis-restart-most, explorer", "redis.io: distributed locks; redsync issue 186"},
	{"F19", "the server's clock jumps, and the lease ends early",
		"a fencing token, or monotonic time on the server", "etcd",
		"A locks; the clock of the server, or of one node of A's majority, jumps past the lease; B locks while A is inside", "node-clock, explorer", "Kleppmann 2016"},
	{"F20", "one node is listed twice, so it is a majority by itself",
		"independent nodes, each listed once", "redlock",
		"two of three configured nodes are one server, so this server is a majority; A has the lock there; the server restarts empty; B gets the lock", "redis-restart, explorer", "source articles (their listing)"},
	{"F21", "a bare majority loses one vote, and later another one",
		"set a missing key again at every extension", "etcd",
		"A loses the key of one node, extends the lease on the others, and never sets the key again; later it loses another key: B has a majority", "explorer (two restarts)", "redsync issue 186 and PR 149"},
	{"F22", "the clean-up uses the context that was cancelled",
		"a separate context for the clean-up", "setnx",
		"A's acquire is cancelled after the key was set; the release uses the same context and is never sent; the key stays for a whole lease", "explorer, conformance", "open-match PR 1578; authgear PR 5721"},
	{"F23", "two goroutines share a handle, and one releases the other's lock",
		"a handle for each acquisition", "redlock",
		"A and B lock through one shared Mutex; A's lease expires; B locks; A's unlock sends the shared value, which is now B's, and releases B's lock", "conformance", "redsync v4"},
	{"F24", "an extension takes the lock again, and reports no loss",
		"an extension that only extends", "redlock",
		"A's lease expires; B locks, works and unlocks; A's extension sets the key again, and A believes that it held the lock all the time", "explorer", "redsync v4, SetNXOnExtend"},
	{"F25", "the reply is lost, and the lock does not recognise its own holder",
		"let the same token take the lock again", "handoff",
		"A's SET is carried out, and its reply is lost; A tries again, finds its own key and reports busy: the lock has no holder until it expires", "explorer", ""},
	{"F26", "the fencing token is fetched after the lock, so a late holder gets a newer token than its successor",
		"issue the token in the step that grants the lock", "setnx-fenced",
		"A locks and pauses; its lease expires; B locks and fetches its token; A fetches a higher one and wins, and B is refused", "explorer", ""},
	{"F27", "the counter of fencing tokens goes back",
		"keep the counter for longer than the lock, and refuse equal tokens", "handoff",
		"the database has seen token 7; the server loses the counter; B's token is 1, and B is refused until the counter has caught up", "failover, redis-restart", ""},
	{"F28", "two goroutines of one session hold one lock",
		"a session for each acquisition", "etcd",
		"A and B lock through one session, whose id is the owner: both hold the lock, and the first unlock releases it for both", "conformance", "etcd client/v3/concurrency, by design"},
	{"F29", "the session has ended, and its holder continues",
		"a fencing token: the lock service's revision", "handoff",
		"A's session is revoked or expires; B locks; A continues and writes under the naive guard", "pause, partition", "Jepsen on etcd 3.4.3; Curator on SUSPENDED and LOST"},
	{"F30", "a node whose creator does not know of it makes the others wait",
		"a unique name for the node, which is deleted after an error", "zookeeper",
		"A's create is carried out, and its reply is lost; A gives up; B waits behind A's node until A's session ends", "partition", ""},
	{"F31", "lock and unlock use different connections of a pool",
		"one pinned session for lock, read, claim and unlock", "mysql-getlock",
		"A locks over connection 1; B gets connection 1 from the pool and locks again, or A unlocks over connection 2 and the lock stays", "load, conformance", "authentik issue 23876"},
	{"F32", "the server closes the connection that holds the lock",
		"write over that same connection", "mysql-getlock",
		"the server closes A's connection and so releases the lock; B locks and writes; A writes over another connection", "db-restart", "iTop PR 209"},
	{"F33", "the reply to a commit is lost, and the winner is told that it lost",
		"look for the driver's own row before answering", "mysql-cas",
		"A's write commits, and the reply is lost; A tries again, finds the order taken and answers that, although A has it", "db-restart, partition, explorer", ""},
	{"F34", "the token is compared only at the write: an older token writes first, then a newer one",
		"raise the token before the read", "setnx-fenced",
		"A reads open with token 1 and pauses; B reads open with token 2; A writes, as 0 < 1; B writes, as 1 < 2", "pause, explorer", ""},
	{"F35", "a release checks the age of the lock and not its owner",
		"compare the owner", "setnx",
		"A's stamp expires; B takes over with GETSET; A's release finds B's stamp, which has not expired, and deletes the key; C locks while B is inside", "slow, explorer", "source articles (their listing)"},
	{"F36", "the token belongs to the driver, so a first attempt releases the lock of the second one",
		"a token for each attempt", "setnx",
		"the lease of a driver's first attempt expires; the same driver's second attempt locks with the same token; the first attempt releases it; B locks", "slow, explorer", "source articles"},
	{"F37", "the lock is checked once more, and expires before the write",
		"a guard within the write itself", "setnx-fenced",
		"A checks that it still has the lock; A's lease expires; B locks, reads and writes; A writes", "pause, latency, node-clock, explorer", "source articles (their check of the lock)"},
	{"F38", "the server needs memory and evicts the lock",
		"a separate Redis for locks with the policy noeviction, and a fencing token", "setnx-fenced",
		"A locks; Redis reaches maxmemory and evicts A's key; B locks while A is inside (with noeviction the key stays, and writes are refused)", "redis-full", "redis.io: key eviction"},
	{"F39", "there are two masters, and each grants the lock to the clients that reach it",
		"a guard in the database that does not rely on the lock", "setnx-fenced",
		"A locks at the master. The master is cut off from its replica and the Sentinel, but not from A. The replica is promoted. B locks there while A's lease is valid and is renewed", "failover-split, master-partition", "redis.io: Sentinel; Jepsen on Redis"},
	{"F40", "the write takes longer than the lease",
		"a fencing token that is raised before the read and compared at the write", "setnx-fenced",
		"A checks that its lease is valid; A's write waits in the database until the lease has expired; B locks, reads open and writes after A", "slow-db, partition-db", ""},
	{"F41", "the host sleeps, and the clock that measures the lease stops",
		"a fencing token that is raised before the read and compared at the write", "watchdog-fenced",
		"A locks. A's host or its virtual machine is suspended for longer than the lease. B locks. Go's monotonic clock stood still, so A's timers still have time left when A continues. A trusts its lease until its next renewal fails, and writes", "a suspended host; no fault does this", "Go issue 24595"},
	{"F42", "a unit is reserved in Redis and never sold",
		"decide in the database, or compare Redis with the ledger and give units back", "mysql-cas",
		"A's script takes the last unit; A dies, hangs up or never gets the reply; nothing is written, and every other driver is told that the order is taken", "crash, hang, cancel, reply-lost, late-release, explorer", ""},
	{"F43", "Redis has lost its reservations, and counts again from a database that does not have them yet",
		"decrement the stock in the database only if a unit is left", "mysql-cas",
		"A's script takes the last unit; Redis restarts; B's script finds no counter, and one unit left in the database; A writes; B writes", "redis-restart, failover, master-killed, redis-full, failover-split, master-partition, explorer", ""},
	{"F44", "a unit is given back because its write was not answered, and the write arrives later",
		"give back only what was certainly not written, and look for the row for as long as the write may arrive", "mysql-cas",
		"A's script takes the last unit. A's write gets no answer, and A gives the unit back. B's script takes it, and B reads that one is left. A's write is committed. B writes", "conformance", ""},
}

// FindMode looks up a failure mode by its ID, such as F1.
func FindMode(id string) (Mode, bool) {
	i := slices.IndexFunc(Modes, func(m Mode) bool { return m.ID == id })
	if i < 0 {
		return Mode{}, false
	}
	return Modes[i], true
}
