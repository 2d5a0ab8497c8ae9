package catalog

import "slices"

// Mode is a failure mode: one way in which a lock lets two drivers win, or none.
type Mode struct {
	ID   string // F1 …
	Name string // a short description
	Cure string
	In   string // a strategy that has the cure

	// Steps is the shortest interleaving that shows it. A, B and C are drivers
	// after one order.
	Steps string
	// ShownBy lists what can show the mode: load, faults by name, the explorer, or a
	// conformance test of the lock.
	ShownBy string
	Source  string // where it is described; empty if it follows from the algorithm
}

// Modes lists every failure mode by which a strategy breaks, including known-broken
// strategies, or that a fault can show.
var Modes = []Mode{
	{"F1", "check, then act: two read that the order is open before either writes",
		"a lock that both processes share, or a write that looks at the status", "mysql-cas",
		"A reads open; B reads open; A writes; B writes", "load", "source articles"},
	{"F2", "the lock is one process's own, and there are two",
		"a lock that both processes share", "setnx",
		"A takes the mutex of instance 1, B that of instance 2; from there as F1", "load", "source articles"},
	{"F3", "a lock without expiry whose release never came",
		"an expiry, set in the same command", "setnx",
		"A sets the key; A dies; the key stays, and every later grab finds the order locked", "crash, redis-down, partition, explorer", "source articles"},
	{"F4", "the expiry is a second command, and never came",
		"SET NX PX: one command", "setnx",
		"A sets the key; A dies before its EXPIRE; the key stays for ever", "crash, explorer", "source articles"},
	{"F5", "a release that does not ask frees another's lock",
		"compare the token and delete in one step", "setnx",
		"A's lease runs out; B locks; A deletes the key, which is B's; C locks while B is inside", "slow, explorer", "redis.io: distributed locks"},
	{"F6", "a release that asks first is late, and frees another's lock",
		"compare and delete in one script, or WATCH before the GET", "setnx-watch",
		"A reads its own token; A pauses until its lease has run out; B locks; A deletes B's key; C locks while B is inside", "explorer (pause)", "source articles"},
	{"F7", "two find that a lock has run out; each deletes it, one of them the other's",
		"take over with GETSET, and only if what it answers had run out, too", "setnx-getset",
		"B and C both read a stamp that has passed; B deletes the key and sets its own; C deletes that and sets its own: both hold", "explorer", "source articles"},
	{"F8", "the lock goes between a GET and a GETSET: its new holder takes it for busy",
		"take a GETSET that answers nil for a lock that was free, and is ours now", "setnx-getset",
		"B reads A's stamp; A releases; B's GETSET sets the key and answers nil, which B takes for busy: the lock is B's, and B does not know", "explorer", ""},
	{"F9", "clocks differ: a living lock looks as if it had run out",
		"let the server's clock decide", "setnx",
		"B's clock is ahead by more than what is left of A's lease, or A's was behind when it stamped the lock: B takes it over while A is inside", "client-clock, explorer", "source articles"},
	{"F10", "a loser of the race overwrites the stamp, and the holder no longer finds its own",
		"a token of one's own beside the stamp", "setnx",
		"A's stamp has passed; B takes over by GETSET; C's GETSET loses, and yet leaves C's stamp; B's release compares with its own and frees nothing", "explorer", "SETNX page of early Redis"},
	{"F11", "the lease runs out under its holder, who writes all the same",
		"a fencing token, raised before the read and compared at the write", "setnx-fenced",
		"A locks and reads open; A pauses for longer than its lease; B locks, reads open and writes; A goes on and writes", "pause, slow, partition, partition-db, explorer", "Kleppmann 2016; Jepsen on etcd 3.4.3"},
	{"F12", "the reply that grants the lock comes when its lease is over",
		"subtract what the acquire took, and a fencing token", "setnx",
		"the server grants A the lock; the reply is under way for longer than the lease; B locks; A's reply says yes", "latency, explorer", "redis.io: distributed locks, step 3"},
	{"F13", "the renewal stalls while the work goes on",
		"stop working when the lease is lost, and a fencing token", "watchdog-fenced",
		"A locks and works; its renewals do not reach the server; its lease runs out; B locks; A goes on (with -on-lost ignore)", "partition, pause", "Redisson issues 5697 and 5698"},
	{"F14", "a renewal outlives what it renews",
		"renew by comparing the token, and only what an acquire has returned", "watchdog",
		"A's acquire is cancelled; its clean-up arrives first and finds nothing; then its SET arrives, and its renewal keeps the lock for ever", "explorer", "Redisson issue 7272"},
	{"F15", "the process lives and renews, the work hangs: no other driver gets in",
		"a bound on the work", "setnx-fenced",
		"A locks; A's work never returns; its process goes on renewing the lease, or the lock has none; B waits for ever", "hang", "Redisson issue 4368; RedLock.net issue 68"},
	{"F16", "a wake-up is missed, and the waiter sleeps on",
		"ask again at intervals", "watchdog",
		"B finds the lock taken; A releases and publishes; B subscribes, and sleeps until the lease would have run out", "explorer", "Redisson issues 1763 and 5761"},
	{"F17", "the server that had the lock has forgotten it: it came back empty, or a replica took over without it",
		"a guard in the database that does not trust the lock", "setnx-fenced",
		"A locks at the master; the master dies before it has replicated that; B locks at the promoted replica while A is inside", "failover, redis-restart, explorer", "redis.io: distributed locks; source articles"},
	{"F18", "a node of the majority has forgotten its vote",
		"restart a node only after the longest lease", "etcd",
		"A has nodes 1, 2 and 3 of five; node 3 restarts empty; B gets 3, 4 and 5", "amnesia, redis-restart-most, explorer", "redis.io: distributed locks; redsync issue 186"},
	{"F19", "the server's clock jumps, and the lease is over early",
		"a fencing token, or monotonic time on the server", "etcd",
		"A locks; the clock of the server, or of one node of A's majority, jumps past the lease; B locks while A is inside", "node-clock, explorer", "Kleppmann 2016"},
	{"F20", "one node counts twice: alone it is the majority",
		"independent nodes, each listed once", "redlock",
		"two of three configured nodes are one server, which thereby is a majority; A has it; it restarts empty; B has it", "redis-restart, explorer", "source articles (their listing)"},
	{"F21", "a bare majority loses one vote, and later another",
		"set a missing key again at every extension", "etcd",
		"A loses the key of one node, extends on the others, and never sets it again; later it loses another: B has a majority", "explorer (two restarts)", "redsync issue 186 and PR 149"},
	{"F22", "the clean-up runs on the context that was cancelled",
		"undo on a context of its own", "setnx",
		"A's acquire is cancelled when the key is set; the release uses the same context and is never sent; the key stays for a whole lease", "explorer, conformance", "open-match PR 1578; authgear PR 5721"},
	{"F23", "two goroutines share one handle, and one frees the other's lock",
		"a handle for each acquisition", "redlock",
		"A and B lock through one shared Mutex; A's lease runs out; B locks; A's unlock sends the shared value, now B's, and frees B's lock", "conformance", "redsync v4"},
	{"F24", "an extension takes the lock anew, and says that it was never lost",
		"let an extension only extend", "redlock",
		"A's lease runs out; B locks, works and unlocks; A's extension sets the key again, and A is told that it held all the time", "explorer", "redsync v4, SetNXOnExtend"},
	{"F25", "the reply was lost, and the lock does not know its own holder again",
		"let the same token take it again", "handoff",
		"A's SET is carried out, and its reply lost; A tries again, meets its own key and reports busy: the lock is without a holder until it runs out", "explorer", ""},
	{"F26", "the token is fetched after the lock: a late holder gets the next one's",
		"draw the token in the step that grants the lock", "setnx-fenced",
		"A locks and pauses; its lease runs out; B locks and draws its token; A draws a higher one, wins, and B is refused", "explorer", ""},
	{"F27", "the counter of fencing tokens falls back",
		"keep the counter for longer than the lock, and refuse equal tokens", "handoff",
		"the database has seen token 7; the counter is lost with its server; B's token is 1, and B is refused until the counter has caught up", "failover, redis-restart", ""},
	{"F28", "two goroutines of one session hold one lock",
		"a session for each acquisition", "etcd",
		"A and B lock through one session, whose id is the owner: both hold, and the first unlock frees both", "conformance", "etcd client/v3/concurrency, by design"},
	{"F29", "the session is over, and its holder goes on",
		"a fencing token: the lock service's revision", "handoff",
		"A's session is revoked or expires; B locks; A goes on and writes under the naive guard", "pause, partition", "Jepsen on etcd 3.4.3; Curator on SUSPENDED and LOST"},
	{"F30", "a node whose creator does not know of it keeps the others waiting",
		"a unique name for the node, and delete it after an error", "zookeeper",
		"A's create is carried out, and its reply lost; A gives up; B waits behind A's node until A's session ends", "partition", ""},
	{"F31", "lock and unlock go over two connections of a pool",
		"one pinned session for lock, read, claim and unlock", "mysql-getlock",
		"A locks over connection 1; B gets connection 1 of the pool and locks again, or A unlocks over connection 2 and the lock stays", "load, conformance", "authentik issue 23876"},
	{"F32", "the server closes the connection that the lock lives on",
		"write over that very connection", "mysql-getlock",
		"the server drops A's connection and with it the lock; B locks and writes; A writes over another connection", "db-restart", "iTop PR 209"},
	{"F33", "the answer to a commit is lost, and the winner is told otherwise",
		"look for one's own row before answering", "mysql-cas",
		"A's write commits, and the answer is lost; A tries again, finds the order taken and says so, although A has it", "db-restart, partition, explorer", ""},
	{"F34", "the token is compared at the write alone: an older one writes first, and the newer one after it",
		"raise the token before the read", "setnx-fenced",
		"A reads open with token 1 and pauses; B reads open with token 2; A writes, as 0 < 1; B writes, as 1 < 2", "pause, explorer", ""},
	{"F35", "a release looks at the age of the lock, not at its owner",
		"compare the owner", "setnx",
		"A's stamp passes; B takes over by GETSET; A's release finds a stamp that has not passed, B's, and deletes it; C locks while B is inside", "slow, explorer", "source articles (their listing)"},
	{"F36", "the token is the driver's: the second attempt has the lock that the first one frees",
		"a token for each attempt", "setnx",
		"the lease of a driver's first attempt runs out; the same driver's second attempt locks with the same token; the first releases it; B locks", "slow, explorer", "source articles"},
	{"F37", "the lock is looked at once more, and runs out before the write",
		"a guard within the write itself", "setnx-fenced",
		"A asks whether the lock is still its own, and it is; A's lease runs out; B locks, reads and writes; A writes", "pause, latency, node-clock, explorer", "source articles (their check of the lock)"},
	{"F38", "the server needs the memory, and evicts the lock",
		"locks in a Redis of their own, under noeviction, and a fencing token", "setnx-fenced",
		"A locks; Redis reaches maxmemory, and evicts A's key; B locks while A is inside (under noeviction the key stays, and what writes is refused)", "redis-full", "redis.io: key eviction"},
	{"F39", "two masters: each grants the lock to those who reach it",
		"a guard in the database that does not trust the lock", "setnx-fenced",
		"A locks at the master, which is then cut off from its replica and the Sentinel, but not from A; the replica is promoted; B locks there while A's lease stands, and is renewed", "failover-split", "redis.io: Sentinel; Jepsen on Redis"},
	{"F40", "the write outlasts the lease",
		"a fencing token, raised before the read and compared at the write", "setnx-fenced",
		"A looks, and its lease stands; A's write waits in the database until the lease has run out; B locks, reads open and writes behind A", "slow-db, partition-db", ""},
	{"F41", "the host sleeps, and the clock by which the lease is counted with it",
		"a fencing token, raised before the read and compared at the write", "watchdog-fenced",
		"A locks; A's host is suspended, or its virtual machine frozen, for longer than the lease; Go's monotonic clock has stood still, so A's timers have time left when it goes on; B has locked meanwhile; A believes in its lease until its next renewal has failed, and writes", "suspending a host: no fault of ours does", "Go issue 24595"},
	{"F42", "a unit is set aside in Redis, and never sold: it is in limbo",
		"decide where it is written, or compare Redis with the ledger and give back", "mysql-cas",
		"A's script takes the last unit; A dies, hangs up or never hears of it; nothing is written, and every other driver is told taken", "crash, hang, cancel, reply-lost, late-release, explorer", ""},
	{"F43", "Redis has forgotten what it has set aside, and counts anew by a database that does not know of it yet",
		"take the unit off in the database only where there is one", "mysql-cas",
		"A's script takes the last unit; Redis restarts; B's script finds none known, and one left by the database; A writes; B writes", "redis-restart, failover, redis-full, failover-split, explorer", ""},
	{"F44", "a unit is given back whose write has not been answered, and arrives",
		"give back what was surely not written, and look for one's own row for as long as it may be under way", "mysql-cas",
		"A's script takes the last unit; A's write has no answer, and A gives the unit back; B's script takes it, and B reads that one is left; A's write is committed; B writes", "conformance", ""},
}

// FindMode looks up a failure mode by its ID, such as F1.
func FindMode(id string) (Mode, bool) {
	i := slices.IndexFunc(Modes, func(m Mode) bool { return m.ID == id })
	if i < 0 {
		return Mode{}, false
	}
	return Modes[i], true
}
