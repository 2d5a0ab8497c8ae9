package experiment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"grablab/internal/order"
	"grablab/internal/tap"
	"grablab/internal/testbed/fault"
	"grablab/internal/testbed/load"
)

// gate decides when contenders that are stopped before their writes may continue.
type gate struct {
	in       *injection
	contests []*contest
	holds    breakpoints
}

// free lets the contenders write as soon as the affected driver has written or has its
// response. It does not wait until their own leases expire.
func (s gate) free(ctx context.Context, claimed func(load.Request) bool) error {
	held := s.holds.ofContenders(ctx, s.contests)
	unknown := func(c *contest) bool { return !c.othersPassed && len(held[c]) >= s.in.w.cfg.units() }
	seen := time.Now()
	if slices.ContainsFunc(s.contests, unknown) {
		s.in.claimed(ctx, s.contests) // records whether the affected drivers have written by now
	}
	for _, c := range s.contests {
		if len(held[c]) == 0 {
			continue
		}
		if c.contenderHeldSince.IsZero() {
			c.contenderHeldSince = time.Now()
		}
		if unknown(c) {
			c.othersPassed = c.openUntil.After(seen)
		}
		over := s.mayFree(c, claimed)
		limit := s.in.lease() * 2 / 3
		if c.variation == affectedFirst {
			limit = s.in.lease() / 2 // the contenders must still have time to write before their leases end
		}
		if !over && time.Since(c.contenderHeldSince) < limit {
			continue
		}
		c.contenderFreed = true
		s.cancelUnlessFirst(c, claimed)
		for _, h := range held[c] {
			if err := h.in.RemoveHold(ctx, h.name(c)); err != nil {
				return err
			}
		}
	}
	return nil
}

// cancelUnlessFirst discards the injection if the affected driver should have written first but has
// not.
func (s gate) cancelUnlessFirst(c *contest, claimed func(load.Request) bool) {
	if c.variation == affectedFirst && s.waitsForOthers() {
		return
	}
	if s.mustClaimFirst(c) && !s.mayFree(c, claimed) {
		why := "the affected driver did not write before the others"
		if c.variation == affectedFirst {
			why += fmt.Sprintf(", who waited %v for it: if its work takes longer, set a longer lease", s.in.lease()/2)
		}
		s.in.cancelStrike(c, why)
	}
}

// waitsForOthers reports whether the database delays the affected driver's write because the stopped
// contenders hold row or gap locks. The contenders can then not write second. waitsForOthers returns
// false if the fault hits the database, because the fault itself may delay the write.
func (s gate) waitsForOthers() bool {
	if !s.in.fault.Freezes && s.in.fault.Hits == 0 || s.in.struck.AwaitsDatabase == nil {
		return false
	}
	return s.in.struck.AwaitsDatabase(s.in.lease() / 4)
}

// mustClaimFirst reports whether the affected driver must write first to reveal a bug. If it wrote
// later, the database could refuse the write because of its older fencing token.
func (s gate) mustClaimFirst(c *contest) bool {
	return c.variation == affectedFirst || s.in.cell.Guard == order.FenceWrite && s.in.fault.Course == fault.AfterHeal && c.point.Role == fault.Alone &&
		(c.point.Phase == tap.Read && c.point.After || c.point.Phase == tap.Claim && !c.point.After)
}

// mayFree reports whether the contenders may write now. Usually, they must wait until the
// affected driver has written or has its response.
func (s gate) mayFree(c *contest, claimed func(load.Request) bool) bool {
	if s.in.fault.Course == fault.Released {
		return s.in.atLeastUnits(c.contenders[1:], claimed)
	}
	return claimed(c.affected) || s.in.responses.isAnswered(c.affected)
}
