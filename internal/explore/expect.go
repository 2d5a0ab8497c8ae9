package explore

import (
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
	"grablab/internal/order"
)

// registered lists under which faults the registry says what a fault of a search
// leads to. Where a cell of the registry strikes at one point of the grab, a search
// strikes at every one: a node of several forgets also while a contender has the
// others, as in amnesia.
func registered(f catalog.Fault, quorum bool) []catalog.Fault {
	switch f {
	case catalog.RedisDown, catalog.Latency:
		return []catalog.Fault{f, catalog.Crash} // to the server, a client that gives up is as good as dead
	case catalog.RedisRestart, catalog.NodeClock:
		if quorum {
			return []catalog.Fault{catalog.Amnesia}
		}
	}
	return []catalog.Fault{f}
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
	for _, fault := range faults {
		for _, f := range registered(fault, s.Needs&lock.RedisQuorum != 0) {
			worst = worse(worst, anywhere(s, f))
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
	v := Expected(set.Strategy, set.Guard, faults)
	if v != catalog.Safe && len(cfg.Properties) < len(Properties) {
		return ""
	}
	return v
}

// anywhere is what the registry claims under f wherever it strikes. A lease that
// ends between its holder's last look at it and the write is noticed by a guard alone:
// holders that the lock does not keep apart then both write. A server that forgets a
// live lease grants another, which no guard prevents.
func anywhere(s lock.Strategy, f catalog.Fault) catalog.Verdict {
	unguarded := s.Guard == order.Naive || s.Guard == order.FenceWrite
	apart := s.Excludes == catalog.NoExclusion || slices.Contains(s.Survives, f)
	forgets := f == catalog.RedisRestart && s.Needs&lock.Redis != 0
	if !apart && (forgets || f == catalog.Pause && unguarded) {
		return catalog.Unsafe
	}
	if v := s.Expected(f); v != catalog.NA {
		return v
	}
	return catalog.Safe
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
