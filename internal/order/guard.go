package order

import (
	"fmt"
	"slices"
)

// condition returns the guard as an SQL condition for the UPDATE that records the winner, with the
// condition's arguments.
func (c Claim) condition(g Guard) (string, []any) {
	switch g {
	case Guarded:
		if c.Stock > 0 {
			return " AND stock > 0", nil
		}
		return " AND status = 0", nil
	case FenceWrite:
		return " AND fence < ?", []any{c.Fence}
	case Fenced:
		if c.Stock > 0 {
			return " AND fence = ?", []any{c.Fence} // judgeLimit detects a repeated write
		}
		// The second half of the condition refuses a repeated write, which would add a second
		// ledger row (failure mode F33).
		return " AND fence = ? AND NOT (status = 1 AND driver_id = ?)", []any{c.Fence, c.Driver}
	default:
		return "", nil
	}
}

// sold returns the SQL that updates the status and the unit counter. MySQL evaluates assignments
// from left to right, so the status comes first: it depends on the old counter.
func (c Claim) sold(g Guard) (string, []any) {
	switch {
	case c.Stock == 0:
		return "status = ?", []any{Grabbed}
	case g.setsCounter():
		return "status = ?, stock = ?", []any{statusOf(c.Stock - 1), c.Stock - 1}
	default:
		return "status = CASE WHEN stock > 1 THEN 0 ELSE 1 END, stock = stock - 1", nil
	}
}

func statusOf(stock int64) int {
	if stock > 0 {
		return Open
	}
	return Grabbed
}

// sell applies a successful write to an order in memory, with the same effect as the SQL from sold.
func (o *Order) sell(c Claim, g Guard) {
	switch {
	case o.Units == 0:
		o.Status = Grabbed
		return
	case g.setsCounter():
		o.Stock = c.Stock - 1
	default:
		o.Stock--
	}
	o.Status = statusOf(o.Stock)
}

// judge checks whether the guard allows the write in the order's current state. If not, the error
// says why.
func (c Claim) judge(o Order, g Guard) error {
	same := o.Status == Grabbed && o.Fence == c.Fence
	switch {
	case g.writesAnyway(), g == Guarded && o.Left() > 0:
		return nil
	case g == Guarded:
		return ErrTaken
	case g == FenceWrite && o.Fence < c.Fence:
		return nil
	case g == FenceWrite && same:
		return ErrTaken
	case g == Fenced && o.Fence < c.Fence:
		return notWritten(fmt.Errorf("order: the read of order %d did not store fencing token %d, so the write is refused: use the same token for both", o.ID, c.Fence))
	case g == Fenced && same && o.Driver == c.Driver && c.Stock == 0:
		return ErrTaken
	case g == Fenced && o.Fence == c.Fence:
		return nil
	default:
		return ErrStale
	}
}

// writesAnyway reports whether the guard allows writes in any state of the order.
func (g Guard) writesAnyway() bool { return g == Naive || g == Decrement || g == Unique }

// LimitsDrivers reports whether the write itself checks how many units the driver already has, if the order
// has several. With Naive, the grab checks this limit before the write. With Decrement, only the strategy can
// check it.
func (g Guard) LimitsDrivers() bool { return !g.LooksFirst() && g != Decrement }

// checksLimit reports whether the write itself checks how many units the driver already has.
func (c Claim) checksLimit(g Guard) bool { return c.Stock > 0 && g.LimitsDrivers() }

// judgeLimit returns ErrLimit if the driver already has the maximum number of units. If the ledger
// already contains this write, it returns ErrTaken, so that a repeated write has no effect (failure
// mode F33).
func (c Claim) judgeLimit(held []Grab) error {
	if slices.ContainsFunc(held, func(g Grab) bool { return g.Token == c.Token }) {
		return ErrTaken
	}
	if len(held) >= c.limit() {
		return ErrLimit
	}
	return nil
}

// validate returns an error if the write is invalid, for example because it lacks the fencing token
// that the guard needs.
func (c Claim) validate(g Guard) error {
	if _, err := ParseGuard(string(g)); err != nil {
		return notWritten(err)
	}
	if g.NeedsFence() && c.Fence == 0 {
		return notWritten(fmt.Errorf("order: guard %s needs a fencing token, but the write has none", g))
	}
	if g == Unique && c.Stock > 0 {
		return notWritten(fmt.Errorf("order: %s", g.RefusesUnits(MaxStock)))
	}
	if len(c.Token) > maxToken {
		return notWritten(fmt.Errorf("order: the token has %d bytes, but the ledger stores at most %d", len(c.Token), maxToken))
	}
	return nil
}

// maxToken is the size of the token column in bytes. Some servers truncate longer values, and then
// a later search for the token would find nothing.
const maxToken = 255

// notWritten wraps err with ErrNotWritten, to tell callers that nothing was written.
func notWritten(err error) error { return fmt.Errorf("%w: %w", ErrNotWritten, err) }

// MaxCreate is the maximum number of orders per Create call. It keeps the SQL statement below the
// usual server limit of 16 MiB.
const MaxCreate = 500_000

// MaxStock is the maximum number of units of an order.
const MaxStock = 1_000_000
