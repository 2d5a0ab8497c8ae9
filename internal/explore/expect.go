package explore

import (
	"cmp"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/explore/schedule"
	"grablab/internal/explore/sim"
	"grablab/internal/grab/lock"
)

// Wider lists faults that do more harm in a search than on real servers. With a fault in Faults, a
// search may also find the failures that we expect under the fault As.
var Wider = []struct {
	Faults []catalog.Fault
	Of     lock.Backend // the backend on which the strategies store their locks
	As     catalog.Fault
	Why    string // the reason, as one or more sentences
}{
	{[]catalog.Fault{catalog.RedisRestart, catalog.Failover, catalog.RedisFull, catalog.NodeClock}, lock.RedisQuorum, catalog.Amnesia, "in a search, the fault may also strike a node while another driver holds some of the other nodes, so that this node decides who gets the majority. In `run`, the holder has all nodes, and only `amnesia` tests a bare majority"},
	{[]catalog.Fault{catalog.Amnesia}, lock.RedisQuorum, catalog.RedisRestart, "in a search, any node may restart empty, even a node on which the holder has no lock"},
	{[]catalog.Fault{catalog.Latency}, lock.Redis, catalog.Crash, "in a search, a request may reach the server after its caller has given up. For the server, this looks as if the caller had crashed. In `run`, only replies are delayed"},
}

// Claimed returns the verdict that a search should reach for a strategy under a fault, if the order
// has the given number of units. A fault without an effect counts as safe, so Claimed never returns
// [catalog.NA].
func Claimed(s lock.Strategy, f catalog.Fault, units int) catalog.Verdict {
	worst := worstFailing(s.Expected(catalog.NoFault), s.Expected(f))
	for _, w := range Wider {
		if slices.Contains(w.Faults, f) && s.Needs&w.Of != 0 {
			worst = worstFailing(worst, s.Expected(w.As))
		}
	}
	for _, c := range s.InSearch {
		switch {
		case !slices.Contains(c.Faults, f) || units < c.Units:
		case c.As == catalog.NoFault:
			return s.Expected(catalog.NoFault)
		default:
			worst = worstFailing(worst, s.Expected(c.As))
		}
	}
	return worst
}

// claimed returns the verdict that the registry predicts for a search. It returns "" if the search
// checks too few properties, or has too few actors, to find every expected failure. It also returns ""
// if the verdict on the order depends on how late a grant arrives.
func claimed(cfg Config, set sim.Setting) catalog.Verdict {
	faults := cfg.Faults
	if cfg.FaultCount == 0 {
		faults = nil
	}
	c := claimsUnder(cfg, set, faults)
	if c.all != catalog.Safe && len(cfg.Properties) < len(Properties) || c.all == catalog.Unsafe && cfg.Actors <= cfg.Stock || c.byDelay {
		return ""
	}
	return c.all
}

// claims contains the verdicts that we expect for the order only, and for all properties together.
// Each is the worst of the verdicts without a fault and under each single fault. An empty verdict
// means that we expect nothing in particular.
type claims struct {
	order, all catalog.Verdict
	blocks     bool // whether a lock or a unit may stay behind, so that other drivers have to wait for it
	byDelay    bool // whether the verdict on the order holds only if a grant arrives late enough
}

// blocking lists the properties that a lock may break only if a lock or a unit stays behind. A lease
// that ends early cannot break them.
var blocking = []string{catalog.StuckOrder, catalog.NoLostWakeup, catalog.ReleaseEffective, catalog.NoResidue}

// claimsUnder returns what we expect under the given faults. We make no prediction for the user's own
// strategies. Except for a lock within one process, we make none for known-broken strategies and for a guard
// that is not the strategy's default either. If there is only one instance, a lock within one process is safe
// unless its holder hangs.
func claimsUnder(cfg Config, set sim.Setting, faults []catalog.Fault) claims {
	s := set.Strategy
	isListed := func(all []lock.Strategy) bool {
		return slices.ContainsFunc(all, func(o lock.Strategy) bool { return o.Name == s.Name })
	}
	switch {
	case isListed(cfg.Own):
		return claims{}
	case cfg.Instances == 1 && s.Excludes == catalog.PerProcess && !slices.Contains(faults, catalog.Hang):
		return claims{order: catalog.Safe, all: catalog.Safe}
	case cfg.Instances == 1 && s.Excludes == catalog.PerProcess:
		return claims{}
	}
	late := slices.Contains(faults, catalog.Latency) // a late grant may leave less than half of the lease
	if cfg.Work >= cfg.TTL || late && cfg.Work > cfg.TTL/2 {
		faults = append(slices.Clip(faults), catalog.Slow) // work that outlasts a lease has the same effect as the "slow" fault
	}
	c := claims{order: s.Expected(catalog.NoFault)}
	for _, f := range faults {
		c.order = worstFailing(c.order, Claimed(s, f, set.Stock))
		c.blocks = c.blocks || mayBlock(s, f, set.Stock)
	}
	// The reply with a grant may be late for as long as other drivers wait. Then the lease may end during the work.
	if late && cfg.Work > 0 && time.Duration(cfg.Actors-1)*cfg.Wait >= cfg.TTL {
		before := c.order
		c.order = worstFailing(c.order, Claimed(s, catalog.Slow, set.Stock))
		c.byDelay = c.order != before
	}
	breaksLock := func(f catalog.Fault) bool { return losesLease(s, f) || leavesBehind(s, f) }
	switch c.all = c.order; {
	case isListed(lock.KnownBroken) || s.GuardedBy(set.Guard) != s.Guard:
		c.order, c.all = "", ""
	case cfg.FaultCount > 1 && keepsLostGrant(s, faults):
		c.all, c.blocks = catalog.Unsafe, true
	case slices.ContainsFunc(faults, breaksLock):
		c.all = catalog.Unsafe // a property of the lock breaks, even if the order is safe
	}
	return c
}

// faultsOfStep returns the faults that can cause a step. There may be several, because for example
// a slow database looks like a partition. If no fault causes the step, the result contains only "".
func faultsOfStep(s schedule.Step) []catalog.Fault {
	switch {
	case s.Kind == schedule.LeaseEnd:
		return []catalog.Fault{catalog.Slow} // if no call could continue, the step costs nothing and is not a fault
	case (s.Kind == schedule.CutOff || s.Kind == schedule.ReplyLost) && s.Target == schedule.DB:
		return []catalog.Fault{catalog.PartitionDB, catalog.SlowDB}
	case s.Kind == schedule.Restarts && s.Target == schedule.DB:
		return []catalog.Fault{catalog.DBRestart}
	case s.Kind == schedule.Restarts:
		return []catalog.Fault{catalog.RedisRestart, catalog.Amnesia}
	default:
		return []catalog.Fault{s.Kind.Fault()}
	}
}

func faultsIn(steps []schedule.Step, enabled []catalog.Fault) (faults []catalog.Fault) {
	for _, s := range steps {
		for _, f := range faultsOfStep(s) {
			if slices.Contains(enabled, f) && !slices.Contains(faults, f) {
				faults = append(faults, f)
			}
		}
	}
	return faults
}

// markUnexpected marks each failure that the registry does not predict for the faults in its
// schedule.
func markUnexpected(cfg Config, set sim.Setting, failures []Failure) {
	for i, f := range failures {
		c := claimsUnder(cfg, set, faultsIn(f.Schedule.Steps, cfg.Faults))
		v := c.all
		if f.Property == catalog.OneWinner || f.Property == catalog.StuckOrder {
			v = c.order
		}
		p, _ := catalog.FindProperty(f.Property)
		switch {
		case v == "":
		case v == catalog.Safe, p.Unbroken, isUnexpectedMode(set, f.Mode), slices.Contains(blocking, f.Property) && !c.blocks:
			failures[i].Unexpected = true
		case v == catalog.Stuck:
			failures[i].Unexpected = f.Property == catalog.OneWinner
		}
	}
}

// mistakes lists the failure modes that are mistakes in the lock itself. We expect them only if the
// registry says that the strategy has this mistake.
var mistakes = []string{"F5", "F6", "F7", "F26"}

func isUnexpectedMode(set sim.Setting, mode string) bool {
	return slices.Contains(mistakes, mode) && !slices.Contains(set.Strategy.Breaks, mode)
}

// judgeClaims marks the unexpected failures. If byClaim is set, it also drops all failures except
// the shortest one of each property and the shortest unexpected one.
func judgeClaims(cfg Config, set sim.Setting, failures []Failure) []Failure {
	markUnexpected(cfg, set, failures)
	if !cfg.byClaim {
		return failures
	}
	var kept []Failure
	for _, f := range failures {
		same := func(k Failure) bool { return k.Property == f.Property }
		switch f.Kind = ""; {
		case !slices.ContainsFunc(kept, same):
			kept = append(kept, f)
		case f.Unexpected && !slices.ContainsFunc(kept, func(k Failure) bool { return same(k) && k.Unexpected }):
			f.Kind = cmp.Or(kindOf(f.Schedule.Steps), "no fault")
			kept = append(kept, f)
		}
	}
	return kept
}

// leavesBehind reports whether a fault makes the strategy leave its lock on the server because the
// strategy no longer recognizes the lock as its own.
func leavesBehind(s lock.Strategy, f catalog.Fault) bool {
	return f == catalog.ReplyLost && slices.Contains(s.Breaks, "F25") || f == catalog.SentTwice && s.RefusesItself
}

// mayBlock reports whether the fault may leave something behind for which other drivers wait.
func mayBlock(s lock.Strategy, f catalog.Fault, units int) bool {
	switch v := Claimed(s, f, units); {
	case v == catalog.Stuck, leavesBehind(s, f):
		return true
	case v == catalog.Safe:
		return false
	default: // a lock that a crash leaves behind may also stay after this fault
		return s.Expected(catalog.Crash) == catalog.Stuck || f == catalog.Latency || f == catalog.Slow
	}
}

// keepsLostGrant reports whether two faults together can leave a lock on the server. The first
// loses the reply to the acquire, and the second prevents the clean-up.
func keepsLostGrant(s lock.Strategy, faults []catalog.Fault) bool {
	lost := slices.Contains(faults, catalog.ReplyLost) || slices.Contains(faults, catalog.SentTwice)
	return lost && slices.Contains(faults, catalog.Cancel) && slices.Contains(s.Breaks, "F22")
}

// losesLease reports whether the fault can end a lease early, so that a second client also gets the
// lock.
func losesLease(s lock.Strategy, f catalog.Fault) bool {
	claimsAs := func(as catalog.Fault) bool {
		return slices.ContainsFunc(s.InSearch, func(c lock.SearchClaim) bool { return c.As == as && slices.Contains(c.Faults, f) })
	}
	drops := f.Shows()&(catalog.Forgotten|catalog.Evicted) != 0
	jumps := f.Shows()&catalog.ClockJumped != 0 && !claimsAs(catalog.NoFault)
	if jumps && claimsAs(catalog.Pause) { // the lease of a running holder ends early
		return true
	}
	return (drops || jumps) && s.Needs&lock.Redis != 0 && s.Excludes != catalog.NoExclusion && !s.ExclusiveUnder(f)
}

func worstFailing(a, b catalog.Verdict) catalog.Verdict {
	for _, v := range []catalog.Verdict{catalog.Unsafe, catalog.Stuck} {
		if a == v || b == v {
			return v
		}
	}
	return catalog.Safe
}
