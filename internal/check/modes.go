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
}

// Modes is every failure mode that a strategy of the registry breaks by, or a
// fault shows.
var Modes = []Mode{
	{"F1", "check, then act: two read that the order is open before either writes", "a lock that both processes share, or a write that looks at the status"},
	{"F2", "the lock is one process's own, and there are two", "a lock that both processes share"},
	{"F3", "a lock without expiry whose release never came", "an expiry, set in the same command"},
	{"F4", "the expiry is a second command, and never came", "SET NX PX: one command"},
	{"F5", "a release that does not ask frees another's lock", "compare the token and delete in one step"},
	{"F6", "a release that asks first is late, and frees another's lock", "compare and delete in one script, or WATCH before the GET"},
	{"F9", "clocks differ: a living lock looks as if it had run out", "let the server's clock decide"},
	{"F10", "a loser of the race overwrites the stamp, and the holder no longer finds his own", "a token of one's own beside the stamp"},
	{"F11", "the lease runs out under its holder, who writes all the same", "a fencing token, raised before the read and compared at the write"},
	{"F12", "the reply that grants the lock comes when its lease is over", "subtract what the acquire took, and a fencing token"},
	{"F13", "the renewal stalls while the work goes on", "stop working when the lease is lost, and a fencing token"},
	{"F15", "the process lives and renews, the work hangs: nobody else gets in", "a bound on the work"},
	{"F16", "a wake-up is missed, and the waiter sleeps on", "ask again at intervals"},
	{"F17", "the server that had the lock has forgotten it: it came back empty, or a replica took over without it", "a guard in the database that does not trust the lock"},
	{"F18", "a node of the majority has forgotten its vote", "restart a node only after the longest lease"},
	{"F19", "the server's clock jumps, and the lease is over early", "a fencing token, or monotonic time on the server"},
	{"F20", "one node counts twice: alone it is the majority", "independent nodes, each listed once"},
	{"F21", "a bare majority loses one vote, and later another", "set a missing key again at every extension"},
	{"F25", "the reply was lost, and the lock does not know its own holder again", "let the same token take it again"},
	{"F27", "the counter of fencing tokens falls back", "keep the counter for longer than the lock, and refuse equal tokens"},
	{"F28", "two goroutines of one session hold one lock", "a session for each acquisition"},
	{"F29", "the session is over, and its holder goes on", "a fencing token: the lock service's revision"},
	{"F32", "the server closes the connection that the lock lives on", "write over that very connection"},
	{"F33", "the answer to a commit is lost, and the winner is told otherwise", "look for one's own row before answering"},
	{"F34", "the token is compared at the write alone: an older one writes first, and the newer one after it", "raise the token before the read"},
	{"F35", "a release looks at the age of the lock, not at its owner", "compare the owner"},
	{"F36", "the token is the driver's: his second attempt has the lock that his first one frees", "a token for each attempt"},
	{"F37", "the lock is looked at once more, and runs out before the write", "a guard within the write itself"},
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
