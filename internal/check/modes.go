package check

import (
	"slices"

	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// Mode is a failure mode: one way in which a lock lets two drivers win, or
// nobody.
type Mode struct {
	ID   string // F1 …
	Name string // in one line
	Cure string
	In   string // a strategy that has the cure
}

// Modes is every failure mode that a strategy breaks by, seeded ones among them,
// or a fault shows.
var Modes = []Mode{
	{"F1", "check, then act: two read that the order is open before either writes", "a lock that both processes share, or a write that looks at the status", "mysql-cas"},
	{"F2", "the lock is one process's own, and there are two", "a lock that both processes share", "setnx"},
	{"F3", "a lock without expiry whose release never came", "an expiry, set in the same command", "setnx"},
	{"F4", "the expiry is a second command, and never came", "SET NX PX: one command", "setnx"},
	{"F5", "a release that does not ask frees another's lock", "compare the token and delete in one step", "setnx"},
	{"F6", "a release that asks first is late, and frees another's lock", "compare and delete in one script, or WATCH before the GET", "setnx-watch"},
	{"F7", "two find that a lock has run out; each deletes it, one of them the other's", "take over with GETSET, and only if what it answers had run out, too", "setnx-getset"},
	{"F8", "the lock goes between a GET and a GETSET: whoever has it takes it for busy", "take a GETSET that answers nil for a lock that was free, and is ours now", "setnx-getset"},
	{"F9", "clocks differ: a living lock looks as if it had run out", "let the server's clock decide", "setnx"},
	{"F10", "a loser of the race overwrites the stamp, and the holder no longer finds his own", "a token of one's own beside the stamp", "setnx"},
	{"F11", "the lease runs out under its holder, who writes all the same", "a fencing token, raised before the read and compared at the write", "setnx-fenced"},
	{"F12", "the reply that grants the lock comes when its lease is over", "subtract what the acquire took, and a fencing token", "setnx"},
	{"F13", "the renewal stalls while the work goes on", "stop working when the lease is lost, and a fencing token", "watchdog-fenced"},
	{"F14", "a renewal outlives what it renews", "renew by comparing the token, and only what an acquire has returned", "watchdog"},
	{"F15", "the process lives and renews, the work hangs: nobody else gets in", "a bound on the work", "setnx-fenced"},
	{"F16", "a wake-up is missed, and the waiter sleeps on", "ask again at intervals", "watchdog"},
	{"F17", "the server that had the lock has forgotten it: it came back empty, or a replica took over without it", "a guard in the database that does not trust the lock", "setnx-fenced"},
	{"F18", "a node of the majority has forgotten its vote", "restart a node only after the longest lease", "etcd"},
	{"F19", "the server's clock jumps, and the lease is over early", "a fencing token, or monotonic time on the server", "etcd"},
	{"F20", "one node counts twice: alone it is the majority", "independent nodes, each listed once", "redlock"},
	{"F21", "a bare majority loses one vote, and later another", "set a missing key again at every extension", "etcd"},
	{"F22", "the clean-up runs on the context that was cancelled", "undo on a context of its own", "setnx"},
	{"F23", "two goroutines share one handle, and one frees the other's lock", "a handle for each acquisition", "redlock"},
	{"F24", "an extension takes the lock anew, and says that it was never lost", "let an extension only extend", "redlock"},
	{"F25", "the reply was lost, and the lock does not know its own holder again", "let the same token take it again", "handoff"},
	{"F26", "the token is fetched after the lock: a late holder gets the next one's", "draw the token in the step that grants the lock", "setnx-fenced"},
	{"F27", "the counter of fencing tokens falls back", "keep the counter for longer than the lock, and refuse equal tokens", "handoff"},
	{"F28", "two goroutines of one session hold one lock", "a session for each acquisition", "etcd"},
	{"F29", "the session is over, and its holder goes on", "a fencing token: the lock service's revision", "handoff"},
	{"F30", "a node that nobody knows of keeps the others waiting", "a unique name for the node, and delete it after an error", "zookeeper"},
	{"F31", "lock and unlock go over two connections of a pool", "one pinned session for lock, read, claim and unlock", "mysql-getlock"},
	{"F32", "the server closes the connection that the lock lives on", "write over that very connection", "mysql-getlock"},
	{"F33", "the answer to a commit is lost, and the winner is told otherwise", "look for one's own row before answering", "mysql-cas"},
	{"F34", "the token is compared at the write alone: an older one writes first, and the newer one after it", "raise the token before the read", "setnx-fenced"},
	{"F35", "a release looks at the age of the lock, not at its owner", "compare the owner", "setnx"},
	{"F36", "the token is the driver's: his second attempt has the lock that his first one frees", "a token for each attempt", "setnx"},
	{"F37", "the lock is looked at once more, and runs out before the write", "a guard within the write itself", "setnx-fenced"},
}

// lead goes from what happened under a fault to how: to the first of the modes
// that is a lesson of the strategy, else to the last resort, "" if none is known.
type lead struct {
	faults  []lock.Fault
	verdict lock.Verdict
	lessons []string
	resort  string
}

// leads are looked through for the first that fits fault and verdict. No faults: any.
var leads = []lead{
	{[]lock.Fault{lock.Pause, lock.Slow, lock.Hang}, lock.Unsafe, []string{"F1", "F2", "F34", "F37", "F29", "F13"}, "F11"},
	{[]lock.Fault{lock.Partition, lock.PartitionDB}, lock.Unsafe, []string{"F1", "F2", "F34", "F37", "F29", "F13"}, "F11"},
	{[]lock.Fault{lock.RedisRestart, lock.RedisRestartMost, lock.Failover}, lock.Unsafe, []string{"F1", "F2", "F20", "F18"}, "F17"},
	{[]lock.Fault{lock.Amnesia}, lock.Unsafe, []string{"F1", "F2"}, "F18"},
	{[]lock.Fault{lock.Latency}, lock.Unsafe, []string{"F1", "F2"}, "F12"},
	{[]lock.Fault{lock.ClientClock}, lock.Unsafe, []string{"F1", "F2", "F9"}, ""},
	{[]lock.Fault{lock.NodeClock}, lock.Unsafe, []string{"F1", "F2", "F34", "F37"}, "F19"},
	{[]lock.Fault{lock.DBRestart}, lock.Unsafe, []string{"F1", "F2", "F32", "F33"}, ""},
	{nil, lock.Unsafe, []string{"F1", "F2"}, ""},
	{[]lock.Fault{lock.Hang}, lock.Stuck, nil, "F15"},
	{nil, lock.Stuck, []string{"F3", "F4"}, ""},
}

// strayRelease is what frees the lock of somebody else.
var strayRelease = lead{lessons: []string{"F5", "F6", "F35", "F36"}}

// ModeOf is the failure mode that explains the verdict of strategy s, written
// with guard g, under fault f; false where none is known to.
func ModeOf(s lock.Strategy, g order.Guard, f lock.Fault, v lock.Verdict) (Mode, bool) {
	id := ""
	for _, l := range leads {
		if l.verdict == v && (l.faults == nil || slices.Contains(l.faults, f)) {
			id = l.follow(s, g)
			break
		}
	}
	return modeByID(id)
}

func modeByID(id string) (Mode, bool) {
	i := slices.IndexFunc(Modes, func(m Mode) bool { return m.ID == id })
	if i < 0 {
		return Mode{}, false
	}
	return Modes[i], true
}

func (l lead) follow(s lock.Strategy, g order.Guard) string {
	for _, id := range l.lessons {
		byGuard := id == "F34" && g == order.FenceWrite
		if byGuard || slices.Contains(s.Breaks, id) {
			return id
		}
	}
	return l.resort
}
