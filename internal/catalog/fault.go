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

// FaultGroup is the heading under which tables show a fault.
type FaultGroup string

// RedisTopologies is the group of the faults that need a Cluster or Sentinels.
const RedisTopologies FaultGroup = "Redis Cluster and Sentinel"

// FaultGroups lists the groups in the order of tables.
var FaultGroups = []FaultGroup{"Clients and processes", "Redis", "Network and database", RedisTopologies}

// Topology says how Redis is set up: as a single server, as a Cluster, or with Sentinels.
type Topology string

// Redis can run in these topologies.
const (
	SingleRedis   Topology = "single"
	RedisCluster  Topology = "cluster"  // three masters with a replica each
	RedisSentinel Topology = "sentinel" // a master with a replica, and three Sentinels
)

// Topologies lists the topologies, the default first.
var Topologies = []Topology{SingleRedis, RedisCluster, RedisSentinel}

// ProcessEffect says what a fault does to the process that holds the lock.
type ProcessEffect string

// These are the effects that a fault can have on the affected process.
const (
	ProcessRuns    ProcessEffect = ""        // the process is not touched
	ProcessStopped ProcessEffect = "stopped" // SIGSTOP, and later SIGCONT
	ProcessKilled  ProcessEffect = "killed"  // SIGKILL
)

// FaultEntry describes a fault. Package fault injects it into real servers, and claimTable lists
// its effect on each lock.
type FaultEntry struct {
	Name    Fault
	Aliases []string   // old names, which command lines may still use
	About   string     // what happens, in one line
	By      Programs   // the programs that can inject the fault
	Group   FaultGroup // the heading in tables
	Shows   Facts      // the facts about a grab that follow from the fault
	Process ProcessEffect
	// Topologies lists the Redis topologies with which the fault is possible. Nil means all.
	Topologies []Topology
}

//go:embed faults.json
var faultTable string

// Faults lists every fault, in the order in which tables show them.
var Faults = parse[[]FaultEntry](faultTable)

// claimTable says what each fault of a run does to each kind of lock. Tests compare it with the
// reference runs and with the explorer.
//
// The first character of a cell is the claim about the order: `.` safe, `U` unsafe (grabbed
// twice), `S` stuck, `?` chance decides, `/` not applicable. The second is the claim about the
// lock: `.` at most one holder is inside, `x` two holders can be inside at once.
//
// A column serves every strategy that passes its name to [ClaimsOf]. A strategy that differs
// from its column lists the exceptions in its own file.
//
//go:embed claims.txt
var claimTable string

// FindFault finds a fault by its name. If the name is out of date, note says what the new one is.
func FindFault(name string) (f FaultEntry, note string, ok bool) {
	return find(Faults, name, func(f FaultEntry) (string, []string) { return string(f.Name), f.Aliases })
}

// FaultsBy lists the faults that a program can inject.
func FaultsBy(program Programs) []Fault {
	var names []Fault
	for _, f := range Faults {
		if f.By&program != 0 {
			names = append(names, f.Name)
		}
	}
	return slices.Clip(names)
}

// RunFaults lists the faults that the command loadgen run can inject. The first is NoFault.
var RunFaults = FaultsBy(Run)

// OnTopology reports whether the fault is possible with this Redis topology.
func (f Fault) OnTopology(t Topology) bool {
	on := f.Entry().Topologies
	return on == nil || slices.Contains(on, t)
}

// Entry returns the description of the fault. For an unknown name, the description is empty.
func (f Fault) Entry() FaultEntry {
	entry, _, _ := FindFault(string(f))
	return entry
}

// About describes the fault in one line.
func (f Fault) About() string { return f.Entry().About }

// Shows returns the facts that are known about a grab after the fault has hit the grab.
func (f Fault) Shows() Facts { return f.Entry().Shows }
