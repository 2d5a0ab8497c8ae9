package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"grablab/internal/catalog"
	"grablab/internal/order"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
)

// gate decides when contenders that are stopped before their writes may continue.
type gate struct {
	contests []*contest
	holds    breakpoints
	units    int
	lease    time.Duration
	claimed  func(context.Context, []*contest) func(load.Request) bool // reads the ledger, as injection.claimed does
}

func (s contention) gate() gate {
	return gate{s.contests, s.holds, s.in.w.cfg.units(), s.in.lease(), s.in.claimed}
}

// free lets the contenders write as soon as the affected driver has written or has its
// response. It does not wait until their own leases expire.
func (g gate) free(ctx context.Context, claimed func(load.Request) bool) error {
	held := g.holds.ofContenders(ctx, g.contests)
	unknown := func(c *contest) bool {
		return !c.othersPassed && len(held[c]) > 0 && g.arePast(c, len(held[c]), claimed)
	}
	seen := time.Now()
	if slices.ContainsFunc(g.contests, unknown) {
		g.claimed(ctx, g.contests) // records whether the affected drivers have written by now
	}
	for _, c := range g.contests {
		if len(held[c]) == 0 {
			continue
		}
		if c.contenderHeldSince.IsZero() {
			c.contenderHeldSince = time.Now()
		}
		if unknown(c) {
			c.othersPassed = c.openUntil.After(seen)
		}
		over := g.mayFree(c, claimed)
		limit := g.lease * 2 / 3
		if c.variation == affectedFirst {
			limit = g.lease / 2 // the contenders must still have time to write before their leases end
		}
		if !over && time.Since(c.contenderHeldSince) < limit {
			continue
		}
		c.contenderFreed = true
		g.cancelUnlessFirst(c, claimed)
		for _, h := range held[c] {
			if err := h.in.RemoveHold(ctx, h.name(c)); err != nil {
				return err
			}
		}
	}
	return nil
}

// arePast reports whether enough contenders to sell all units have got past the lock. In a user's service, only the driver who
// would sell the last unit stops, and the others have written before.
func (g gate) arePast(c *contest, stopped int, claimed func(load.Request) bool) bool {
	if !g.holds.tellsDrivers {
		stopped += len(catalog.Filter(c.contenders, claimed))
	}
	return stopped >= g.units
}

// cancelUnlessFirst discards the injection if the affected driver should have written first but has
// not.
func (g gate) cancelUnlessFirst(c *contest, claimed func(load.Request) bool) {
	if c.variation == affectedFirst && g.waitsForOthers() {
		return
	}
	if g.mustClaimFirst(c) && !g.mayFree(c, claimed) {
		why := "the affected driver did not write before the others"
		if c.variation == affectedFirst {
			why += fmt.Sprintf(", who waited %v for it: if its work takes longer, set a longer lease", g.lease/2)
		}
		c.cancel(why)
	}
}

// waitsForOthers reports whether the database delays the affected driver's write because the stopped
// contenders hold row or gap locks. The contenders can then not write second. waitsForOthers returns
// false if the fault hits the database, because the fault itself may delay the write.
func (g gate) waitsForOthers() bool {
	if !g.holds.fault.Freezes && g.holds.fault.Hits == 0 || g.holds.struck.AwaitsDatabase == nil {
		return false
	}
	return g.holds.struck.AwaitsDatabase(g.lease / 4)
}

// mustClaimFirst reports whether the affected driver must write first to reveal a bug. If it wrote
// later, the database could refuse the write because of its older fencing token.
func (g gate) mustClaimFirst(c *contest) bool {
	return c.variation == affectedFirst || g.holds.guard == order.FenceWrite && g.holds.fault.Course == fault.AfterHeal && c.point.Role == fault.Alone &&
		(c.point.Phase == tap.Read && c.point.After || c.point.Phase == tap.Claim && !c.point.After)
}

// mayFree reports whether the contenders may write now. Usually, they must wait until the
// affected driver has written or has its response.
func (g gate) mayFree(c *contest, claimed func(load.Request) bool) bool {
	if g.holds.fault.Course == fault.Released {
		return len(catalog.Filter(c.contenders[1:], claimed)) >= g.units
	}
	return claimed(c.affected) || g.holds.responses.isAnswered(c.affected)
}
