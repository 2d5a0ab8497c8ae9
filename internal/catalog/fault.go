package catalog

import "slices"

// Fault is the name of something that goes wrong.
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
)

// FaultEntry is a line of [Faults].
type FaultEntry struct {
	Name    Fault
	Aliases []string // old names, which command lines may still use
	About   string   // what happens, in one line
	By      Programs // that can play it
}

// Faults is every fault that some program can play, in the order of a table.
// [NoFault] is one for run, whose cells have a fault each.
var Faults = []FaultEntry{
	{NoFault, nil, "plain load", Run},
	{Slow, []string{"expiry"}, "the work, or the calls, of a holder last longer than its lease", Run | Explore},
	{Pause, nil, "a process stops for longer than the lease, and goes on (SIGSTOP, SIGCONT)", Run | Explore},
	{Hang, nil, "the work of some holders never returns", Run | Explore},
	{Crash, nil, "a process ends while it holds (SIGKILL); run starts it again", Run | Explore},
	{RedisRestart, []string{"restart"}, "Redis, of Redlock a minority, killed and started again empty", Run | Explore},
	{RedisRestartMost, nil, "a majority of Redlock's nodes killed and started again empty", Run},
	{RedisDown, []string{"down"}, "Redis, of Redlock a minority, cannot be reached at the release; explore has ZooKeeper and etcd be down as well", Run | Explore},
	{RedisDownMost, nil, "a majority of Redlock's nodes cannot be reached at the release", Run},
	{Amnesia, nil, "the holder has a bare majority of Redlock's nodes, and one of them restarts empty", Run | Explore},
	{Failover, nil, "the master of Redis, or of one Redlock node, dies before it has replicated, and Sentinel promotes the replica", Run | Explore},
	{Partition, nil, "one instance cut off from the locks for longer than the lease: both ways, requests alone, replies alone", Run | Explore},
	{PartitionDB, nil, "one instance cut off from the database: its claims arrive after their leases", Run | Explore},
	{Latency, []string{"late-reply"}, "replies of Redis to one instance come later than the lease; explore delays any call or reply", Run | Explore},
	{ClientClock, nil, "the wall clock of a contender ahead, then that of the holder behind", Run | Explore},
	{NodeClock, nil, "the clock of Redis, of Redlock a minority, jumps past the leases", Run | Explore},
	{DBRestart, nil, "the database killed and started again under its holders", Run | Explore},
	{ReplyLost, []string{"lost-reply"}, "a call is carried out, and its caller gets an error; run has it be a COMMIT, then every call to the locks' servers", Run | Explore},
	{RedisFull, nil, "Redis, of Redlock a minority, out of memory: it evicts every key, then it refuses writes", Run | Explore},
	{FailoverSplit, nil, "the master of Redis, or of one node of the holder's bare majority of Redlock's, cut off: it goes on serving one instance while the replica that Sentinel promoted serves the other", Run},
	{SlowDB, nil, "the database takes longer for a claim than the lease lives", Run | Explore},
	{LateRelease, nil, "a holder releases after its lease has run out, while another has the lock: a third driver comes", Run},
	{Cancel, nil, "a client hangs up: its grab is cancelled", Run | Explore},
	{MessageLost, nil, "a message that a server publishes does not reach its subscribers, or late, or twice", Explore},
}

// FindFault looks a fault up by its name or an old one. note says in one line
// what an old name is called now; "" where name is the present one.
func FindFault(name string) (f FaultEntry, note string, ok bool) {
	return find(Faults, name, func(f FaultEntry) (string, []string) { return string(f.Name), f.Aliases })
}

// FaultsBy lists those that a program can play, in the table's order, [NoFault] first.
func FaultsBy(program Programs) []Fault {
	var names []Fault
	for _, f := range Faults {
		if f.By&program != 0 {
			names = append(names, f.Name)
		}
	}
	return slices.Clip(names)
}

// RunFaults are those that loadgen run can play, in the table's order.
var RunFaults = FaultsBy(Run)

// About says in one line what the fault is; "" for a name that is not in [Faults].
func (f Fault) About() string {
	entry, _, _ := FindFault(string(f))
	return entry.About
}
