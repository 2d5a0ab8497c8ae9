package catalog

import (
	_ "embed"
	"slices"
)

// Fault is the name of a fault, such as a crash or a network partition.
type Fault string

// The faults.
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

// The groups.
const (
	Clients            FaultGroup = "Clients and processes"
	RedisServers       FaultGroup = "Redis"
	NetworkAndDatabase FaultGroup = "Network and database"
	RedisTopologies    FaultGroup = "Redis Cluster and Sentinel"
)

// FaultGroups lists the groups in the order of tables.
var FaultGroups = []FaultGroup{Clients, RedisServers, NetworkAndDatabase, RedisTopologies}

// Topology says how Redis is set up: as a single server, as a Cluster, or with Sentinels.
type Topology string

// The topologies.
const (
	SingleRedis   Topology = "single"
	RedisCluster  Topology = "cluster"  // three masters with a replica each
	RedisSentinel Topology = "sentinel" // a master with a replica, and three Sentinels
)

// Topologies lists the topologies, the default first.
var Topologies = []Topology{SingleRedis, RedisCluster, RedisSentinel}

// ProcessEffect says what a fault does to the process that holds the lock.
type ProcessEffect int

// The effects.
const (
	ProcessRuns    ProcessEffect = iota // the process is not touched
	ProcessStopped                      // SIGSTOP, and later SIGCONT
	ProcessKilled                       // SIGKILL
)

// FaultEntry describes a fault. Package fault injects it into real servers, and claimTable lists
// its effect on each lock.
type FaultEntry struct {
	Name    Fault
	Aliases []string   // old names, which command lines may still use
	About   string     // what happens, in one line
	By      Programs   // the programs that can inject it
	Group   FaultGroup // the heading in tables
	Shows   Facts      // what is known about a grab that the fault has hit
	Process ProcessEffect
	// Topologies lists the Redis topologies with which the fault is possible. Nil means all.
	Topologies []Topology
}

var (
	singleOnly   = []Topology{SingleRedis}
	withReplicas = []Topology{RedisCluster, RedisSentinel}
)

// Faults lists every fault in the order of tables.
var Faults = []FaultEntry{
	{
		Name: NoFault, Group: Clients, By: Run | Lab,
		About: "plain load without a fault",
	},
	{
		Name: Slow, Aliases: []string{"expiry"}, Group: Clients, By: Run | Explore | Lab, Shows: LeaseEnded,
		About: "the work or the calls of a holder last longer than its lease",
	},
	{
		Name: Pause, Group: Clients, By: Run | Explore | Lab, Shows: LeaseEnded, Process: ProcessStopped,
		About: "a process stops for longer than the lease, then continues (SIGSTOP, SIGCONT)",
	},
	{
		Name: Hang, Group: Clients, By: Run | Explore, Shows: LeaseEnded | Hung,
		About: "the work of some holders never returns",
	},
	{
		Name: Crash, Group: Clients, By: Run | Explore | Lab, Shows: Died, Process: ProcessKilled,
		About: "a process dies while it holds the lock (SIGKILL); `run` starts it again",
	},
	{
		Name: RedisRestart, Aliases: []string{"restart"}, Group: RedisServers, By: Run | Explore | Lab, Shows: Forgotten, Topologies: singleOnly,
		About: "Redis, or a minority of Redlock's nodes, is killed and restarts empty",
	},
	{
		Name: RedisRestartMost, Group: RedisServers, By: Run, Shows: Forgotten,
		About: "a majority of Redlock's nodes is killed and restarts empty",
	},
	{
		Name: RedisDown, Aliases: []string{"down"}, Group: RedisServers, By: Run | Explore, Shows: Unreachable, Topologies: singleOnly,
		About: "Redis, or a minority of Redlock's nodes, cannot be reached at the release; `explore` also takes ZooKeeper and etcd down",
	},
	{
		Name: RedisDownMost, Group: RedisServers, By: Run, Shows: Unreachable,
		About: "a majority of Redlock's nodes cannot be reached at the release",
	},
	{
		Name: Amnesia, Group: RedisServers, By: Run | Explore, Shows: Forgotten,
		About: "the holder has a bare majority of Redlock's nodes, and one of these restarts empty",
	},
	{
		Name: Failover, Group: RedisServers, By: Run | Explore, Shows: Forgotten, Topologies: singleOnly,
		About: "the master of Redis, or of one Redlock node, dies before it has replicated, and Sentinel promotes the replica",
	},
	{
		Name: Partition, Group: NetworkAndDatabase, By: Run | Explore, Shows: LeaseEnded | CutOff, Topologies: singleOnly,
		About: "the network cuts one instance off from the locks for longer than the lease: in both directions, only requests, then only replies",
	},
	{
		Name: PartitionDB, Group: NetworkAndDatabase, By: Run | Explore, Shows: LeaseEnded | CutOff,
		About: "the network cuts one instance off from the database, and its claims arrive after their leases have expired",
	},
	{
		Name: Latency, Aliases: []string{"late-reply"}, Group: NetworkAndDatabase, By: Run | Explore, Shows: GrantLate | Delayed, Topologies: singleOnly,
		About: "replies of Redis reach one instance later than the lease lasts; `explore` delays any call or reply",
	},
	{
		Name: ClientClock, Group: Clients, By: Run | Explore, Shows: ClocksApart | TakenOver,
		About: "the wall clock of a contender runs ahead, then the wall clock of the holder runs behind",
	},
	{
		Name: NodeClock, Group: RedisServers, By: Run | Explore, Shows: ClockJumped, Topologies: singleOnly,
		About: "the clock of Redis, or of a minority of Redlock's nodes, jumps past the end of the leases",
	},
	{
		Name: DBRestart, Group: NetworkAndDatabase, By: Run | Explore, Shows: SessionClosed,
		About: "the database is killed and started again while drivers hold locks",
	},
	{
		Name: ReplyLost, Aliases: []string{"lost-reply"}, Group: NetworkAndDatabase, By: Run | Explore, Shows: ReplyWasLost, Topologies: singleOnly,
		About: "a server carries out a call, and the caller gets an error; `run` does this first to a COMMIT, then to every call to the lock's servers",
	},
	{
		Name: RedisFull, Group: RedisServers, By: Run | Explore, Shows: Evicted, Topologies: singleOnly,
		About: "Redis, or a minority of Redlock's nodes, runs out of memory: first it evicts every key, then it refuses writes",
	},
	{
		Name: FailoverSplit, Group: RedisServers, By: Run, Shows: TwoMasters, Topologies: singleOnly,
		About: "the master of Redis, or of one node of the holder's bare majority, is cut off; it continues to serve one instance while the promoted replica serves the other",
	},
	{
		Name: SlowDB, Group: NetworkAndDatabase, By: Run | Explore, Shows: LeaseEnded | WriteLate,
		About: "the database takes longer for a claim than the lease lasts",
	},
	{
		Name: LateRelease, Group: Clients, By: Run, Shows: LeaseEnded | ReleasedLate,
		About: "a holder releases after its lease has expired and while another driver has the lock; then a third driver comes",
	},
	{
		Name: Cancel, Group: Clients, By: Run | Explore, Shows: Cancelled,
		About: "a client hangs up, and its grab is cancelled",
	},
	{
		Name: MessageLost, Group: NetworkAndDatabase, By: Explore, Shows: WakeUpLost,
		About: "a message that a server publishes gets lost, arrives late, or arrives twice",
	},
	{
		Name: SentTwice, Group: NetworkAndDatabase, By: Explore, Shows: ReplyWasLost,
		About: "a Redis client gets no reply and sends the same call again by itself, as most clients do by default; the server carries out both",
	},
	// The explorer cannot inject the following faults, because it simulates only a single Redis
	// server.
	{
		Name: MasterKilled, Group: RedisTopologies, By: Run, Shows: Forgotten, Topologies: withReplicas,
		About: "the master of the locks dies before it has replicated them, and the Cluster or the Sentinels promote its replica",
	},
	{
		Name: MasterPartition, Group: RedisTopologies, By: Run, Shows: TwoMasters, Topologies: withReplicas,
		About: "nothing reaches the master of the locks until its replica, which lacks the last writes, has been promoted; then the old master returns",
	},
	{
		Name: SentinelFailover, Group: RedisTopologies, By: Run, Shows: Forgotten, Topologies: []Topology{RedisSentinel},
		About: "an operator calls SENTINEL FAILOVER while the replica has all writes and the master is alive",
	},
	{
		Name: SlotMoves, Group: RedisTopologies, By: Run, Shows: Forgotten, Topologies: []Topology{RedisCluster},
		About: "the slots of the locks move to another master of the Cluster, with their keys",
	},
}

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

// Shows returns the facts about a grab that follow from the fault that hit it.
func (f Fault) Shows() Facts { return f.Entry().Shows }
