package explore

import (
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// Wider is where a fault of a search reaches further than the fault of run that has
// its name: the registry speaks of it under another one, too.
var Wider = []struct {
	Fault catalog.Fault
	Of    lock.Backend // of the strategies that keep their locks there
	As    catalog.Fault
	Why   string // in a sentence
	// Strategies are those of them that it is so for; nil: all.
	Strategies []string
}{
	{catalog.RedisRestart, lock.RedisQuorum, catalog.Amnesia, "a node forgets also while a contender has others, and then it alone is the majority; `run` has its holders on every node, and plays a bare majority as `amnesia`", nil},
	{catalog.Failover, lock.RedisQuorum, catalog.Amnesia, "as above", nil},
	{catalog.RedisFull, lock.RedisQuorum, catalog.Amnesia, "as above", nil},
	{catalog.NodeClock, lock.RedisQuorum, catalog.Amnesia, "the clock of a node jumps also while a contender has others; as above", nil},
	{catalog.Amnesia, lock.RedisQuorum, catalog.RedisRestart, "a node forgets, whoever has it", nil},
	{catalog.Partition, lock.Redis, catalog.Crash, "a client is cut off until it has given up, and what was set aside for it is nobody's; `run` heals before", []string{"redis-stock"}},
	{catalog.PartitionDB, lock.Redis, catalog.Crash, "as above", []string{"redis-stock"}},
	{catalog.SlowDB, lock.Redis, catalog.Crash, "as above", []string{"redis-stock"}},
	{catalog.Latency, lock.Redis, catalog.Crash, "a request is delayed, too, until its caller has given up: to the server that client is as good as dead; `run` delays replies alone", nil},
}

// Narrower is where a fault of a search does not reach as far as the fault of run that has
// its name: what run claims of it, a search shows under another one alone.
var Narrower = []struct {
	Fault      catalog.Fault
	Strategies []string
	Why        string // in a sentence
}{
	{catalog.Failover, []string{"setnx-fence-write"}, "the replica lacks the last token alone, so that the next is the same and one of the two is refused; a counter that begins again is `redis-restart` in a search"},
	{catalog.Latency, []string{"redislock"}, "its callers have no deadline there, and then the library gives up after a lease by itself; a request to an instance has one"},
	{catalog.Partition, []string{"zookeeper"}, "its client gives its session up before the server does, unless the driver is held behind its last look, too: in a search that is `pause`"},
}

// Claimed is what the registry claims of the order if a fault strikes anywhere in a
// search. It is never [catalog.NA]: then nothing happens.
func Claimed(s lock.Strategy, f catalog.Fault) catalog.Verdict {
	for _, n := range Narrower {
		if n.Fault == f && slices.Contains(n.Strategies, s.Name) {
			return s.Expected(catalog.NoFault)
		}
	}
	worst := worse(s.Expected(catalog.NoFault), s.Expected(f))
	for _, w := range Wider {
		if w.Fault == f && s.Needs&w.Of != 0 && (w.Strategies == nil || slices.Contains(w.Strategies, s.Name)) {
			worst = worse(worst, s.Expected(w.As))
		}
	}
	return worst
}

// Expected is the verdict that the registry claims for a strategy if these
// faults may happen: the worst of them and of none. It is "" where it claims
// nothing: of the known-broken ones, and with another guard than the strategy's own.
func Expected(s lock.Strategy, guard order.Guard, faults []catalog.Fault) catalog.Verdict {
	broken := slices.ContainsFunc(lock.KnownBroken, func(o lock.Strategy) bool { return o.Name == s.Name })
	if broken || s.GuardedBy(guard) != s.Guard {
		return ""
	}
	worst := s.Expected(catalog.NoFault)
	for _, f := range faults {
		if worst = worse(worst, Claimed(s, f)); forgets(s, f) || f == catalog.ReplyLost && slices.Contains(s.Breaks, "F25") {
			worst = catalog.Unsafe // by a property of the lock, whatever becomes of the order
		}
	}
	return worst
}

// claimed is what a search should come to. A failure of a property that it does not
// check is not found.
func claimed(cfg Config, set sim.Setting) catalog.Verdict {
	faults := cfg.Faults
	if cfg.FaultCount == 0 {
		faults = nil
	}
	if cfg.Instances == 1 && set.Strategy.Excludes == catalog.PerProcess {
		return "" // of several instances alone
	}
	if slices.ContainsFunc(cfg.Own, func(s lock.Strategy) bool { return s.Name == set.Strategy.Name }) {
		return ""
	}
	v := Expected(set.Strategy, set.Guard, faults)
	if v != catalog.Safe && len(cfg.Properties) < len(Properties) {
		return ""
	}
	return v
}

// forgets says whether a server forgets a live lease, or ends it early, and grants another. No guard
// prevents that.
func forgets(s lock.Strategy, f catalog.Fault) bool {
	apart := s.Excludes == catalog.NoExclusion || slices.Contains(s.Survives, f)
	forget := []catalog.Fault{catalog.RedisRestart, catalog.Failover, catalog.RedisFull, catalog.NodeClock}
	return !apart && slices.Contains(forget, f) && s.Needs&lock.Redis != 0
}

// worse of two verdicts, as a cell's is the first that applies.
func worse(a, b catalog.Verdict) catalog.Verdict {
	for _, v := range []catalog.Verdict{catalog.Unsafe, catalog.Stuck} {
		if a == v || b == v {
			return v
		}
	}
	return catalog.Safe
}
