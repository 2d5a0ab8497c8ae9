package order

import (
	"fmt"
	"slices"
)

// condition returns the SQL that the guard adds to the WHERE clause of the write, with its
// arguments. In SQL, this condition decides whether the claim is written. judge then only explains
// why it was not written.
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
			return " AND fence = ?", []any{c.Fence} // judgeLimit looks for the claim's own row in the ledger
		}
		// The second half excludes a row that this claim has already written, because a
		// blind retry must not append to the ledger again (F33).
		return " AND fence = ? AND NOT (status = 1 AND driver_id = ?)", []any{c.Fence, c.Driver}
	default:
		return "", nil
	}
}

// sold returns the SQL that sets the order's status and counter, with its arguments. The status
// comes first, because MySQL evaluates assignments from left to right and the status depends on the
// old counter.
func (c Claim) sold(g Guard) (string, []any) {
	switch {
	case c.Stock == 0:
		return "status = ?", []any{Grabbed}
	case g.absolute():
		return "status = ?, stock = ?", []any{statusOf(c.Stock - 1), c.Stock - 1}
	default:
		return "status = CASE WHEN stock > 1 THEN 0 ELSE 1 END, stock = stock - 1", nil
	}
}

// statusOf returns the status of an order of several units, of which stock units are left.
func statusOf(stock int64) int {
	if stock > 0 {
		return Open
	}
	return Grabbed
}

// sell makes the same changes to a row in memory as sold does in SQL.
func (o *Order) sell(c Claim, g Guard) {
	switch {
	case o.Units == 0:
		o.Status = Grabbed
		return
	case g.absolute():
		o.Stock = c.Stock - 1
	default:
		o.Stock--
	}
	o.Status = statusOf(o.Stock)
}

// judge returns nil if the guard lets the claim write, given the present state of the order.
// Otherwise, it returns an error that says why not.
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
		return notWritten(fmt.Errorf("order: no read has raised the fence of order %d to %d", o.ID, c.Fence))
	case g == Fenced && same && o.Driver == c.Driver && c.Stock == 0:
		return ErrTaken
	case g == Fenced && o.Fence == c.Fence:
		return nil
	default:
		return ErrStale
	}
}

// writesAnyway reports whether the guard updates the order's row regardless of its state.
func (g Guard) writesAnyway() bool { return g == Naive || g == Decrement || g == Unique }

// limits reports whether the write checks how many units the driver already has.
func (c Claim) limits(g Guard) bool { return c.Stock > 0 && !g.LooksFirst() && g != Decrement }

// judgeLimit returns nil if the driver may have one more unit. held contains the driver's ledger
// rows. If one of them belongs to this claim, the claim is a blind retry, and judgeLimit returns
// ErrTaken (F33). It returns ErrLimit if the driver has enough units.
func (c Claim) judgeLimit(held []Grab) error {
	if slices.ContainsFunc(held, func(g Grab) bool { return g.Token == c.Token }) {
		return ErrTaken
	}
	if len(held) >= c.limit() {
		return ErrLimit
	}
	return nil
}

// validate returns an error if the claim is not valid under the guard, for example because it has
// no fencing token.
func (c Claim) validate(g Guard) error {
	if _, err := ParseGuard(string(g)); err != nil {
		return notWritten(err)
	}
	if g.NeedsFence() && c.Fence == 0 {
		return notWritten(fmt.Errorf("order: guard %s needs a fencing token", g))
	}
	if g == Unique && c.Stock > 0 {
		return notWritten(fmt.Errorf("order: %s", g.RefusesUnits(MaxStock)))
	}
	if len(c.Token) > maxToken {
		return notWritten(fmt.Errorf("order: a token of %d bytes, the ledger takes %d", len(c.Token), maxToken))
	}
	return nil
}

// maxToken is the size of the token column in the ledger, in bytes. A server that is not strict
// would truncate a longer token, and lookAgain could then not find the claim.
const maxToken = 255

// notWritten marks err as the error of a claim that certainly wrote nothing.
func notWritten(err error) error { return fmt.Errorf("%w: %w", ErrNotWritten, err) }

// MaxCreate is the highest number of orders that one Create can open. They must fit into one
// statement, and servers accept 16 MiB by default.
const MaxCreate = 500_000

// MaxStock is the highest number of units of one order.
const MaxStock = 1_000_000

func checkCount(count, units int) error {
	if count < 1 || count > MaxCreate {
		return fmt.Errorf("order: cannot open %d orders at once: give a number from 1 to %d", count, MaxCreate)
	}
	if units < 1 || units > MaxStock {
		return fmt.Errorf("order: cannot open an order of %d units: give a number from 1 to %d", units, MaxStock)
	}
	return nil
}
