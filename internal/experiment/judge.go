package experiment

import (
	"fmt"
	"slices"

	"grablab/internal/catalog"
	"grablab/internal/grab"
	"grablab/internal/grab/lock"
)

// judge gives the cell its verdict: the first of contract 1 that applies, with
// the reason. invalid is why the cell was not measured as it should have been.
func judge(c Cell, s lock.Strategy, a *accounting, invalid string) (catalog.Verdict, string) {
	switch {
	case c.DoubleGrabs != nil && *c.DoubleGrabs > 0:
		return catalog.Unsafe, share(*c.OrdersDoubleGrabbed, c.Orders, "was", "were") + " grabbed more than once"
	case c.Overlaps != nil && *c.Overlaps > 0 && mustNotOverlap(s, c.Fault):
		return catalog.Unsafe, fmt.Sprintf("two holders were inside at once %d times", *c.Overlaps)
	case c.StuckOrders != nil && *c.StuckOrders > 0:
		return catalog.Stuck, share(*c.StuckOrders, c.Orders, "can", "can") + " no longer be grabbed"
	case invalid != "":
		return catalog.Unknown, invalid
	case c.DoubleGrabs == nil:
		return catalog.Unknown, "double-grabs could not be counted"
	case c.StuckOrders == nil:
		return catalog.Unknown, "stuck orders could not be counted"
	case c.Struck != nil && *c.Struck == 0:
		return catalog.Unknown, "the fault never struck"
	case len(a.competed) < 2:
		return catalog.Unknown, "one instance alone served"
	case *c.ContendedOrders == 0:
		return catalog.Unknown, "no order was contended"
	case a.tried < c.Orders:
		return catalog.Unknown, fmt.Sprintf("%s not tried: no driver got past the lock", share(c.Orders-a.tried, c.Orders, "was", "were"))
	default:
		return catalog.Safe, ""
	}
}

// share is "1 of 5 orders was", "2 of 5 orders were".
func share(n, of int, one, many string) string {
	verb := many
	if n == 1 {
		verb = one
	}
	return fmt.Sprintf("%d of %d orders %s", n, of, verb)
}

// mustNotOverlap says whether the strategy's entry promises that under f no
// two holders are inside at once.
func mustNotOverlap(s lock.Strategy, f catalog.Fault) bool {
	return s.Excludes != catalog.NoExclusion && slices.Contains(s.Survives, f)
}

// expected is what the registry claims of the cell; nil where the flags have
// changed what it speaks of.
func (cfg Config) expected(s lock.Strategy, f catalog.Fault) *catalog.Verdict {
	// A search for the peak may have no contention.
	asDeclared := cfg.Scenario != "peak" && s.GuardedBy(cfg.Guard) == s.Guard &&
		cfg.OnLost == grab.Abort && cfg.ClockOffset == 0 && cfg.Work < cfg.TTL
	if s.New == nil || !asDeclared { // without New it is a foreign lock
		return nil
	}
	v := s.Expected(f)
	return &v
}

const (
	fromLedger  = "ledger"
	fromAnswers = "answers"
)
