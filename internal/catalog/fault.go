package catalog

import (
	_ "embed"
	"slices"
)

// Fault is the name of a fault, such as a crash or a network partition.
type Fault string

// These are the names of all faults.
const (
	NoFault          Fault = "none"
	Slow             Fault = "slow"
	Pause            Fault = "pause"
	Hang             Fault = "hang"
	Crash            Fault = "crash"
	RedisRestart     Fault = "redis-restart"
	RedisRestartMost Fault = "redis-restart-most"
	RedisDown        Fault = "redis-down"
	RedisDownMost    Fault = "redis-down-most"
	Amnesia          Fault = "amnesia"
	Failover         Fault = "failover"
	Partition        Fault = "partition"
	PartitionDB      Fault = "partition-db"
	Latency          Fault = "latency"
	ClientClock      Fault = "client-clock"
	NodeClock        Fault = "node-clock"
	DBRestart        Fault = "db-restart"
	ReplyLost        Fault = "reply-lost"
	RedisFull        Fault = "redis-full"
	FailoverSplit    Fault = "failover-split"
	SlowDB           Fault = "slow-db"
	LateRelease      Fault = "late-release"
	Cancel           Fault = "cancel"
	MessageLost      Fault = "message-lost"
	SentTwice        Fault = "sent-twice"
	MasterKilled     Fault = "master-killed"
	MasterPartition  Fault = "master-partition"
	SentinelFailover Fault = "sentinel-failover"
	SlotMoves        Fault = "slot-moves"
)

// FaultGroup is a heading under which tables group faults.
type FaultGroup string

// RedisTopologies is the group of faults that need a Redis Cluster or Sentinels.
const RedisTopologies FaultGroup = "Redis Cluster and Sentinel"

// FaultGroups lists the groups in the order in which tables show them.
var FaultGroups = []FaultGroup{"Clients and processes", "Redis", "Network and database", RedisTopologies}

// Topology is the Redis setup: a single server, a Cluster, or Sentinels.
type Topology string

// These are the Redis topologies.
const (
	SingleRedis   Topology = "single"
	RedisCluster  Topology = "cluster"  // three masters, each with a replica
	RedisSentinel Topology = "sentinel" // a master with a replica, and three Sentinels
)

// Topologies lists the topologies, with the default first.
var Topologies = []Topology{SingleRedis, RedisCluster, RedisSentinel}

// ProcessEffect is what a fault does to the process that holds the lock, such as killing it.
type ProcessEffect string

// These are the possible effects on the process that holds the lock.
const (
	ProcessRuns    ProcessEffect = ""        // the fault does not affect the process
	ProcessStopped ProcessEffect = "stopped" // the process gets SIGSTOP, and later SIGCONT
	ProcessKilled  ProcessEffect = "killed"  // the process gets SIGKILL
)

// FaultEntry describes a fault. If By contains Run, package fault can inject it into real servers.
// claimTable lists the expected effect of a fault on each kind of lock.
type FaultEntry struct {
	Name    Fault
	Aliases []string   // old names, which commands still accept
	About   string     // what happens, as one line of text
	By      Programs   // the programs that can inject the fault
	Group   FaultGroup // the heading under which tables show the fault
	Shows   Facts      // what this fault implies about a grab that it strikes
	Process ProcessEffect
	// Topologies lists the Redis topologies that support the fault. If nil, all of them do.
	Topologies []Topology
}

//go:embed faults.json
var faultTable string

// Faults lists all faults in the order in which tables show them.
var Faults = Parse[[]FaultEntry](faultTable)

// claimTable says what each fault of `loadgen run` does to each kind of lock. Tests compare the table with the
// reference runs and the explorer.
//
// The first character of an entry is the claim about the order: `.` safe, `U` unsafe (grabbed
// twice), `S` stuck, `?` depends on chance, `/` not applicable. The second character is the claim
// about the lock: `.` at most one holder in the critical section, `x` possibly two holders at once.
//
// A column applies to every strategy that passes its name to [ClaimsOf]. If a strategy deviates from its
// column, its own file lists the exceptions.
//
//go:embed claims.txt
var claimTable string

// FindFault looks up a fault by its name or one of its old names.
func FindFault(name string) (f FaultEntry, ok bool) {
	f = First(Faults, func(f FaultEntry) bool { return string(f.Name) == name || slices.Contains(f.Aliases, name) })
	return f, f.Name != ""
}

// FaultsBy lists the faults that the given program can inject, in the order of Faults.
func FaultsBy(program Programs) []Fault {
	return Map(Filter(Faults, func(f FaultEntry) bool { return f.By&program != 0 }), func(f FaultEntry) Fault { return f.Name })
}

// RunFaults lists the faults that `loadgen run` can inject. The first entry is NoFault.
var RunFaults = FaultsBy(Run)

// OnTopology reports whether this Redis topology supports the fault.
func (f Fault) OnTopology(t Topology) bool {
	on := f.Entry().Topologies
	return on == nil || slices.Contains(on, t)
}

// Entry returns the description of the fault. If the name is unknown, the description is empty.
func (f Fault) Entry() FaultEntry {
	entry, _ := FindFault(string(f))
	return entry
}

// About returns a one-line description of the fault.
func (f Fault) About() string { return f.Entry().About }

// Shows returns the facts that a fault reveals about the cause of a failure.
func (f Fault) Shows() Facts { return f.Entry().Shows }
