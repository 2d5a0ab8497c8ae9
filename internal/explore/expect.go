package explore

import (
	"slices"

	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// amounts says what the faults of a search amount to in the registry's words,
// for a lock in one server and for one in several. Where a registry's cell
// strikes at one point of the grab, a search strikes at every one: a node that
// forgets does so when a rival has the others, as in amnesia.
var amounts = []struct {
	fault       string
	one, quorum lock.Fault
}{
	{Expiry, lock.Pause, lock.Pause}, // the calls of a holder, renewals among them, take their time
	{Pause, lock.Pause, lock.Pause},
	{Crash, lock.Crash, lock.Crash},
	{Cancel, lock.NoFault, lock.NoFault},
	{Restart, lock.RedisRestart, lock.Amnesia},
	{Down, lock.RedisDown, lock.RedisDown},
	{Down, lock.Crash, lock.Crash}, // for the server, its client is as good as dead
	{ClientClock, lock.ClientClock, lock.ClientClock},
	{NodeClock, lock.NodeClock, lock.Amnesia},
	{LostReply, lock.NoFault, lock.NoFault},
	{LateReply, lock.Latency, lock.Latency},
	{LateReply, lock.Crash, lock.Crash}, // a request arrives that its sender has given up
}

// Expected is the verdict that the registry claims for a strategy if these
// faults may happen: the worst of them and of none. It is "" where it claims
// nothing: of the seeded ones, and with another guard than the strategy's own.
func Expected(s lock.Strategy, guard order.Guard, faults []string) lock.Verdict {
	seeded := slices.ContainsFunc(lock.KnownBroken, func(o lock.Strategy) bool { return o.Name == s.Name })
	if seeded || s.GuardedBy(guard) != s.Guard {
		return ""
	}
	worst := s.Expected(lock.NoFault)
	for _, a := range amounts {
		if !slices.Contains(faults, a.fault) {
			continue
		}
		f := a.one
		if s.Needs&lock.RedisQuorum != 0 {
			f = a.quorum
		}
		worst = worse(worst, anywhere(s, f))
	}
	return worst
}

// claimed is what a search should come to. What breaks a property that is not
// looked at is not found.
func claimed(cfg Config, set sim.Setting) lock.Verdict {
	faults := cfg.Faults
	if cfg.FaultCount == 0 {
		faults = nil
	}
	v := Expected(set.Strategy, set.Guard, faults)
	if v != lock.Safe && len(cfg.Properties) < len(Properties) {
		return ""
	}
	return v
}

// anywhere is what is claimed under f wherever it strikes. Time that runs out
// between the last look at the lease and the write is seen by nobody but the
// guard: holders whom the lock does not keep apart then both write. A server that
// forgets a live lease grants another, which no guard prevents.
func anywhere(s lock.Strategy, f lock.Fault) lock.Verdict {
	unguarded := s.Guard == order.Naive || s.Guard == order.FenceWrite
	apart := s.Excludes == lock.Nobody || slices.Contains(s.Survives, f)
	forgets := f == lock.RedisRestart && s.Needs&lock.Redis != 0
	if !apart && (forgets || f == lock.Pause && unguarded) {
		return lock.Unsafe
	}
	if v := s.Expected(f); v != lock.NA {
		return v
	}
	return lock.Safe
}

// worse of two verdicts, as a cell's is the first that applies.
func worse(a, b lock.Verdict) lock.Verdict {
	for _, v := range []lock.Verdict{lock.Unsafe, lock.Stuck} {
		if a == v || b == v {
			return v
		}
	}
	return lock.Safe
}
